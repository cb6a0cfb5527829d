// How does the loss of a mixture of experts fall with active parameters, experts and tokens? The joint law of
// Ludziejewski et al. (2025), experts counted as by Clark et al. (2022).
#pragma once

#include <array>
#include <cmath>
#include <smelt/law/form.hpp>
#include <smelt/law/forms/expert_terms.hpp>
#include <smelt/law/forms/looped_moe.hpp>
#include <string_view>

namespace smelt::law {

/// L(N_act, E, D) = A Ehat^delta N_act^(alpha + gamma ln Ehat) + B Ehat^omega D^(beta + zeta ln Ehat) + c: L in nats a
/// token, N_act active parameters, E experts for each one used, D tokens. Hold E_start and E_max where the data has too
/// few values of E to tell them.
struct joint_moe {
  static constexpr std::string_view name = "joint-moe";
  static constexpr std::string_view equation =
      "L = A Ehat^delta N_act^(alpha + gamma ln Ehat) + B Ehat^omega D^(beta + zeta ln Ehat) + c";
  static constexpr std::array inputs{input{"N_act", domain::positive, "parameters", 0},
                                     input{"E", domain::at_least_one}, input{"D", domain::positive, "tokens", 1}};
  static constexpr std::array coefficients = expert_terms::coefficients;
  static constexpr response fitted = response::logarithm;

  /// As the looped law prepares a row of one visit.
  using general = looped_moe<scaled_linear_map<true>>;
  static constexpr std::array fixed{0.0, 0.0};
  [[nodiscard]] static std::array<double, 7> prepare(const std::array<double, 3>& x) {
    return general::prepare({x[0], 0, x[0], x[1], 1, x[2]});
  }

  template <class C, class X>
  [[nodiscard]] static C evaluate(const std::array<C, 11>& p, const std::array<X, 7>& x, std::array<C, 11>& gradient) {
    C by_log_n;
    return expert_terms::evaluate(p, x[0], x[5], x[6], gradient, by_log_n);
  }

  [[nodiscard]] static std::array<double, 11> rescaled(std::array<double, 11> p,
                                                       const std::array<double, 2>& log_factor) {
    expert_terms::rescale(p, log_factor[0], log_factor[1]);
    return p;
  }

  static constexpr std::array start_levels{3, 3, 3, 3};
  [[nodiscard]] static std::array<double, 11> start(const data_summary<7>& data, const std::array<double, 4>& at) {
    std::array<double, 11> p{};
    expert_terms::start(p, data.least_response, data.mean_response, data.centre[0], data.centre[6], at);
    return p;
  }
};

}  // namespace smelt::law
