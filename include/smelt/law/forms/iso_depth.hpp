// What is a recurrence worth in parameters? L = E + A (N_once + r^phi N_rec)^-alpha + B D^-beta (the iso-depth law).
#pragma once

#include <array>
#include <cmath>
#include <smelt/law/form.hpp>
#include <smelt/law/forms/start_shares.hpp>
#include <string_view>

namespace smelt::law {

/// L(N_once, N_rec, r, D) = E + A (N_once + r^phi N_rec)^-alpha + B D^-beta: N_once parameters used once a token, N_rec
/// those of the block that is used r times, D tokens. phi = 0: a recurrence adds nothing; 1: as much as parameters of
/// its own. Fitted: ln A, ln B, ln E, alpha, beta, phi.
struct iso_depth {
  static constexpr std::string_view name = "iso-depth";
  static constexpr std::string_view equation = "L = E + A (N_once + r^phi N_rec)^-alpha + B D^-beta";
  static constexpr std::array inputs{input{"N_once", domain::positive, "parameters", 0},
                                     input{"N_rec", domain::not_negative, "parameters", 0},
                                     input{"r", domain::at_least_one}, input{"D", domain::positive, "tokens", 1}};
  static constexpr std::array coefficients{coefficient{"A", true},           coefficient{"B", true},
                                           coefficient{"E", true, -8, 8},    coefficient{"alpha", false, 0, 4},
                                           coefficient{"beta", false, 0, 4}, coefficient{"phi", false, -1, 3}};
  static constexpr response fitted = response::logarithm;

  /// ln N_once, N_rec / N_once, ln r, ln D
  [[nodiscard]] static std::array<double, 4> prepare(const std::array<double, 4>& x) {
    return {std::log(x[0]), x[1] / x[0], std::log(x[2]), std::log(x[3])};
  }

  template <class C, class X>
  [[nodiscard]] static C evaluate(const std::array<C, 6>& p, const std::array<X, 4>& x, std::array<C, 6>& gradient) {
    using std::exp, std::log;
    const C recurrent = exp(p[5] * x[2]) * x[1];
    const C ratio = recurrent + 1.0;
    const C log_n = log(ratio) + x[0];
    std::array<C, 3> share;
    const C value = log_sum_exp(std::array<C, 3>{p[0] - p[3] * log_n, p[1] - p[4] * x[3], p[2]}, share);
    gradient = {share[0],           share[1],
                share[2],           -(share[0] * log_n),
                -(share[1] * x[3]), -(share[0] * p[3] * (recurrent / ratio) * x[2])};
    return value;
  }

  [[nodiscard]] static std::array<double, 6> rescaled(std::array<double, 6> p,
                                                      const std::array<double, 2>& log_factor) {
    p[0] += p[3] * log_factor[0];
    p[1] += p[4] * log_factor[1];
    return p;
  }

  /// E as a part of the lowest loss, the split of the rest at the data's centre, alpha, beta, phi.
  static constexpr std::array start_levels{3, 3, 3, 3, 2};
  [[nodiscard]] static std::array<double, 6> start(const data_summary<4>& data, const std::array<double, 5>& at) {
    const start_shares shares = split_loss(data.least_response, data.mean_response, at[0], at[1]);
    const double alpha = 0.1 + 0.7 * at[2];
    const double beta = 0.1 + 0.7 * at[3];
    const double phi = 0.2 + 0.6 * at[4];
    const double log_n = data.centre[0] + std::log1p(data.centre[1] * std::exp(phi * data.centre[2]));
    return {shares.first + alpha * log_n, shares.second + beta * data.centre[3], shares.constant, alpha, beta, phi};
  }
};

}  // namespace smelt::law
