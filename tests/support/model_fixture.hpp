// A batch and weights for tests of whole models.
#pragma once

#include <cstdint>
#include <smelt/core/random.hpp>
#include <smelt/model/language_model.hpp>
#include <vector>

namespace smelt_test {

using namespace smelt;

/// A random batch that owns its memory. Some targets do not count, and a document begins inside every sequence.
struct owned_batch {
  std::vector<std::int32_t> inputs, targets, first;
  std::int64_t sequences, length;

  owned_batch(std::int64_t vocab, std::int64_t sequences_, std::int64_t length_, std::uint64_t seed = 1)
      : sequences(sequences_), length(length_) {
    const random_stream random(seed, 99);
    for (std::int64_t t = 0; t < sequences * length; ++t) {
      const auto p = static_cast<std::uint64_t>(t);
      const auto position = static_cast<std::int32_t>(t % length);
      const auto document = static_cast<std::int32_t>(length / 3);
      inputs.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocab), 2 * p)));
      targets.push_back(
          t % 5 == 3 ? -1 : static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocab), 2 * p + 1)));
      first.push_back(position >= document ? document : 0);
    }
  }

  [[nodiscard]] token_batch view() const { return {inputs, targets, first, sequences, length}; }
};

/// Weights far from their start, so that every path matters: normal with deviation 0.3, gains around 1.
template <class Scalar>
weight_buffer<Scalar> random_weights(const spec& s, std::uint64_t seed = 7) {
  weight_buffer<Scalar> w(s);
  w.layout().for_each([&](weight kind, int layer, const weight_place& p) {
    const random_stream random(seed, static_cast<std::uint64_t>(layer + 1) * 64 + static_cast<std::uint64_t>(kind));
    const bool gain = !is_decayed(kind) && kind != weight::balance_bias;
    for (std::int64_t i = 0; i < p.size(); ++i)
      w.all()[static_cast<std::size_t>(p.offset + i)] =
          static_cast<Scalar>(0.3 * random.normal(static_cast<std::uint64_t>(i)) + (gain ? 1.0 : 0.0));
  });
  return w;
}

}  // namespace smelt_test
