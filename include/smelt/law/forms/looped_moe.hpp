// How does the loss of a looped mixture of experts fall? The joint law of experts with N_eff, the parameters that the
// loop is worth, in place of the active ones.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <smelt/law/form.hpp>
#include <smelt/law/forms/expert_terms.hpp>
#include <smelt/law/forms/visit_maps.hpp>
#include <string_view>
#include <type_traits>

namespace smelt::law {

template <class Map>
struct looped_moe;

namespace detail {

/// The form whose map is the more general one, where there is one.
template <class Map>
struct general_of_map {};
template <class Map>
  requires(!std::is_same_v<Map, typename Map::general>)
struct general_of_map<Map> {
  using general = looped_moe<typename Map::general>;
  static constexpr auto fixed = Map::fixed;
};

}  // namespace detail

/// L(N_act, N_loop, N_total, E, R, D) = A Ehat^delta N_eff^(alpha + gamma ln Ehat) + B Ehat^omega D^(beta + zeta ln
/// Ehat) + c, with N_eff by the map: N_act active parameters, N_loop those of them in the loop, N_total all that are
/// stored, E experts for each one used, R visits, D tokens. At R = 1 it is the joint law.
template <class Map>
struct looped_moe : detail::general_of_map<Map> {
  static constexpr std::string_view name = "looped-moe";
  static constexpr std::string_view equation =
      "L = A Ehat^delta N_eff^(alpha + gamma ln Ehat) + B Ehat^omega D^(beta + zeta ln Ehat) + c";
  using map = Map;
  static constexpr std::size_t count = expert_terms::count + Map::coefficients.size();
  static constexpr std::array inputs{input{"N_act", domain::positive, "parameters", 0},
                                     input{"N_loop", domain::not_negative, "parameters", 0},
                                     input{"N_total", domain::positive, "parameters", 0},
                                     input{"E", domain::at_least_one},
                                     input{"R", domain::at_least_one},
                                     input{"D", domain::positive, "tokens", 1}};
  static constexpr std::array<coefficient, count> coefficients = [] {
    std::array<coefficient, count> all{};
    std::size_t at = 0;
    for (const coefficient& c : expert_terms::coefficients) all[at++] = c;
    for (const coefficient& c : Map::coefficients) all[at++] = c;
    return all;
  }();
  static constexpr response fitted = response::logarithm;

  /// ln N_act, N_loop / N_act, R, ln R, ln m, E, ln D
  [[nodiscard]] static std::array<double, 7> prepare(const std::array<double, 6>& x) {
    return {std::log(x[0]), x[1] / x[0], x[4], std::log(x[4]), std::log(x[0] / x[2]), x[3], std::log(x[5])};
  }

  template <class C, class X>
  [[nodiscard]] static C evaluate(const std::array<C, count>& p, const std::array<X, 7>& x,
                                  std::array<C, count>& gradient) {
    using std::log;
    constexpr std::size_t first = expert_terms::count;
    std::array<C, Map::coefficients.size() + 1> slope;  // one more, so that it is never empty
    const C ratio = Map::ratio(p.data() + first, looped_row<X>{x[1], x[2], x[3], x[4]}, slope.data());
    C by_log_n;
    const C value = expert_terms::evaluate(p, log(ratio) + x[0], x[5], x[6], gradient, by_log_n);
    const C by_ratio = by_log_n / ratio;
    for (std::size_t j = 0; j < Map::coefficients.size(); ++j) gradient[first + j] = by_ratio * slope[j];
    return value;
  }

  [[nodiscard]] static std::array<double, count> rescaled(std::array<double, count> p,
                                                          const std::array<double, 2>& log_factor) {
    expert_terms::rescale(p, log_factor[0], log_factor[1]);
    return p;
  }

  static constexpr std::size_t start_dimensions = 4 + Map::start_levels.size();
  static constexpr std::array<int, start_dimensions> start_levels = [] {
    std::array<int, start_dimensions> all{2, 2, 2, 2};
    for (std::size_t j = 0; j < Map::start_levels.size(); ++j) all[4 + j] = Map::start_levels[j];
    return all;
  }();
  [[nodiscard]] static std::array<double, count> start(const data_summary<7>& data,
                                                       const std::array<double, start_dimensions>& at) {
    std::array<double, count> p{};
    // parameters as if half of the visits after the first counted
    const double log_n = data.centre[0] + std::log1p(data.centre[1] * (data.centre[2] - 1) / 2);
    expert_terms::start(p, data.least_response, data.mean_response, log_n, data.centre[6],
                        {at[0], at[1], at[2], at[3]});
    Map::start(p.data() + expert_terms::count, at.data() + 4);
    return p;
  }
};

/// N_eff of the map, in the unit of N_act. `map_coefficients` are as fitted: logarithms where so marked.
template <class Map>
[[nodiscard]] double effective_parameters(const std::array<double, Map::coefficients.size()>& map_coefficients,
                                          double n_act, double n_loop, double n_total, double visits) {
  std::array<double, Map::coefficients.size() + 1> gradient{};
  const looped_row<double> row{n_loop / n_act, visits, std::log(visits), std::log(n_act / n_total)};
  return n_act * Map::ratio(map_coefficients.data(), row, gradient.data());
}

}  // namespace smelt::law
