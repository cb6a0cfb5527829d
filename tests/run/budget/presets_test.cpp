// Can the named architectures be used as they are described: matched, sparse as stated, sized for a CPU?
#include <set>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/budget/presets.hpp>
#include <smelt/budget/sparsity.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/validate.hpp>
#include <string>

#include "catch.hpp"

namespace {

using namespace smelt;

TEST_CASE("preset names are unique and refer to presets") {
  std::set<std::string> names;
  for (const presets::preset& p : presets::all) {
    INFO(p.name);
    CHECK(names.insert(p.name).second);
    CHECK_NOTHROW(validate(p.value));
    CHECK(presets::find(p.name) == &p);
    CHECK(!std::string(p.description).empty());
    for (const char* other : {p.partner_of, p.control})
      if (*other != 0) CHECK(presets::find(other) != nullptr);
  }
  CHECK(presets::find("") == nullptr);
  CHECK(presets::find("nan") == nullptr);
  CHECK(presets::find("nano-") == nullptr);
  for (const char* needed :
       {"nano", "micro", "mini", "small", "smelt-200m-baseline", "smelt-200m", "smelt-600m-baseline", "smelt-600m"})
    CHECK(presets::find(needed) != nullptr);
}

TEST_CASE("every base of the ladder has a matched looped partner") {
  int pairs = 0;
  for (const presets::preset& p : presets::all) {
    INFO(p.name);
    if (*p.partner_of == 0) {
      CHECK(span_of(p.value).count == 0);
      continue;
    }
    ++pairs;
    const presets::preset* base = presets::find(p.partner_of);
    REQUIRE(base != nullptr);
    CHECK(p.value.loop == middle_twice);
    CHECK(p.value.layers == base->value.layers);
    CHECK(p.value.experts.active == base->value.experts.active);
    CHECK(p.value.vocab == base->value.vocab);
    CHECK(p.value.context == base->value.context);
    const budget_comparison c =
        compare(p.value, base->value, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct});
    CHECK(c.flops.ok);
    CHECK(c.params.ok);
    CHECK(c.kv_cache.ok);
  }
  CHECK(pairs * 2 == std::ssize(presets::all));
}

TEST_CASE("the ladder has the sizes and the sparsity that its names say") {
  struct rung {
    const char* name;
    double active;  // million parameters of the matrices that a token meets
  };
  for (const rung& r : {rung{"nano", 0.3}, rung{"micro", 1}, rung{"mini", 3}, rung{"small", 10}}) {
    INFO(r.name);
    const spec& base = presets::find(r.name)->value;
    const double active = static_cast<double>(parameters(base).matrices_active) / 1e6;
    CHECK(active > 0.8 * r.active);
    CHECK(active < 1.25 * r.active);
    const spec& control = presets::find((std::string(r.name) + "-control").c_str())->value;
    CHECK(control.experts.stored == control.experts.active);
    CHECK(span_of(control).count == 0);
    CHECK(control == fully_active_control(base));
    // Sizes fill SIMD registers, in bases and partners.
    for (const presets::preset& p : presets::all) {
      if (std::string(p.control) != std::string(r.name) + "-control") continue;
      INFO(p.name);
      CHECK(p.value.width % 16 == 0);
      CHECK(p.value.experts.hidden % 16 == 0);
      CHECK(p.value.attention.head_dim % 8 == 0);
      CHECK(p.value.layers % 2 == 0);
      CHECK(p.value.vocab == 257);
      CHECK(p.value.tied_head);
    }
  }
  const auto sparsity_of = [](const char* name) {
    const presets::preset* p = presets::find(name);
    return sparsity(p->value, presets::find(p->control)->value).s;
  };
  CHECK(sparsity_of("nano-control") == Approx(0).margin(1e-12));
  CHECK(sparsity_of("nano") == Approx(0.81).margin(0.02));
  CHECK(sparsity_of("nano-s94") == Approx(0.94).margin(0.01));
  CHECK(sparsity_of("micro") == Approx(0.83).margin(0.02));
  CHECK(sparsity_of("micro-s97") == Approx(0.97).margin(0.01));
  CHECK(sparsity_of("mini") == Approx(0.86).margin(0.02));
  CHECK(sparsity_of("mini-s97") == Approx(0.97).margin(0.01));
  CHECK(sparsity_of("small") == Approx(0.84).margin(0.02));
  CHECK(sparsity_of("small-s92") == Approx(0.92).margin(0.01));
  // A looped control costs a little less or more than the control: never clamped.
  CHECK(std::abs(sparsity_of("nano-control-smelt")) < 0.05);
}

}  // namespace
