// How much of a latent's increment does each of the tokens behind it get? The writeback's mean over channels.
#pragma once

#include <cmath>
#include <cstdint>
#include <smelt/model/weights.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>
#include <vector>

namespace smelt {

/// One number a receiver of the increments of `visit`: the mean over channels of the coefficient that its increment is
/// multiplied by, from the nearest receiver, the last token of the latent's own chunk, to the farthest. Of a normalised
/// writeback these are the normalised coefficients, of a direct one 1. Empty for a visit without compression.
/// Precondition: 0 <= visit < visits of the loop of `s`.
template <class Scalar>
[[nodiscard]] std::vector<double> writeback_means(const spec& s, const weight_buffer<Scalar>& weights, int visit) {
  const visit_plan& plan = s.loop.visits[visit];
  if (plan.compression == 1) return {};
  std::vector<double> means(static_cast<std::size_t>(plan.compression), 1.0);
  if (plan.writeback == writeback_kind::direct) return means;
  const matrix_view<const Scalar> w = weights(weight::writeback, visit);
  const std::int64_t channels = plan.writeback == writeback_kind::scalar ? 1 : s.width;
  for (std::size_t i = 0; i < means.size(); ++i) {
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto value = static_cast<double>(w.data[static_cast<std::int64_t>(i) * channels + c]);
      sum += value;
      squares += value * value;
    }
    const auto n = static_cast<double>(channels);
    means[i] = sum / n;
    // The epsilon of the op.
    if (plan.writeback == writeback_kind::normalised) means[i] /= std::sqrt(squares / n + 1e-12);
  }
  return means;
}

}  // namespace smelt
