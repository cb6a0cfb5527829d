// What score does a loss promise? y(l) = b + a / (1 + exp(-d alpha (l - tau))), d = +1 or -1 by the metric.
#pragma once

#include <array>
#include <cmath>
#include <smelt/law/form.hpp>
#include <string_view>

namespace smelt::law {

/// y(l) = b + a / (1 + exp(-d alpha (l - tau))): the score y of a model whose validation loss is l. Direction is d: -1
/// for a metric that rises as the loss falls, +1 for one that falls with it. Fitted: b, ln a, ln alpha, tau.
template <int Direction>
struct score_sigmoid {
  static_assert(Direction == 1 || Direction == -1, "Direction must be +1 or -1");
  static constexpr std::string_view name = Direction < 0 ? "sigmoid-falling" : "sigmoid-rising";
  static constexpr std::string_view equation =
      Direction < 0 ? "y = b + a / (1 + exp(alpha (l - tau)))" : "y = b + a / (1 + exp(-alpha (l - tau)))";
  static constexpr std::array inputs{input{"loss", domain::any, "nats a token"}};
  static constexpr std::array coefficients{coefficient{"b"}, coefficient{"a", true},
                                           coefficient{"alpha", true, -10, 10}, coefficient{"tau"}};
  static constexpr response fitted = response::plain;

  /// The loss, and the direction as a number: both directions are one loop over rows.
  [[nodiscard]] static std::array<double, 2> prepare(const std::array<double, 1>& x) {
    return {x[0], double(Direction)};
  }
  using general = score_sigmoid<-1>;
  static constexpr std::array<double, 0> fixed{};

  template <class C, class X>
  [[nodiscard]] static C evaluate(const std::array<C, 4>& p, const std::array<X, 2>& x, std::array<C, 4>& gradient) {
    using std::exp;
    const C rate = exp(p[2]);
    const C t = rate * (x[0] - p[3]) * x[1];
    const C part = 1.0 / (exp(-t) + 1.0);
    const C height = exp(p[1]) * part;
    const C by_t = height * (1.0 - part);
    gradient = {C(1.0), height, by_t * t, -(by_t * rate * x[1])};
    return p[0] + height;
  }

  /// How far the plateaus lie beyond the scores, the middle, the steepness.
  static constexpr std::array start_levels{2, 3, 3};
  [[nodiscard]] static std::array<double, 4> start(const data_summary<2>& data, const std::array<double, 3>& at) {
    const double range = data.most_response - data.least_response;
    const double beyond = 0.05 + 0.5 * at[0];
    const double width = data.most[0] - data.least[0];
    const double tau = data.least[0] + width * (0.1 + 0.8 * at[1]);
    return {data.least_response - beyond * range, std::log((1 + 2 * beyond) * range),
            std::log(2 * std::pow(8.0, at[2]) / (width > 0 ? width : 1)), tau};
  }
};

}  // namespace smelt::law
