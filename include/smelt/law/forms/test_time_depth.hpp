// What do more visits bring at test time? L(r) = L_inf + Z exp(-z (r-1)).
#pragma once

#include <array>
#include <cmath>
#include <smelt/law/form.hpp>
#include <string_view>

namespace smelt::law {

/// L(r) = L_inf + Z exp(-z (r-1)): L in nats a token after r visits. Fitted: ln L_inf, ln Z, z.
struct test_time_depth {
  static constexpr std::string_view name = "test-time-depth";
  static constexpr std::string_view equation = "L = L_inf + Z exp(-z (r-1))";
  static constexpr std::array inputs{input{"r", domain::at_least_one}};
  static constexpr std::array coefficients{coefficient{"L_inf", true, -8, 8}, coefficient{"Z", true},
                                           coefficient{"z", false, 0, 20}};
  static constexpr response fitted = response::logarithm;

  /// r - 1
  [[nodiscard]] static std::array<double, 1> prepare(const std::array<double, 1>& x) { return {x[0] - 1}; }

  template <class C, class X>
  [[nodiscard]] static C evaluate(const std::array<C, 3>& p, const std::array<X, 1>& x, std::array<C, 3>& gradient) {
    std::array<C, 2> share;
    const C value = log_sum_exp(std::array<C, 2>{p[0], p[1] - p[2] * x[0]}, share);
    gradient = {share[0], share[1], -(share[1] * x[0])};
    return value;
  }

  static constexpr std::array curved{triangle_at(0, 0), triangle_at(1, 1), triangle_at(2, 1), triangle_at(2, 2)};
  template <class C, class X>
  [[nodiscard]] static std::array<C, 4> curvature(const std::array<X, 1>& x, const std::array<C, 3>& g) {
    return {g[0], g[1], g[2], -(g[2] * x[0])};
  }

  /// L_inf as a part of the lowest loss, and z.
  static constexpr std::array start_levels{4, 4};
  [[nodiscard]] static std::array<double, 3> start(const data_summary<1>& data, const std::array<double, 2>& at) {
    const double least = std::exp(data.least_response);
    const double limit = least * (0.9 + 0.099 * at[0]);
    return {std::log(limit), std::log(std::exp(data.most_response) - limit), 0.05 * std::pow(40.0, at[1])};
  }
};

}  // namespace smelt::law
