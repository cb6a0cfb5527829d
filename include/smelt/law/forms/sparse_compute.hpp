// How does loss fall with compute a token, sparsity and tokens? L = E + A (1-S)^b / F^a + K / D^c (the SMELT law).
#pragma once

#include <array>
#include <cmath>
#include <smelt/law/form.hpp>
#include <smelt/law/forms/start_shares.hpp>
#include <string_view>

namespace smelt::law {

/// L(F, S, D) = E + A (1-S)^b / F^a + K / D^c: L in nats a token, F training FLOPs a token, S the part of the
/// parameters that a token does not use, D tokens. Fitted: ln A, ln K, ln E, a, b, c.
struct sparse_compute {
  static constexpr std::string_view name = "smelt";
  static constexpr std::string_view equation = "L = E + A (1-S)^b / F^a + K / D^c";
  static constexpr std::array inputs{input{"F", domain::positive, "FLOPs a token", 0}, input{"S", domain::zero_to_one},
                                     input{"D", domain::positive, "tokens", 1}};
  static constexpr std::array coefficients{coefficient{"A", true},         coefficient{"K", true},
                                           coefficient{"E", true, -8, 8},  coefficient{"a", false, 0, 4},
                                           coefficient{"b", false, -2, 4}, coefficient{"c", false, 0, 4}};
  static constexpr response fitted = response::logarithm;

  /// ln F, ln(1-S), ln D
  [[nodiscard]] static std::array<double, 3> prepare(const std::array<double, 3>& x) {
    return {std::log(x[0]), std::log1p(-x[1]), std::log(x[2])};
  }

  template <class C, class X>
  [[nodiscard]] static C evaluate(const std::array<C, 6>& p, const std::array<X, 3>& x, std::array<C, 6>& gradient) {
    std::array<C, 3> share;
    const C value = log_sum_exp(std::array<C, 3>{p[0] - p[3] * x[0] + p[4] * x[1], p[1] - p[5] * x[2], p[2]}, share);
    gradient = {share[0], share[1], share[2], -(share[0] * x[0]), share[0] * x[1], -(share[1] * x[2])};
    return value;
  }

  static constexpr std::array curved{triangle_at(0, 0), triangle_at(1, 1), triangle_at(2, 2), triangle_at(3, 0),
                                     triangle_at(3, 3), triangle_at(4, 0), triangle_at(4, 3), triangle_at(4, 4),
                                     triangle_at(5, 1), triangle_at(5, 5)};
  template <class C, class X>
  [[nodiscard]] static std::array<C, 10> curvature(const std::array<X, 3>& x, const std::array<C, 6>& g) {
    return {g[0], g[1], g[2], g[3], -(g[3] * x[0]), g[4], g[3] * x[1], g[4] * x[1], g[5], -(g[5] * x[2])};
  }

  [[nodiscard]] static std::array<double, 6> rescaled(std::array<double, 6> p,
                                                      const std::array<double, 2>& log_factor) {
    p[0] += p[3] * log_factor[0];
    p[1] += p[5] * log_factor[1];
    return p;
  }

  /// E as a part of the lowest loss, the split of the rest at the data's centre, a, b, c.
  static constexpr std::array start_levels{3, 3, 3, 2, 3};
  [[nodiscard]] static std::array<double, 6> start(const data_summary<3>& data, const std::array<double, 5>& at) {
    const start_shares shares = split_loss(data.least_response, data.mean_response, at[0], at[1]);
    const double a = 0.1 + 0.8 * at[2];
    const double b = 0.3 * at[3];
    const double c = 0.1 + 0.8 * at[4];
    return {shares.first + a * data.centre[0] - b * data.centre[1],
            shares.second + c * data.centre[2],
            shares.constant,
            a,
            b,
            c};
  }
};

}  // namespace smelt::law
