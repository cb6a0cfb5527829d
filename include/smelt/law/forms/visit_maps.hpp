// How many parameters is a loop worth? Maps from (N_act, N_loop, R, m) to N_eff / N_act, each with its gradient.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <smelt/law/form.hpp>
#include <string_view>

namespace smelt::law {

/// What the maps are told of a row: rho = N_loop / N_act, R visits, ln R, ln m with m = N_act / N_total.
template <class X>
struct looped_row {
  X rho;
  X visits;
  X log_visits;
  X log_m;
};

template <bool Sparsity>
struct scaled_linear_map;

/// N_eff = N_act + (R-1) N_loop: every visit counts in full.
struct linear_map {
  static constexpr std::string_view name = "linear";
  static constexpr std::string_view equation = "N_eff = N_act + (R-1) N_loop";
  static constexpr std::array<coefficient, 0> coefficients{};
  static constexpr std::array<int, 0> start_levels{};
  using general = scaled_linear_map<true>;
  static constexpr std::array fixed{0.0, 0.0};  // k = 1

  template <class C, class X>
  [[nodiscard]] static C ratio(const C*, const looped_row<X>& x, C*) {
    return C((x.visits - 1.0) * x.rho + 1.0);
  }
  static void start(double*, const double*) {}
};

/// N_eff = N_act + k m^-theta N_loop; theta = 0 without the sparsity exponent.
template <bool Sparsity>
struct scaled_linear_map {
  static constexpr std::string_view name = Sparsity ? "linear-sparsity" : "linear-scaled";
  static constexpr std::string_view equation =
      Sparsity ? "N_eff = N_act + k m^-theta (R-1) N_loop" : "N_eff = N_act + k (R-1) N_loop";
  static constexpr auto coefficients = [] {
    if constexpr (Sparsity) {
      return std::array{coefficient{"k", true, -12, 6}, coefficient{"theta", false, -2, 3}};
    } else {
      return std::array{coefficient{"k", true, -12, 6}};
    }
  }();
  static constexpr std::array start_levels{2};
  using general = scaled_linear_map<true>;  // theta = 0
  static constexpr std::array fixed{0.0};

  template <class C, class X>
  [[nodiscard]] static C ratio(const C* p, const looped_row<X>& x, C* gradient) {
    using std::exp;
    C log_scale = p[0];
    if constexpr (Sparsity) log_scale = log_scale - p[1] * x.log_m;
    const C added = exp(log_scale) * ((x.visits - 1.0) * x.rho);
    gradient[0] = added;
    if constexpr (Sparsity) gradient[1] = -(added * x.log_m);
    return added + 1.0;
  }
  static void start(double* p, const double* at) {
    p[0] = -2.5 + 2 * at[0];
    if constexpr (Sparsity) p[1] = 0.2;
  }
};

/// N_eff = N_act + m^-theta (R^phi - 1) N_loop; theta = 0 without the sparsity exponent.
template <bool Sparsity>
struct power_map {
  static constexpr std::string_view name = Sparsity ? "power-sparsity" : "power";
  static constexpr std::string_view equation =
      Sparsity ? "N_eff = N_act + m^-theta (R^phi - 1) N_loop" : "N_eff = N_act + (R^phi - 1) N_loop";
  static constexpr auto coefficients = [] {
    if constexpr (Sparsity) {
      return std::array{coefficient{"phi", false, -1, 3}, coefficient{"theta", false, -2, 3}};
    } else {
      return std::array{coefficient{"phi", false, -1, 3}};
    }
  }();
  static constexpr std::array start_levels{2};
  using general = power_map<true>;  // theta = 0
  static constexpr std::array fixed{0.0};

  template <class C, class X>
  [[nodiscard]] static C ratio(const C* p, const looped_row<X>& x, C* gradient) {
    using std::exp, std::expm1;
    const C exponent = p[0] * x.log_visits;
    const C gain = expm1(exponent);
    if constexpr (Sparsity) {
      const C scale = exp(-(p[1] * x.log_m)) * x.rho;
      gradient[0] = scale * (gain + 1.0) * x.log_visits;
      gradient[1] = -(scale * gain * x.log_m);
      return scale * gain + 1.0;
    } else {
      gradient[0] = (gain + 1.0) * (x.log_visits * x.rho);
      return gain * x.rho + 1.0;
    }
  }
  static void start(double* p, const double* at) {
    p[0] = 0.3 + 0.4 * at[0];
    if constexpr (Sparsity) p[1] = 0.2;
  }
};

/// N_eff = N_act + k1 m^-theta N_loop (1 - exp(-(R-1) / (k2 m^-theta))): visits add less and less, up to a bound;
/// theta = 0 without the sparsity exponent.
template <bool Sparsity>
struct bounded_map {
  static constexpr std::string_view name = Sparsity ? "bounded-sparsity" : "bounded";
  static constexpr std::string_view equation =
      Sparsity ? "N_eff = N_act + k1 m^-theta N_loop (1 - exp(-(R-1) / (k2 m^-theta)))"
               : "N_eff = N_act + k1 N_loop (1 - exp(-(R-1) / k2))";
  static constexpr auto coefficients = [] {
    constexpr coefficient k1{"k1", true, -8, 8};
    constexpr coefficient k2{"k2", true, -5, 8};
    if constexpr (Sparsity) {
      return std::array{k1, k2, coefficient{"theta", false, -2, 3}};
    } else {
      return std::array{k1, k2};
    }
  }();
  static constexpr std::array start_levels{2, 2};
  using general = bounded_map<true>;  // theta = 0
  static constexpr std::array fixed{0.0};

  template <class C, class X>
  [[nodiscard]] static C ratio(const C* p, const looped_row<X>& x, C* gradient) {
    using std::exp, std::expm1;
    C log_first = p[0];
    C log_second = p[1];
    if constexpr (Sparsity) {
      log_first = log_first - p[2] * x.log_m;
      log_second = log_second - p[2] * x.log_m;
    }
    const C u = exp(-log_second) * (x.visits - 1.0);
    const C less = expm1(-u);  // e^-u - 1
    const C scale = exp(log_first) * x.rho;
    const C added = -(scale * less);
    gradient[0] = added;
    gradient[1] = -(scale * u * (less + 1.0));
    if constexpr (Sparsity) gradient[2] = -((added + gradient[1]) * x.log_m);
    return added + 1.0;
  }
  static void start(double* p, const double* at) {
    p[0] = -0.7 + 1.2 * at[0];
    p[1] = 0.3 + 1.2 * at[1];
    if constexpr (Sparsity) p[2] = 0.2;
  }
};

}  // namespace smelt::law
