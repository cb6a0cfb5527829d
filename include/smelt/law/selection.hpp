// How many visits, how many experts, how large a model? The least loss under a budget of training compute and a budget
// of weight memory, where a step that gains less than the fit's error is not taken.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <smelt/core/error.hpp>
#include <smelt/law/forms/looped_moe.hpp>
#include <smelt/law/ladder.hpp>
#include <smelt/law/observations.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace smelt::law {

/// What must be kept to.
struct selection_limits {
  double flops = 0;                 ///< of training: 6 N_unroll(R) D
  double memory_bytes = unbounded;  ///< of all weights outside of embeddings
  double bits = 16;                 ///< a weight
  double least_gain = 0;            ///< eps, nats a token: the fit's root mean square error
};

/// Why a candidate was not chosen.
enum class rejection {
  none,           ///< it is the choice
  memory,         ///< its weights do not fit
  another_visit,  ///< one more visit pays
  least_gain,     ///< a visit on the way to it gains too little
  loss,           ///< the best of its model and experts, but not of all
};

/// One model that could be trained.
struct candidate {
  std::string name;
  double n_active = 0;
  double n_loop = 0;
  double n_total = 0;
  double experts = 1;
  std::int64_t visits = 1;
  double tokens = 0;           ///< what the compute pays for
  double loss = 0;             ///< nats a token, as the law has it
  double memory_bytes = 0;     ///< bits/8 N_total: embeddings are not in it
  double inference_flops = 0;  ///< a token: 2 N_unroll(R)
  rejection why = rejection::none;
  std::string rejected;  ///< why it was not chosen, in words; empty for the choice
};

/// The choice, and all that was looked at.
struct selection {
  candidate choice;
  std::vector<candidate> candidates;
};

/// N_act + (R-1) N_loop: the parameters that a token passes.
[[nodiscard]] inline double unrolled_parameters(double n_active, double n_loop, double visits) noexcept {
  return n_active + (visits - 1) * n_loop;
}

/// A looped mixtures' law and the unit (1e9: billions) that its coefficients take parameters and tokens in.
template <class Map>
struct looped_law {
  coefficients_of<looped_moe<Map>> p;
  double unit = 1;

  /// L in nats a token, for parameters and tokens.
  [[nodiscard]] double operator()(const rung_counts& n, double experts, double visits, double tokens) const {
    return predict<looped_moe<Map>>(
        p, {n.n_active / unit, n.n_loop / unit, n.n_total / unit, experts, visits, tokens / unit});
  }
};

/// How far along a row of losses to go: to the last place with the least loss among those reached by steps that each
/// gain at least `least_gain`. 0 when the first step does not.
[[nodiscard]] inline std::size_t steps_worth_taking(std::span<const double> losses, double least_gain) {
  std::size_t at = 0;
  while (at + 1 < losses.size() && losses[at + 1] < losses[at] && losses[at] - losses[at + 1] >= least_gain) ++at;
  return at;
}

namespace detail {

/// "4.55GB": bytes in powers of 1,000.
[[nodiscard]] inline std::string decimal_bytes(double bytes, int digits = 3) {
  constexpr std::string_view units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(units); ++unit) bytes /= 1'000;
  return shown(bytes, digits) + std::string(units[unit]);
}

/// What does not fit beside what there is, in digits enough to differ.
[[nodiscard]] inline std::pair<std::string, std::string> bytes_apart(double needed, double found) {
  int digits = 3;
  while (digits < 15 && decimal_bytes(needed, digits) == decimal_bytes(found, digits)) ++digits;
  return {decimal_bytes(needed, digits), decimal_bytes(found, digits)};
}

inline void check_limits(const selection_limits& limits) {
  if (!(limits.flops > 0 && std::isfinite(limits.flops)))
    throw error(errc::invalid_argument, "training FLOPs must be above 0, found " + shown(limits.flops));
  if (!(limits.memory_bytes > 0))
    throw error(errc::invalid_argument, "weight memory must be above 0 bytes, found " + shown(limits.memory_bytes));
  if (!(limits.bits > 0 && limits.bits <= 64))
    throw error(errc::invalid_argument, "bits a weight must be above 0 and at most 64, found " + shown(limits.bits));
  if (!(limits.least_gain >= 0))
    throw error(errc::invalid_argument, "the least gain must be at least 0, found " + shown(limits.least_gain));
}

}  // namespace detail

/// The model with E experts and R visits that the compute pays for.
template <class Law>
[[nodiscard]] candidate candidate_at(const Law& law, const rung& model, double experts, std::int64_t visits,
                                     const selection_limits& limits) {
  const rung_counts n = counts_of(model, experts);
  const double unrolled = unrolled_parameters(n.n_active, n.n_loop, static_cast<double>(visits));
  candidate c;
  c.name = model.name;
  c.n_active = n.n_active;
  c.n_loop = n.n_loop;
  c.n_total = n.n_total;
  c.experts = experts;
  c.visits = visits;
  c.tokens = limits.flops / (6 * unrolled);
  c.loss = law(n, experts, static_cast<double>(visits), c.tokens);
  c.memory_bytes = limits.bits / 8 * n.n_total;
  c.inference_flops = 2 * unrolled;
  return c;
}

