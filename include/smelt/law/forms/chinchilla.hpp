// How does loss fall with parameters and tokens? L = E + A / N^alpha + B / D^beta (Hoffmann et al., 2022).
#pragma once

#include <array>
#include <cmath>
#include <smelt/law/form.hpp>
#include <smelt/law/forms/start_shares.hpp>
#include <string_view>

namespace smelt::law {

/// L(N, D) = E + A / N^alpha + B / D^beta, L in nats a token, N parameters, D tokens. Fitted: ln A, ln B, ln E, alpha,
/// beta.
struct chinchilla {
  static constexpr std::string_view name = "chinchilla";
  static constexpr std::string_view equation = "L = E + A / N^alpha + B / D^beta";
  static constexpr std::array inputs{input{"N", domain::positive, "parameters", 0},
                                     input{"D", domain::positive, "tokens", 1}};
  static constexpr std::array coefficients{coefficient{"A", true}, coefficient{"B", true},
                                           coefficient{"E", true, -8, 8}, coefficient{"alpha", false, 0, 4},
                                           coefficient{"beta", false, 0, 4}};
  static constexpr response fitted = response::logarithm;

  /// ln N, ln D
  [[nodiscard]] static std::array<double, 2> prepare(const std::array<double, 2>& x) {
    return {std::log(x[0]), std::log(x[1])};
  }

  template <class C, class X>
  [[nodiscard]] static C evaluate(const std::array<C, 5>& p, const std::array<X, 2>& x, std::array<C, 5>& gradient) {
    std::array<C, 3> share;
    const C value = log_sum_exp(std::array<C, 3>{p[0] - p[3] * x[0], p[1] - p[4] * x[1], p[2]}, share);
    gradient = {share[0], share[1], share[2], -(share[0] * x[0]), -(share[1] * x[1])};
    return value;
  }

  static constexpr std::array curved{triangle_at(0, 0), triangle_at(1, 1), triangle_at(2, 2), triangle_at(3, 0),
                                     triangle_at(3, 3), triangle_at(4, 1), triangle_at(4, 4)};
  template <class C, class X>
  [[nodiscard]] static std::array<C, 7> curvature(const std::array<X, 2>& x, const std::array<C, 5>& g) {
    return {g[0], g[1], g[2], g[3], -(g[3] * x[0]), g[4], -(g[4] * x[1])};
  }

  [[nodiscard]] static std::array<double, 5> rescaled(std::array<double, 5> p,
                                                      const std::array<double, 2>& log_factor) {
    p[0] += p[3] * log_factor[0];
    p[1] += p[4] * log_factor[1];
    return p;
  }

  /// E as a part of the lowest loss, the split of the rest at the data's centre, alpha, beta.
  static constexpr std::array start_levels{3, 3, 3, 3};
  [[nodiscard]] static std::array<double, 5> start(const data_summary<2>& data, const std::array<double, 4>& at) {
    const start_shares shares = split_loss(data.least_response, data.mean_response, at[0], at[1]);
    const double alpha = 0.1 + 0.8 * at[2];
    const double beta = 0.1 + 0.8 * at[3];
    return {shares.first + alpha * data.centre[0], shares.second + beta * data.centre[1], shares.constant, alpha, beta};
  }
};

}  // namespace smelt::law
