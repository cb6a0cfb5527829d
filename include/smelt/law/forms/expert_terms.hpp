// What do the laws of mixtures of experts share? Their three terms, whose exponents bend with the number of experts.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <smelt/law/form.hpp>
#include <smelt/law/forms/start_shares.hpp>

namespace smelt::law {

/// ln Ehat, where 1/Ehat = 1/(E - 1 + 1/(1/E_start - 1/E_max)) + 1/E_max (Clark et al., 2022): E_start at E = 1, E_max
/// for many experts. E is the routed experts divided by those a token uses.
template <class C, class X>
[[nodiscard]] C log_saturated_experts(const C& log_start, const C& log_max, const X& experts, C& by_log_start,
                                      C& by_log_max) {
  using std::exp, std::log;
  const C u = exp(-log_start);
  const C v = exp(-log_max);
  const C q = 1.0 / (u - v);
  const C sum = q + (experts - 1.0);
  const C h = 1.0 / sum + v;
  const C part = (q / sum) * (q / sum);  // dh/du
  by_log_start = part * u / h;
  by_log_max = (1.0 - part) * v / h;
  return -log(h);
}

/// L = A Ehat^delta N^(alpha + gamma ln Ehat) + B Ehat^omega D^(beta + zeta ln Ehat) + c. The eleven coefficients come
/// first in the forms that use them.
struct expert_terms {
  static constexpr std::size_t count = 11;
  static constexpr std::array<coefficient, count> coefficients{
      coefficient{"A", true},
      coefficient{"delta"},
      coefficient{"alpha", false, -4, 0},
      coefficient{"gamma", false, -1, 1},
      coefficient{"B", true},
      coefficient{"omega"},
      coefficient{"beta", false, -4, 0},
      coefficient{"zeta", false, -1, 1},
      coefficient{"c", true, -8, 8},
      coefficient{"E_start", true, 0, 3},
      coefficient{"E_max", true, 3.1, 12},
  };

  /// ln L; the gradient's first eleven parts, and the slope by ln N.
  template <class C, std::size_t N, class LogN, class X>
  [[nodiscard]] static C evaluate(const std::array<C, N>& p, const LogN& log_n, const X& experts, const X& log_d,
                                  std::array<C, N>& gradient, C& by_log_n) {
    C start_slope;
    C max_slope;
    const C log_e = log_saturated_experts(p[9], p[10], experts, start_slope, max_slope);
    const C n_exponent = p[2] + p[3] * log_e;
    const C d_exponent = p[6] + p[7] * log_e;
    std::array<C, 3> share;
    const C value = log_sum_exp(
        std::array<C, 3>{p[0] + p[1] * log_e + n_exponent * log_n, p[4] + p[5] * log_e + d_exponent * log_d, p[8]},
        share);
    gradient[0] = share[0];
    gradient[1] = share[0] * log_e;
    gradient[2] = share[0] * log_n;
    gradient[3] = gradient[1] * log_n;
    gradient[4] = share[1];
    gradient[5] = share[1] * log_e;
    gradient[6] = share[1] * log_d;
    gradient[7] = gradient[5] * log_d;
    gradient[8] = share[2];
    const C by_log_e = share[0] * (p[1] + p[3] * log_n) + share[1] * (p[5] + p[7] * log_d);
    gradient[9] = by_log_e * start_slope;
    gradient[10] = by_log_e * max_slope;
    by_log_n = share[0] * n_exponent;
    return value;
  }

  template <std::size_t N>
  static void rescale(std::array<double, N>& p, double log_n_factor, double log_d_factor) {
    p[0] -= p[2] * log_n_factor;
    p[1] -= p[3] * log_n_factor;
    p[4] -= p[6] * log_d_factor;
    p[5] -= p[7] * log_d_factor;
  }

  /// The eleven coefficients to start from: c as a part of the lowest loss, the split of the rest, alpha, beta, and
  /// exponents that do not bend.
  template <std::size_t N>
  static void start(std::array<double, N>& p, double log_least, double log_mean, double log_n, double log_d,
                    const std::array<double, 4>& at) {
    const start_shares shares = split_loss(log_least, log_mean, at[0], at[1]);
    const double alpha = -(0.1 + 0.3 * at[2]);
    const double beta = -(0.1 + 0.5 * at[3]);
    p[0] = shares.first - alpha * log_n;
    p[1] = -0.2;
    p[2] = alpha;
    p[3] = 0.01;
    p[4] = shares.second - beta * log_d;
    p[5] = 0.1;
    p[6] = beta;
    p[7] = 0;
    p[8] = shares.constant;
    p[9] = 0.3;
    p[10] = 4.5;
  }
};

}  // namespace smelt::law
