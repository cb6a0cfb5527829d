// Which experts does a token visit, with which weights, and what do the router's own losses say about it?
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>
#include <vector>

namespace smelt::reference_ops {

/// Added to sums of scores that are divided by: sigmoid scores can all underflow to 0, and 0 / 0 must stay 0. Sums of
/// softmax scores are at least 1 / experts and do not feel it.
inline constexpr double least_score_sum = 1e-20;

namespace detail {

inline void check_router(const char* op, const router_shape& s) {
  check_at_least(op, "experts", s.experts, 1);
  check_at_least(op, "active", s.active, 1);
  if (s.active > s.experts) {
    throw error(errc::invalid_argument, std::string(op) + ": active is " + std::to_string(s.active) +
                                            ", needs at most the " + std::to_string(s.experts) + " experts");
  }
}

template <class Scalar>
void check_route(const router_shape& s, matrix_view<const Scalar> logits, std::span<const Scalar> selection_bias,
                 matrix_view<const Scalar> scores, std::span<const std::int32_t> ids, matrix_view<const Scalar> weights,
                 std::span<const Scalar> logsumexp) {
  const std::int64_t tokens = logits.rows;
  check_router("route", s);
  check_shape("route", "logits", logits, tokens, s.experts);
  check_optional_size("route", "selection_bias", selection_bias, s.experts);
  check_shape("route", "scores", scores, tokens, s.experts);
  check_size("route", "ids", ids, tokens * s.active);
  check_shape("route", "weights", weights, tokens, s.active);
  check_size("route", "logsumexp", logsumexp, tokens);
}

template <class Scalar>
void check_route_losses(const router_shape& s, matrix_view<const Scalar> scores, std::span<const std::int32_t> ids,
                        std::span<const Scalar> logsumexp, std::span<const std::uint8_t> mask,
                        std::span<const Scalar> load) {
  const std::int64_t tokens = scores.rows;
  check_router("route_losses", s);
  check_shape("route_losses", "scores", scores, tokens, s.experts);
  check_size("route_losses", "ids", ids, tokens * s.active);
  check_ids("route_losses", "ids", ids, 0, s.experts);
  check_size("route_losses", "logsumexp", logsumexp, tokens);
  check_optional_size("route_losses", "mask", mask, tokens);
  check_size("route_losses", "load", load, s.experts);
}

template <class Scalar>
void check_route_backward(const router_shape& s, matrix_view<const Scalar> scores, std::span<const std::int32_t> ids,
                          matrix_view<const Scalar> weights, std::span<const Scalar> logsumexp,
                          std::span<const Scalar> load, std::span<const std::uint8_t> mask,
                          matrix_view<const Scalar> dweights, matrix_view<const Scalar> dlogits) {
  const std::int64_t tokens = scores.rows;
  check_router("route_backward", s);
  check_shape("route_backward", "scores", scores, tokens, s.experts);
  check_size("route_backward", "ids", ids, tokens * s.active);
  check_ids("route_backward", "ids", ids, 0, s.experts);
  check_shape("route_backward", "weights", weights, tokens, s.active);
  check_size("route_backward", "logsumexp", logsumexp, tokens);
  check_size("route_backward", "load", load, s.experts);
  check_optional_size("route_backward", "mask", mask, tokens);
  check_shape("route_backward", "dweights", dweights, tokens, s.active);
  check_shape("route_backward", "dlogits", dlogits, tokens, s.experts);
}

[[nodiscard]] inline bool counts(std::span<const std::uint8_t> mask, std::int64_t token) noexcept {
  return mask.empty() || mask[token] != 0;
}

[[nodiscard]] inline std::int64_t counted(std::span<const std::uint8_t> mask, std::int64_t tokens) noexcept {
  return mask.empty() ? tokens : tokens - std::count(mask.begin(), mask.end(), std::uint8_t{0});
}

// The top ids.size() of values, in descending order, ties to the lower index. A NaN ranks below every number, so the
// ids are valid and distinct whatever the values are.
template <std::floating_point Scalar, class ValueOf>
void select_top(std::int64_t count, ValueOf value_of, std::span<std::int32_t> ids, std::span<Scalar> best) {
  const auto k = static_cast<std::int64_t>(ids.size());
  std::int64_t kept = 0;
  for (std::int64_t e = 0; e < count; ++e) {
    Scalar value = value_of(e);
    if (std::isnan(value)) value = -std::numeric_limits<Scalar>::infinity();
    if (kept == k && !(value > best[k - 1])) continue;
    std::int64_t at = kept < k ? kept++ : k - 1;
    for (; at > 0 && value > best[at - 1]; --at) {
      best[at] = best[at - 1];
      ids[at] = ids[at - 1];
    }
    best[at] = value;
    ids[at] = static_cast<std::int32_t>(e);
  }
}

}  // namespace detail

/// scores[T,E] (softmax over all experts, or sigmoid) and logsumexp[T] of logits[T,E]; ids[T*k] in descending order of
/// score + selection_bias[E] (empty: none), ties to the lower index; weights[T,k] are the selected scores, divided by
/// their sum when the shape renormalises. Non-finite logits give non-finite scores, and ids that are still valid.
template <std::floating_point Scalar, ShapeOf<router_shape> Shape>
void route(Shape shape, matrix_view<const Scalar> logits, std::span<const Scalar> selection_bias,
           matrix_view<Scalar> scores, std::span<std::int32_t> ids, matrix_view<Scalar> weights,
           std::span<Scalar> logsumexp) {
  const router_shape s = shape;
  const std::int64_t tokens = logits.rows;
  const std::int64_t experts = s.experts;
  const std::int64_t active = s.active;
  detail::check_route<Scalar>(s, logits, selection_bias, scores, ids, weights, logsumexp);
  std::vector<Scalar> best(static_cast<std::size_t>(active));
  for (std::int64_t t = 0; t < tokens; ++t) {
    Scalar greatest = logits(t, 0);
    for (std::int64_t e = 1; e < experts; ++e) greatest = (std::max)(greatest, logits(t, e));
    Scalar sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(logits(t, e) - greatest);
    logsumexp[t] = greatest + std::log(sum);
    for (std::int64_t e = 0; e < experts; ++e) {
      scores(t, e) = s.score == score_function::softmax ? std::exp(logits(t, e) - greatest) / sum
                                                        : Scalar{1} / (Scalar{1} + std::exp(-logits(t, e)));
    }
    const std::span<std::int32_t> chosen = ids.subspan(t * active, active);
    detail::select_top<Scalar>(
        experts,
        [&](std::int64_t e) { return scores(t, e) + (selection_bias.empty() ? Scalar{0} : selection_bias[e]); }, chosen,
        best);
    Scalar total = static_cast<Scalar>(least_score_sum);
    for (std::int64_t a = 0; a < active; ++a) total += scores(t, chosen[a]);
    for (std::int64_t a = 0; a < active; ++a) {
      weights(t, a) = s.renormalise ? scores(t, chosen[a]) / total : scores(t, chosen[a]);
    }
  }
}

/// The router's losses over the tokens whose mask is not 0 (an empty mask is all of them), and load[E], the share of
/// selections, which sums to 1. With balance = E sum_e load_e P_e and P_e the mean score (sigmoid scores divided by
/// their sum over experts), uniform routing gives 1 and collapse onto k experts E / k. No counted token: all zero.
template <std::floating_point Scalar, ShapeOf<router_shape> Shape>
[[nodiscard]] router_losses route_losses(Shape shape, matrix_view<const Scalar> scores,
                                         std::span<const std::int32_t> ids, std::span<const Scalar> logsumexp,
                                         std::span<const std::uint8_t> mask, std::span<Scalar> load) {
  const router_shape s = shape;
  const std::int64_t tokens = scores.rows;
  detail::check_route_losses<Scalar>(s, scores, ids, logsumexp, mask, load);
  std::fill(load.begin(), load.end(), Scalar{0});
  const std::int64_t real = detail::counted(mask, tokens);
  if (real == 0) return {};
  std::vector<std::int64_t> selections(static_cast<std::size_t>(s.experts));
  std::vector<double> probability(static_cast<std::size_t>(s.experts));
  double squares = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!detail::counts(mask, t)) continue;
    for (std::int64_t a = 0; a < s.active; ++a) ++selections[ids[t * s.active + a]];
    double total = 1;
    if (s.score == score_function::sigmoid) {
      total = least_score_sum;
      for (std::int64_t e = 0; e < s.experts; ++e) total += double(scores(t, e));
    }
    for (std::int64_t e = 0; e < s.experts; ++e) probability[e] += double(scores(t, e)) / total;
    squares += double(logsumexp[t]) * double(logsumexp[t]);
  }
  double balance = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const double share = double(selections[e]) / double(real * s.active);
    load[e] = static_cast<Scalar>(share);
    balance += share * (probability[e] / double(real));
  }
  return {.balance = balance * double(s.experts), .z = squares / double(real)};
}

