// Is a model better on a task than its loss promises? Residuals against the curve of the baseline's scores.
#pragma once

#include <cstddef>
#include <smelt/core/error.hpp>
#include <smelt/law/fit.hpp>
#include <smelt/law/forms/score_sigmoid.hpp>
#include <span>
#include <string>
#include <vector>

namespace smelt::law {

/// Which scores are good.
enum class better { higher, lower };

/// Scores against the baseline's curve.
struct downstream_result {
  fit_result curve;               ///< y(l) of the baseline
  std::vector<double> residuals;  ///< score - y(loss), sign-flipped where lower is better: positive is better
  std::size_t wins = 0;           ///< residuals above 0
  double mean = 0;
};

namespace detail {

template <int Direction>
[[nodiscard]] downstream_result against_curve(std::span<const double> base_losses, std::span<const double> base_scores,
                                              std::span<const double> losses, std::span<const double> scores,
                                              better good, const fit_options& options) {
  using form = score_sigmoid<Direction>;
  const auto rows = [](std::span<const double> x) {
    std::vector<inputs_of<form>> all;
    for (const double v : x) all.push_back({v});
    return all;
  };
  const observations<form> data(rows(base_losses), std::vector<double>(base_scores.begin(), base_scores.end()));
  downstream_result r;
  r.curve = fit<form>(data, options);
  const coefficients_of<form> p = coefficients_from<form>(r.curve);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double above = scores[i] - predict<form>(p, {losses[i]});
    r.residuals.push_back(good == better::higher ? above : -above);
    r.wins += r.residuals.back() > 0 ? 1u : 0u;
    r.mean += r.residuals.back() / static_cast<double>(losses.size());
  }
  return r;
}

}  // namespace detail

/// Fits y(l) to the baseline's (loss, score) and compares others with it. Where higher scores are better the curve
/// falls with the loss (d = -1), else it rises. Least squares unless `options` says otherwise.
[[nodiscard]] inline downstream_result downstream_residuals(
    std::span<const double> base_losses, std::span<const double> base_scores, std::span<const double> losses,
    std::span<const double> scores, better good, const fit_options& options = {.loss = residual_loss::least_squares}) {
  if (losses.size() != scores.size()) {
    throw error(errc::mismatch, "as many scores as losses are needed, found " + std::to_string(scores.size()) +
                                    " and " + std::to_string(losses.size()));
  }
  return good == better::higher ? detail::against_curve<-1>(base_losses, base_scores, losses, scores, good, options)
                                : detail::against_curve<1>(base_losses, base_scores, losses, scores, good, options);
}

}  // namespace smelt::law
