// Which weights does a probe use where there are no trained ones? Those that training starts from, with nothing left at
// a value that could hide something.
#pragma once

#include <cstdint>
#include <smelt/core/random.hpp>
#include <smelt/model/weights.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// Weights as `initialise` starts them, with normal noise of deviation 0.3 added to all that starts out constant, but
/// balancing biases: gains, coefficients, encoders and writebacks. Every element depends only on the seed and its
/// place.
template <class Scalar>
[[nodiscard]] weight_buffer<Scalar> probe_weights(const spec& s, std::uint64_t seed) {
  weight_buffer<Scalar> weights(s);
  initialise(weights, s, seed);
  weights.layout().for_each([&](weight w, int index, const weight_place& p) {
    if (is_decayed(w) || w == weight::balance_bias) return;
    // Streams apart from those of `initialise`.
    const random_stream noise(~seed, static_cast<std::uint64_t>(index + 1) * 64 + static_cast<std::uint64_t>(w));
    for (std::int64_t i = 0; i < p.size(); ++i)
      weights.all()[static_cast<std::size_t>(p.offset + i)] +=
          static_cast<Scalar>(0.3 * noise.normal(static_cast<std::uint64_t>(i)));
  });
  return weights;
}

}  // namespace smelt