/// dlogits[T,E] (overwritten) from dweights[T,k] and, on the counted tokens, from scale.balance * balance and
/// scale.z * z. The load is a count and has no gradient.
template <std::floating_point Scalar, ShapeOf<router_shape> Shape>
void route_backward(Shape shape, matrix_view<const Scalar> scores, std::span<const std::int32_t> ids,
                    matrix_view<const Scalar> weights, std::span<const Scalar> logsumexp, std::span<const Scalar> load,
                    std::span<const std::uint8_t> mask, matrix_view<const Scalar> dweights, router_loss_scale scale,
                    matrix_view<Scalar> dlogits) {
  const router_shape s = shape;
  const std::int64_t tokens = scores.rows;
  const std::int64_t experts = s.experts;
  const std::int64_t active = s.active;
  detail::check_route_backward<Scalar>(s, scores, ids, weights, logsumexp, load, mask, dweights, dlogits);
  const auto real = static_cast<Scalar>((std::max)(detail::counted(mask, tokens), std::int64_t{1}));
  const auto balance = static_cast<Scalar>(scale.balance * double(experts)) / real;
  const auto z = static_cast<Scalar>(2 * scale.z) / real;
  std::vector<Scalar> dscore(static_cast<std::size_t>(experts));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool real_token = detail::counts(mask, t);
    Scalar total = static_cast<Scalar>(least_score_sum);  // of all scores
    for (std::int64_t e = 0; e < experts; ++e) total += scores(t, e);

    // Balance, through the mean probability.
    std::fill(dscore.begin(), dscore.end(), Scalar{0});
    if (real_token) {
      Scalar mean = 0;
      for (std::int64_t e = 0; e < experts; ++e) mean += load[e] * scores(t, e) / total;
      for (std::int64_t e = 0; e < experts; ++e) {
        dscore[e] = s.score == score_function::softmax ? balance * load[e] : balance * (load[e] - mean) / total;
      }
    }

    // The weights, through their renormalisation.
    Scalar chosen = static_cast<Scalar>(least_score_sum);  // sum of the selected scores
    Scalar pull = 0;
    for (std::int64_t a = 0; a < active; ++a) {
      chosen += scores(t, ids[t * active + a]);
      pull += dweights(t, a) * weights(t, a);
    }
    for (std::int64_t a = 0; a < active; ++a) {
      dscore[ids[t * active + a]] += s.renormalise ? (dweights(t, a) - pull) / chosen : dweights(t, a);
    }

    // The scores, through softmax or sigmoid; and the z-loss, whose gradient needs the softmax of the logits. Sigmoid
    // scores give it through their odds s / (1 - s) = exp(logit), kept finite where s rounds to 1.
    Scalar projection = 0;
    Scalar odds_sum = 0;
    const auto odds = [&](std::int64_t e) {
      const Scalar rest = Scalar{1} - scores(t, e);
      return scores(t, e) / (std::max)(rest, std::numeric_limits<Scalar>::epsilon() / 4);
    };
    if (s.score == score_function::softmax) {
      for (std::int64_t e = 0; e < experts; ++e) projection += dscore[e] * scores(t, e);
    } else {
      odds_sum = (std::numeric_limits<Scalar>::min)();
      for (std::int64_t e = 0; e < experts; ++e) odds_sum += odds(e);
    }
    const Scalar z_pull = real_token ? z * logsumexp[t] : Scalar{0};
    for (std::int64_t e = 0; e < experts; ++e) {
      const Scalar p = scores(t, e);
      dlogits(t, e) = s.score == score_function::softmax
                          ? p * (dscore[e] - projection + z_pull)
                          : p * (Scalar{1} - p) * dscore[e] + z_pull * (odds(e) / odds_sum);
    }
  }
}

}  // namespace smelt::reference_ops
