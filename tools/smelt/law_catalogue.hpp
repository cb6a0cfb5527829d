// Which laws does the program know by name?
#pragma once

#include <array>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <smelt/law/forms/chinchilla.hpp>
#include <smelt/law/forms/iso_depth.hpp>
#include <smelt/law/forms/joint_moe.hpp>
#include <smelt/law/forms/looped_moe.hpp>
#include <smelt/law/forms/score_sigmoid.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <smelt/law/forms/test_time_depth.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace smelt::tool {

namespace detail {

template <class F>
struct law_tag {
  using form = F;
};

template <class Map>
[[nodiscard]] inline std::string looped_name() {
  return "looped-moe:" + std::string(Map::name);
}

}  // namespace detail

/// Calls visit(name, map equation, tag of the form) for every law, in the order in which they are listed.
template <class Visit>
void for_laws(Visit&& visit) {
  using namespace smelt::law;
  visit(std::string(sparse_compute::name), std::string(), detail::law_tag<sparse_compute>{});
  visit(std::string(chinchilla::name), std::string(), detail::law_tag<chinchilla>{});
  visit(std::string(iso_depth::name), std::string(), detail::law_tag<iso_depth>{});
  visit(std::string(joint_moe::name), std::string(), detail::law_tag<joint_moe>{});
  const auto looped = [&]<class Map>(Map) {
    visit(detail::looped_name<Map>(), std::string(Map::equation), detail::law_tag<looped_moe<Map>>{});
  };
  looped(linear_map{});
  looped(scaled_linear_map<false>{});
  looped(scaled_linear_map<true>{});
  looped(power_map<false>{});
  looped(power_map<true>{});
  looped(bounded_map<false>{});
  looped(bounded_map<true>{});
  visit(std::string(test_time_depth::name), std::string(), detail::law_tag<test_time_depth>{});
  visit(std::string(score_sigmoid<-1>::name), std::string(), detail::law_tag<score_sigmoid<-1>>{});
  visit(std::string(score_sigmoid<1>::name), std::string(), detail::law_tag<score_sigmoid<1>>{});
}

/// Calls use(tag of the form) for the law of that name. "looped-moe" alone is its bounded map with the sparsity
/// exponent. Throws invalid_argument for a name that is none.
template <class Use>
void with_law(std::string_view name, Use&& use) {
  const std::string wanted = name == "looped-moe" ? "looped-moe:bounded-sparsity" : std::string(name);
  bool found = false;
  std::vector<std::string> known;
  for_laws([&](const std::string& law, const std::string&, auto tag) {
    known.push_back(law);
    if (law != wanted) return;
    found = true;
    use(tag);
  });
  if (!found) {
    throw error(errc::invalid_argument, "there is no law '" + wanted + "'; did you mean '" +
                                            nearest_names(wanted, known, 1).front() + "'? (see smelt law list)");
  }
}

}  // namespace smelt::tool
