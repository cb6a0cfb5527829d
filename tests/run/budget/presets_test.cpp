// Can the named architectures be used as they are described: matched, sparse as stated, sized for a CPU?
#include <iterator>
#include <set>
#include <smelt/budget/ablations.hpp>
#include <smelt/budget/affine.hpp>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/budget/presets.hpp>
#include <smelt/budget/sparsity.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/validate.hpp>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"

namespace {

using namespace smelt;

/// Every named architecture: those of the registry and the ablation's rows.
std::vector<presets::preset> every_preset() {
  std::vector<presets::preset> all(std::begin(presets::all), std::end(presets::all));
  for (int i = 0; i < presets::ablations; ++i) all.push_back(presets::ablation(i));
  return all;
}

TEST_CASE("preset names are unique and refer to presets") {
  std::set<std::string> names;
  std::set<std::string> groups;
  std::string group;
  for (const presets::preset& p : every_preset()) {
    INFO(p.name);
    CHECK(names.insert(p.name).second);
    CHECK_NOTHROW(validate(p.value));
    CHECK(!std::string(p.description).empty());
    for (const char* other : {p.partner_of, p.control})
      if (*other != 0) CHECK(presets::find(other) != nullptr);
    // Groups stand together.
    if (group != p.group) CHECK(groups.insert(p.group).second);
    group = p.group;
  }
  for (const presets::preset& p : presets::all) CHECK(presets::find(p.name) == &p);
  CHECK(presets::find("") == nullptr);
  CHECK(presets::find("nan") == nullptr);
  CHECK(presets::find("nano-") == nullptr);
  for (const std::string size : {"nano", "micro", "mini", "small"})
    for (const char* row : {"",
                            "-smelt",
                            "-moe-loop",
                            "-latentloop",
                            "-loop-fixed",
                            "-loop-learned",
                            "-loop-3-learned",
                            "-loop-4-learned",
                            "-latentloop-direct",
                            "-latentloop-conv-direct",
                            "-latentloop-softmax-direct",
                            "-latentloop-conv",
                            "-latentloop-softmax",
                            "-latentloop-scalar",
                            "-latentloop-normalised",
                            "-latentloop-tied",
                            "-loop-untied",
                            "-half-stream",
                            "-half-hidden",
                            "-half-active"})
      CHECK(names.count(size + row) == 1);
  for (const char* needed : {"smelt-200m-baseline", "smelt-200m", "smelt-600m-baseline", "smelt-600m"})
    CHECK(presets::find(needed) != nullptr);
}

TEST_CASE("every looped preset has its base's budgets") {
  int pairs = 0;
  for (const presets::preset& p : every_preset()) {
    INFO(p.name);
    if (*p.partner_of == 0) {
      CHECK(span_of(p.value).count == 0);
      continue;
    }
    ++pairs;
    const presets::preset* base = presets::find(p.partner_of);
    REQUIRE(base != nullptr);
    // Nothing but sizes and the loop sets it apart, and the loop is of the middle half.
    CHECK(p.value.loop.first == loop_spec::middle);
    CHECK(p.value.loop.count == loop_spec::half);
    spec same = with_sizes(p.value, sizes_of(base->value));
    same.loop = base->value.loop;
    CHECK(same == base->value);
    // A latent's KV entries ask for heads of 19.2, and four visits of 9.6; both can only be even.
    const bool even_heads = p.value.attention.head_dim % 8 != 0;
    const budget_comparison c =
        compare(p.value, base->value,
                within{.flops = 4_pct, .params = 1_pct, .kv_cache = percent{even_heads ? 42'000 : 40'000}});
    CHECK(c.flops.ok);
    CHECK(c.params.ok);
    CHECK(c.kv_cache.ok);
  }
  CHECK(pairs == 12 + 2 * 4 + 2 + presets::ablations);
}

TEST_CASE("presets differ in what their names say and in little else") {
  const auto all = every_preset();
  const auto named = [&](const std::string& name) {
    for (const presets::preset& p : all)
      if (p.name == name) return p.value;
    FAIL(name);
    return spec{};
  };
  for (const std::string size : {"nano", "micro", "mini", "small"}) {
    INFO(size);
    const auto first_of = [&](const char* row) { return named(size + row).loop.visits[0]; };
    const auto last_is_full = [&](const char* row) {
      const visit_list& list = named(size + row).loop.visits;
      return list.count == 2 && list[1] == visit_plan{};
    };
    CHECK(named(size + "-moe-loop").loop.visits == visits(2, {}));
    CHECK(sizes_of(named(size + "-moe-loop")) == sizes_of(named(size + "-smelt")));
    CHECK(first_of("-loop-fixed") == visit_plan{.residual = {1, 4}});
    CHECK(named(size + "-loop-learned").loop.visits == visits(2, {.learned = true}));
    CHECK(named(size + "-loop-3-learned").loop.visits == visits(3, {.learned = true}));
    CHECK(named(size + "-loop-4-learned").loop.visits == visits(4, {.learned = true}));
    CHECK(first_of("-latentloop") == visit_plan{.compression = 2, .own_attention = true});
    CHECK(first_of("-latentloop-tied") == visit_plan{.compression = 2});
    CHECK(first_of("-loop-untied") == visit_plan{.own_attention = true});
    CHECK(first_of("-half-stream") == visit_plan{.stream = {1, 2}});
    CHECK(first_of("-half-hidden") == visit_plan{.expert_hidden = {1, 2}});
    CHECK(first_of("-half-active") == visit_plan{.active = named(size).experts.active / 2});
    for (const char* row : {"-loop-fixed", "-latentloop", "-latentloop-tied", "-loop-untied", "-half-stream",
                            "-half-hidden", "-half-active", "-latentloop-softmax", "-latentloop-scalar"})
      CHECK(last_is_full(row));
    // Every encoder and writeback at LatentLoop's own sizes, each once.
    std::set<std::pair<encoder_kind, writeback_kind>> kinds;
    for (const char* row :
         {"-latentloop", "-latentloop-direct", "-latentloop-conv-direct", "-latentloop-softmax-direct",
          "-latentloop-conv", "-latentloop-softmax", "-latentloop-scalar", "-latentloop-normalised"}) {
      visit_plan plan = first_of(row);
      CHECK(kinds.emplace(plan.encoder, plan.writeback).second);
      CHECK(sizes_of(named(size + row)) == sizes_of(named(size + "-latentloop")));
      plan.encoder = {};
      plan.writeback = writeback_kind::scaled;
      CHECK(plan == first_of("-latentloop"));
    }
    // Half of the experts and half of each cost the same.
    CHECK(sizes_of(named(size + "-half-active")) == sizes_of(named(size + "-half-hidden")));
    CHECK(flops(named(size + "-half-active")).train == flops(named(size + "-half-hidden")).train);
  }
  // Attention of a visit's own is paid for with stored experts: where the other sizes agree there are fewer.
  int paid = 0;
  for (const auto& [untied, tied] :
       {std::pair{"nano-latentloop", "nano-latentloop-tied"}, std::pair{"mini-latentloop", "mini-latentloop-tied"},
        std::pair{"small-latentloop", "small-latentloop-tied"}, std::pair{"micro-loop-untied", "micro-moe-loop"},
        std::pair{"mini-loop-untied", "mini-moe-loop"}, std::pair{"small-loop-untied", "small-moe-loop"}}) {
    INFO(untied);
    size_set a = sizes_of(named(untied));
    const size_set b = sizes_of(named(tied));
    CHECK(a.experts < b.experts);
    a.experts = b.experts;
    paid += a == b;
  }
  CHECK(paid == 6);
}

TEST_CASE("the looped laws' loop leaves two layers outside at each end") {
  const spec& base = presets::find("small")->value;
  for (int times = 2; times <= max_visits; ++times) {
    const spec s = presets::looped_between(base, times);
    CHECK(is_valid(s));
    CHECK(span_of(s) == loop_span{2, 8, times});
    CHECK(schedule(s).size() == 4 + 8 * times);
    CHECK(parameters(s).total == parameters(base).total);
    // 6 N_unroll D, but for scores and the head.
    const flop_count f = flops(s);
    const std::int64_t matrices = f.train - 3 * (f.attention_scores + f.head);
    CHECK(matrices == 6 * unrolled_parameters(parameters(s), times) * base.context);
  }
  CHECK(presets::looped_between(base, 3, {.residual = {1, 3}}).loop.visits == visits(3));
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
      const bool latent = largest_compression(p.value.loop.visits) > 1;
      CHECK(p.value.width % (latent ? 8 : 16) == 0);
      CHECK(p.value.experts.hidden % (latent ? 8 : 16) == 0);
      CHECK(p.value.attention.head_dim % (latent ? 2 : 8) == 0);
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
