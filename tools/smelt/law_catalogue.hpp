// Which laws does the program know by name?
#pragma once

#include <smelt/law/forms/chinchilla.hpp>
#include <smelt/law/forms/iso_depth.hpp>
#include <smelt/law/forms/joint_moe.hpp>
#include <smelt/law/forms/looped_moe.hpp>
#include <smelt/law/forms/score_sigmoid.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <smelt/law/forms/test_time_depth.hpp>
#include <string>
#include <string_view>

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
  visit(std::string(sparse_compute::name), std::string_view(), detail::law_tag<sparse_compute>{});
  visit(std::string(chinchilla::name), std::string_view(), detail::law_tag<chinchilla>{});
  visit(std::string(iso_depth::name), std::string_view(), detail::law_tag<iso_depth>{});
  visit(std::string(joint_moe::name), std::string_view(), detail::law_tag<joint_moe>{});
  const auto looped = [&]<class Map>(Map) {
    visit(detail::looped_name<Map>(), Map::equation, detail::law_tag<looped_moe<Map>>{});
  };
  looped(linear_map{});
  looped(scaled_linear_map<false>{});
  looped(scaled_linear_map<true>{});
  looped(power_map<false>{});
  looped(power_map<true>{});
  looped(bounded_map<false>{});
  looped(bounded_map<true>{});
  visit(std::string(test_time_depth::name), std::string_view(), detail::law_tag<test_time_depth>{});
  visit(std::string(score_sigmoid<-1>::name), std::string_view(), detail::law_tag<score_sigmoid<-1>>{});
  visit(std::string(score_sigmoid<1>::name), std::string_view(), detail::law_tag<score_sigmoid<1>>{});
}

}  // namespace smelt::tool