/// R*: visits up to `most` of one model with E experts. Each step must gain at least eps.
template <class Law>
[[nodiscard]] std::int64_t best_visits(const Law& law, const rung& model, double experts, std::int64_t most,
                                       const selection_limits& limits) {
  detail::check_limits(limits);
  if (most < 1)
    throw error(errc::invalid_argument, "the most visits must be at least 1, found " + std::to_string(most));
  std::vector<double> losses;
  for (std::int64_t r = 1; r <= most; ++r) losses.push_back(candidate_at(law, model, experts, r, limits).loss);
  return static_cast<std::int64_t>(steps_worth_taking(losses, limits.least_gain)) + 1;
}

/// E*: of the given numbers of experts, ascending, those whose weights fit in memory, for R visits. Each step must gain
/// at least eps. Throws invalid_argument when not even the first fits.
template <class Law>
[[nodiscard]] double best_experts(const Law& law, const rung& model, std::int64_t visits,
                                  std::span<const double> experts, const selection_limits& limits) {
  detail::check_limits(limits);
  std::vector<double> losses;
  for (const double e : experts) {
    const candidate c = candidate_at(law, model, e, visits, limits);
    if (c.memory_bytes > limits.memory_bytes) break;
    losses.push_back(c.loss);
  }
  if (losses.empty()) {
    throw error(errc::invalid_argument,
                "no number of experts of " + model.name + " fits in " + detail::decimal_bytes(limits.memory_bytes));
  }
  return experts[steps_worth_taking(losses, limits.least_gain)];
}

/// The joint choice of model, experts and visits: for each model and number of experts that fits in memory R* by the
/// rule of best_visits, then the least loss. Ties go to the smaller model. Throws invalid_argument when nothing fits,
/// and when the FLOPs of the choice are less than those of one token.
template <class Law>
[[nodiscard]] selection select(const Law& law, std::span<const rung> ladder, std::span<const double> experts,
                               std::int64_t most_visits, const selection_limits& limits) {
  detail::check_limits(limits);
  if (most_visits < 1)
    throw error(errc::invalid_argument, "the most visits must be at least 1, found " + std::to_string(most_visits));
  selection s;
  std::size_t best = 0;
  bool any = false;
  double lightest = unbounded;
  for (const rung& model : ladder) {
    for (const double e : experts) {
      const std::size_t first = s.candidates.size();
      std::vector<double> losses;
      for (std::int64_t r = 1; r <= most_visits; ++r) {
        s.candidates.push_back(candidate_at(law, model, e, r, limits));
        losses.push_back(s.candidates.back().loss);
      }
      lightest = (std::min)(lightest, s.candidates[first].memory_bytes);
      if (s.candidates[first].memory_bytes > limits.memory_bytes) {
        for (std::size_t i = first; i < s.candidates.size(); ++i) {
          const auto [needed, found] = detail::bytes_apart(s.candidates[i].memory_bytes, limits.memory_bytes);
          s.candidates[i].why = rejection::memory;
          s.candidates[i].rejected = "weights take " + needed + " of " + found;
        }
        continue;
      }
      const std::size_t stop = steps_worth_taking(losses, limits.least_gain);
      for (std::size_t i = 0; i < losses.size(); ++i) {
        candidate& c = s.candidates[first + i];
        if (i < stop) {
          c.why = rejection::another_visit;
          c.rejected = "one more visit gains " + detail::shown(losses[i] - losses[i + 1], 3) + " nats";
        } else if (i > stop) {
          const double gain = losses[stop] - losses[stop + 1];
          c.why = rejection::least_gain;
          c.rejected = "visit " + std::to_string(stop + 2) +
                       (gain < 0 ? " costs " + detail::shown(-gain, 3) + " nats"
                                 : " gains " + detail::shown(gain, 3) + " nats of the " +
                                       detail::shown(limits.least_gain, 3) + " that it must");
        }
      }
      if (!any || s.candidates[first + stop].loss < s.candidates[best].loss) best = first + stop;
      any = true;
    }
  }
  if (!any) {
    const auto [needed, found] = detail::bytes_apart(lightest, limits.memory_bytes);
    throw error(errc::invalid_argument, "no model of the ladder fits in " + found + " at " +
                                            detail::shown(limits.bits) + " bits a weight; the least takes " + needed);
  }
  s.choice = s.candidates[best];
  if (s.choice.tokens < 1) {
    throw error(errc::invalid_argument, "training FLOPs must be at least those of 1 token of " + s.choice.name + ", " +
                                            detail::shown(limits.flops / s.choice.tokens, 3) + ", found " +
                                            detail::shown(limits.flops, 3));
  }
  for (std::size_t i = 0; i < s.candidates.size(); ++i) {
    candidate& c = s.candidates[i];
    if (i == best || c.why != rejection::none) continue;
    c.why = rejection::loss;
    c.rejected = detail::shown(c.loss - s.choice.loss, 3) + " nats above the choice";
  }
  return s;
}

}  // namespace smelt::law
