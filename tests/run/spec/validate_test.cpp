// Does a spec read at run time fail with the compiler's words? Every rule, and every rule's page.
#include <fstream>
#include <iterator>
#include <set>
#include <smelt/spec/published.hpp>
#include <smelt/spec/validate.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "catch.hpp"
#include "support/random_specs.hpp"

namespace {

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

struct broken_case {
  rule broken;
  void (*change)(spec&);
};

/// For every rule, the smallest change of a valid spec that breaks it.
const broken_case broken_cases[] = {
    {rule::vocab, [](spec& s) { s.vocab = 0; }},
    {rule::padded_vocab, [](spec& s) { s.padded_vocab = s.vocab - 1; }},
    {rule::context, [](spec& s) { s.context = -1; }},
    {rule::width, [](spec& s) { s.width = 0; }},
    {rule::layers, [](spec& s) { s.layers = max_layers + 1; }},
    {rule::dense_layers, [](spec& s) { s.dense_layers = -1; }},
    {rule::dense_hidden, [](spec& s) { s.dense_layers = 1; }},
    {rule::attention_heads, [](spec& s) { s.attention.heads = 0; }},
    {rule::attention_kv_heads, [](spec& s) { s.attention.kv_heads = 0; }},
    {rule::attention_head_dim, [](spec& s) { s.attention.head_dim = 0; }},
    {rule::rotary_head_dim, [](spec& s) { s.attention.head_dim = 43; }},
    {rule::attention_window, [](spec& s) { s.attention.window = -5; }},
    {rule::rotary_base, [](spec& s) { s.attention.rotary_base = 0; }},
    {rule::latent_attention, [](spec& s) { s.attention.latent = {.kv_rank = 8, .nope_dim = 8}; }},
    {rule::experts_stored, [](spec& s) { s.experts.stored = 0; }},
    {rule::experts_active, [](spec& s) { s.experts.active = s.experts.stored + 1; }},
    {rule::experts_hidden, [](spec& s) { s.experts.hidden = 0; }},
    {rule::shared_hidden, [](spec& s) { s.experts.shared_hidden = -1; }},
    {rule::shared_gate, [](spec& s) { s.experts.shared_gate = true; }},
    {rule::norms_per_layer, [](spec& s) { s.norms_per_layer = 1; }},
    {rule::norm_eps, [](spec& s) { s.norm_eps = 1.0; }},
    {rule::loop_count, [](spec& s) { s.loop.count = -2; }},
    {rule::loop_first, [](spec& s) { s.loop.first = -2; }},
    {rule::loop_span, [](spec& s) { s.loop.first = s.layers - 5; }},
    {rule::loop_visits, [](spec& s) { s.loop.visits = {}; }},
    {rule::loop_visits_limit, [](spec& s) { s.loop.visits = visits(17); }},
    {rule::loop_without_span, [](spec& s) { s.loop.count = 0; }},
    {rule::visit_compression, [](spec& s) { s.loop.visits.v0.compression = s.context + 1; }},
    {rule::visit_residual, [](spec& s) { s.loop.visits.v0.residual.den = 0; }},
    {rule::exit_gate,
     [](spec& s) {
       s.exit_gate = true;
       s.loop = {};
     }},
    {rule::loop_runs, [](spec& s) { ++s.loop.visits.count; }},
    {rule::visit_active, [](spec& s) { s.loop.visits.v0.active = s.experts.stored + 1; }},
    {rule::visit_expert_hidden, [](spec& s) { s.loop.visits.v0.expert_hidden = {2, 1}; }},
    {rule::visit_stream, [](spec& s) { s.loop.visits.v0.stream = {0, 1}; }},
    {rule::visit_learned, [](spec& s) { s.loop.visits.v0 = {.residual = {0, 3}, .learned = true}; }},
};

std::string code_of(rule r) {
  std::ostringstream code;
  const int n = static_cast<int>(r);
  code << 'S' << (n < 10 ? "00" : "0") << n;
  return code.str();
}

TEST_CASE("every rule is broken by its own change, with its own code") {
  std::set<rule> seen;
  for (const broken_case& c : broken_cases) {
    spec s = published::smelt_200m::value;
    c.change(s);
    INFO(code_of(c.broken));
    CHECK(first_violation(s).broken == c.broken);
    seen.insert(c.broken);
    try {
      (void)validate(s);
      FAIL("no error");
    } catch (const error& e) {
      CHECK(e.code() == errc::invalid_spec);
      CHECK_THAT(e.what(), ContainsSubstring("[smelt-" + code_of(c.broken) + "] spec: "));
      CHECK_THAT(e.what(), ContainsSubstring("found "));
    }
    // The page that explains the code.
    std::ifstream page(std::string(SMELT_SOURCE_DIR) + "/docs/errors/" + code_of(c.broken) + ".md");
    CHECK(page.good());
  }
  CHECK(seen.size() == static_cast<std::size_t>(rule::visit_learned));
}

TEST_CASE("a violation shows the value that breaks the rule and the limit it breaks") {
  const auto shown = [](auto change) {
    spec s = published::smelt_200m::value;
    change(s);
    const violation v = first_violation(s);
    return std::pair{v.found, v.limit};
  };
  using figures = std::pair<long long, long long>;
  const latent_attention_spec latent{.kv_rank = 32, .q_rank = 16, .nope_dim = 16, .rope_dim = 8, .value_dim = 24};
  const auto with_latent = [&](int latent_attention_spec::* field, int value) {
    return shown([&](spec& s) {
      s.attention.latent = latent;
      s.attention.latent.*field = value;
    });
  };
  CHECK(with_latent(&latent_attention_spec::kv_rank, -1) == figures{-1, 0});
  CHECK(with_latent(&latent_attention_spec::q_rank, -7) == figures{-7, 0});
  CHECK(with_latent(&latent_attention_spec::nope_dim, -3) == figures{-3, 0});
  CHECK(with_latent(&latent_attention_spec::value_dim, 0) == figures{0, 1});
  CHECK(shown([](spec& s) { s.attention.latent = {.kv_rank = 32, .value_dim = 24}; }) == figures{0, 1});
  CHECK(shown([](spec& s) { s.loop.visits.v0.compression = 0; }) == figures{0, 1});
  CHECK(shown([](spec& s) { s.loop.visits.v0.compression = s.context + 1; }) == figures{2'049, 2'048});
  // The published row: width 1056, 288 experts of 352.
  const auto with_plan = [&](const visit_plan& plan) {
    return shown([&](spec& s) { s.loop.visits = visits(1).then(plan); });
  };
  CHECK(with_plan({.active = -1}) == figures{-1, 288});
  CHECK(with_plan({.active = 289}) == figures{289, 288});
  CHECK(with_plan({.expert_hidden = {1, 0}}) == figures{0, 1});
  CHECK(with_plan({.expert_hidden = {0, 4}}) == figures{0, 1});
  CHECK(with_plan({.expert_hidden = {5, 4}}) == figures{5, 4});
  CHECK(with_plan({.expert_hidden = {1, 3}}) == figures{352, 3});
  CHECK(with_plan({.stream = {1, -2}}) == figures{-2, 1});
  CHECK(with_plan({.stream = {-1, 2}}) == figures{-1, 1});
  CHECK(with_plan({.stream = {3, 2}}) == figures{3, 2});
  CHECK(with_plan({.stream = {1, 5}}) == figures{1'056, 5});
  CHECK(with_plan({.residual = {0, 7}, .learned = true}) == figures{0, 7});
  CHECK(with_plan({.residual = {0, 7}}) == figures{0, 0});
  CHECK(with_plan({.residual = {-1, 7}, .learned = true, .active = 288, .expert_hidden = {3, 4}, .stream = {1, 3}}) ==
        figures{0, 0});
  CHECK(shown([](spec& s) {
          s.loop.visits = {};
          for (int i = 1; i <= 9; ++i) s.loop.visits = s.loop.visits.then({.compression = i});
        }) == figures{9, 8});
  CHECK(shown([](spec& s) { s.loop.visits = {.count = 2}; }) == figures{2, 0});
  CHECK(shown([](spec& s) { s.loop.visits.n0 = -4; }) == figures{2, 0});
}

TEST_CASE("a span without routed experts has no experts to choose fewer of, nor hidden units to leave out") {
  spec s = published::smelt_200m::value;
  s.dense_layers = s.layers;
  s.dense_hidden = 64;
  CHECK(is_valid(s));
  s.loop.visits = visits(2, {.active = 1});
  CHECK(first_violation(s).broken == rule::visit_active);
  s.loop.visits = visits(2, {.expert_hidden = {1, 2}});
  CHECK(first_violation(s).broken == rule::visit_expert_hidden);
  s.loop.visits = visits(2, {.expert_hidden = {2, 2}, .stream = {1, 2}});
  CHECK(is_valid(s));
  s.experts = {};
  CHECK(is_valid(s));
  // One routed layer is enough.
  s = published::smelt_200m::value;
  s.dense_layers = 8;
  s.dense_hidden = 64;
  s.loop.visits = visits(2, {.active = 1, .expert_hidden = {1, 2}});
  CHECK(is_valid(s));
  s.dense_layers = 9;
  CHECK(first_violation(s).broken == rule::visit_active);
}

TEST_CASE("a valid spec is returned as it is") {
  const spec& s = published::smelt_200m::value;
  CHECK(&validate(s) == &s);
  CHECK(describe({}).empty());
}

TEST_CASE("rules can be asked about any values without undefined behaviour") {
  testing::random_specs draw(21);
  const int extremes[] = {-2'147'483'647 - 1, -1, 0, 1, 257, 2'147'483'647};
  int invalid = 0;
  for (int i = 0; i < 3'000; ++i) {
    spec s = draw();
    const auto extreme = [&] { return extremes[draw.between(0, 5)]; };
    int* const fields[] = {&s.vocab,
                           &s.padded_vocab,
                           &s.context,
                           &s.width,
                           &s.layers,
                           &s.dense_layers,
                           &s.dense_hidden,
                           &s.attention.heads,
                           &s.attention.kv_heads,
                           &s.attention.head_dim,
                           &s.attention.window,
                           &s.attention.latent.kv_rank,
                           &s.attention.latent.rope_dim,
                           &s.attention.latent.nope_dim,
                           &s.experts.stored,
                           &s.experts.active,
                           &s.experts.hidden,
                           &s.norms_per_layer,
                           &s.loop.first,
                           &s.loop.count,
                           &s.loop.visits.count,
                           &s.loop.visits.n0,
                           &s.loop.visits.n7,
                           &s.loop.visits.v0.compression,
                           &s.loop.visits.v0.active,
                           &s.loop.visits.v0.expert_hidden.num,
                           &s.loop.visits.v0.expert_hidden.den,
                           &s.loop.visits.v0.stream.num,
                           &s.loop.visits.v0.stream.den,
                           &s.loop.visits.v7.residual.den};
    const int last = static_cast<int>(std::size(fields)) - 1;
    *fields[draw.between(0, last)] = extreme();
    *fields[draw.between(0, last)] = extreme();
    invalid += first_violation(s).broken != rule::none;
  }
  CHECK(invalid > 1'000);
}

}  // namespace
