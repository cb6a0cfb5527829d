// Does the matcher keep its word over many bases: every tolerance met, or a reason and the nearest candidate?
#include <smelt/budget/affine.hpp>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/budget/match_report.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/core/random.hpp>
#include <smelt/spec/published.hpp>
#include <smelt/spec/validate.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/public_models.hpp"

namespace {

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

/// Draws from a list; the sequence depends on the seed alone.
class draws {
 public:
  explicit draws(std::uint64_t seed) : seed_(seed) {}
  std::int64_t below(std::int64_t n) {
    const auto words = philox4x32({static_cast<std::uint32_t>(position_++), 0, 0, 0},
                                  {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    return static_cast<std::int64_t>(words[0] % static_cast<std::uint64_t>(n));
  }
  int of(const std::vector<int>& values) { return values[static_cast<std::size_t>(below(std::ssize(values)))]; }
  bool coin() { return below(2) == 1; }

 private:
  std::uint64_t seed_;
  std::uint64_t position_ = 0;
};

/// A base that exists, with the fields of the specs in use: shared experts, leading dense layers, biases, windows,
/// query/key norms, latent attention.
spec random_base(draws& d) {
  spec s{.vocab = d.of({257, 32'000, 151'936}),
         .context = d.of({256, 1'000, 2'048, 8'192}),
         .width = d.of({128, 192, 256, 320, 512, 768, 1'024, 2'048, 4'096}),
         .layers = d.of({2, 4, 6, 9, 12, 24, 48})};
  attention_spec& a = s.attention;
  a.head_dim = d.of({16, 24, 32, 64, 128});
  a.kv_heads = d.of({1, 2, 4, 8});
  a.heads = a.kv_heads * (std::max)(1, s.width / a.head_dim / a.kv_heads);
  a.qkv_bias = d.coin();
  a.norm = static_cast<qk_norm>(d.below(3));
  a.sinks = d.coin();
  a.window = d.of({0, 0, 128});
  if (d.coin()) a.global_layers = every_layer(2);
  s.experts = {.stored = 0, .active = d.of({1, 2, 4, 8}), .hidden = (std::max)(8, s.width * d.of({1, 2, 3}) / 4)};
  s.experts.stored = s.experts.active * d.of({1, 3, 8, 16, 32});
  if (d.coin()) s.experts.shared_hidden = s.experts.hidden;
  s.experts.bias = d.coin();
  s.tied_head = d.coin();
  if (d.below(4) == 0) {
    s.dense_layers = 1;
    s.dense_hidden = 4 * s.width;
  }
  if (d.below(6) == 0) {
    a.latent = {
        .kv_rank = 4 * a.head_dim, .q_rank = 0, .nope_dim = a.head_dim, .rope_dim = 32, .value_dim = a.head_dim};
    a.kv_heads = a.heads;
    a.norm = qk_norm::none;
  }
  return s;
}

/// A loop that any base with routed experts in every second half can make; sizes of bases are multiples of 2.
loop_spec random_loop(draws& d) {
  switch (d.below(10)) {
    case 0:
      return {.count = loop_spec::half, .visits = visits(3)};
    case 1:
      return {.count = loop_spec::half, .visits = visit_list{}.then({.compression = 2}).then({})};
    case 2:
      return {.count = loop_spec::half, .visits = visit_list{}.then({}).then({.own_attention = true})};
    case 3:
      return {.count = loop_spec::half, .visits = visit_list{}.then({.stream = {1, 2}}).then({})};
    case 4:
      return {.count = loop_spec::half,
              .visits = visit_list{}.then({.active = 1, .expert_hidden = {1, 2}}).then({.learned = true})};
    case 5:
      return {.count = loop_spec::half,
              .visits = visit_list{}
                            .then({.learned = true,
                                   .compression = 3,
                                   .encoder = encoder_kind::conv,
                                   .own_attention = true,
                                   .expert_hidden = {1, 2},
                                   .stream = {3, 4}})
                            .then({.active = 2}, 2)};
    default:
      return middle_twice;
  }
}

/// |actual - expected| <= tolerance * expected, in long double and from the budget functions alone.
bool inside(std::int64_t actual, std::int64_t expected, percent tolerance) {
  const long double off = static_cast<long double>(actual) - static_cast<long double>(expected);
  return (off < 0 ? -off : off) * 1e6L <= static_cast<long double>(expected) * static_cast<long double>(tolerance.ppm);
}

/// Every field but the sizes that may move, and the loop, is the base's.
bool keeps_the_rest(const spec& partner, const spec& base) {
  spec s = with_sizes(partner, sizes_of(base));
  s.loop = base.loop;
  return s == base;
}

TEST_CASE("a budget of any spec follows from its affine model") {
  draws d(7);
  int valid = 0;
  for (int i = 0; i < 400; ++i) {
    spec s = random_base(d);
    if (i % 4 > 0) s.loop = random_loop(d);
    if (!is_valid(s)) continue;
    ++valid;
    const accounting by{.flops = d.coin() ? conventions::smelt : conventions::full_square,
                        .params = d.coin() ? parameter_metric::non_embedding : parameter_metric::total};
    const size_set sizes = sizes_of(s);
    const auto value = [&](const affine_model& m) {
      const affine_budget b = m.at(sizes.width);
      return outside_experts(b, sizes) + b.experts * sizes.experts +
             (b.hidden + b.expert_body * sizes.experts) * sizes.hidden;
    };
    const auto train = [&](const spec& x) { return flops(x, by.flops).train; };
    const auto params = [&](const spec& x) { return figure_of(parameters(x), by.params); };
    const auto kv = [&](const spec& x) { return kv_cache(x).bytes_at_context; };
    const auto check = [&](const auto& budget) {
      const affine_model m = affine_model_of(s, budget);
      CHECK(m.scale == units_of(s.loop.visits).width * units_of(s.loop.visits).hidden);
      CHECK(value(m) == m.scale * budget(s));
    };
    check(train);
    check(params);
    check(kv);
  }
  CHECK(valid > 300);
  CHECK(units_of(visits(2)) == size_units{1, 1});
  CHECK(units_of(visit_list{}.then({.stream = {2, 4}}).then({.expert_hidden = {2, 3}, .stream = {1, 3}})) ==
        size_units{6, 3});
}

TEST_CASE("a match meets every tolerance or says what it cannot meet") {
  draws d(11);
  int found = 0;
  constexpr int trials = 400;
  for (int i = 0; i < trials; ++i) {
    const spec base = random_base(d);
    REQUIRE(first_violation(base).broken == rule::none);
    loop_spec loop = random_loop(d);
    for (spec s = base; s.loop = loop, !is_valid(s);) loop = random_loop(d);
    const within tolerance{.flops = percent{d.of({10'000, 40'000})},
                           .params = percent{d.of({5'000, 10'000})},
                           .kv_cache = percent{d.of({10'000, 40'000})}};
    const match_options options{.vary = {.hidden = d.coin() ? hidden_rule::keep_ratio : hidden_rule::free},
                                .width_multiple = d.of({0, 8, 16}),
                                .by = d.coin() ? accounting{} : accounting{.params = parameter_metric::matrices}};
    const match_result r = find_match(base, loop, tolerance, options);
    INFO(describe(r));
    CHECK(first_violation(r.partner).broken == rule::none);
    CHECK(keeps_the_rest(r.partner, base));
    CHECK(r.partner.loop == loop);
    CHECK(r.partner.width % r.options.width_multiple == 0);
    CHECK(r.options.width_multiple % units_of(loop.visits).width == 0);
    CHECK(r.options.hidden_multiple % units_of(loop.visits).hidden == 0);

    // Verified by the budget functions, not by what the matcher reports.
    const parameter_count p = parameters(r.partner);
    const parameter_count q = parameters(base);
    const std::int64_t params = figure_of(p, options.by.params);
    const bool met = inside(flops(r.partner).train_per_token, flops(base).train_per_token, tolerance.flops) &&
                     inside(params, figure_of(q, options.by.params), tolerance.params) &&
                     inside(kv_cache(r.partner).bytes_per_token, kv_cache(base).bytes_per_token, tolerance.kv_cache);
    CHECK(met == r.found());
    CHECK(r.budgets.params.actual == params);
    if (r.found()) {
      ++found;
      CHECK(r.constraint == match_constraint::none);
    } else {
      CHECK(r.constraint != match_constraint::none);
      CHECK_THAT(describe(r), ContainsSubstring("[smelt-M00") && ContainsSubstring("nearest candidate: width"));
      CHECK_THROWS_AS(match_or_throw(base, loop, tolerance, options), error);
    }
    CHECK(find_match(base, loop, tolerance, options).partner == r.partner);
  }
  // Few experts make coarse steps, so that not every base has a partner; most do.
  CHECK(found > trials * 7 / 10);
  CHECK(found < trials);
}

TEST_CASE("the run-time match is the compile-time match") {
  const volatile int width = 1'280;
  spec base = published::smelt_200m_baseline::value;
  base.width = width;
  constexpr match_result compiled = find_match(published::smelt_200m_baseline::value, middle_twice);
  const match_result run = find_match(base, middle_twice);
  CHECK(run.partner == compiled.partner);
  CHECK(run.shape == compiled.shape);
  CHECK(run.options == compiled.options);
  CHECK(run.budgets.flops.actual == compiled.budgets.flops.actual);
  CHECK(match_or_throw(base, middle_twice) == match(published::smelt_200m_baseline::value, middle_twice));
}

TEST_CASE("fields that may not vary do not") {
  const spec base = published::smelt_200m_baseline::value;
  const auto partner = [&](const may_vary& vary) { return find_match(base, middle_twice, {}, {.vary = vary}).partner; };
  CHECK(partner({.width = false}).width == base.width);
  CHECK(partner({.experts = false}).experts.stored == base.experts.stored);
  CHECK(partner({.heads = false}).attention.heads == base.attention.heads);
  CHECK(partner({.kv_heads = false}).attention.kv_heads == base.attention.kv_heads);
  CHECK(partner({.head_dim = false}).attention.head_dim == base.attention.head_dim);
  CHECK(partner({.hidden = hidden_rule::held}).experts.hidden == base.experts.hidden);

  // At the base's width, freed experts still pay for the second visit: narrower and more of them.
  const match_result r = find_match(base, middle_twice, {}, {.vary = {.width = false, .hidden = hidden_rule::free}});
  CHECK(r.found());
  CHECK(r.partner.experts.hidden < base.experts.hidden);
  CHECK(r.partner.experts.stored > base.experts.stored);
}

TEST_CASE("multiples and limits hold") {
  const spec base = published::smelt_600m_baseline::value;
  const match_options options{.width_multiple = 128,
                              .hidden_multiple = 32,
                              .head_dim_multiple = 8,
                              .experts_multiple = 8,
                              .width = {.least = 1'000, .most = 1'500},
                              .experts = {.least = 480, .most = 600},
                              .head_dim = {.least = 32, .most = 96}};
  const within tolerance{.flops = percent{80'000}, .params = percent{20'000}, .kv_cache = percent{60'000}};
  const match_result r = find_match(base, middle_twice, tolerance, options);
  INFO(describe(r));
  REQUIRE(r.found());
  const spec& p = r.partner;
  CHECK(p.width % 128 == 0);
  CHECK((p.width >= 1'000 && p.width <= 1'500));
  CHECK(p.experts.hidden % 32 == 0);
  CHECK(p.attention.head_dim % 8 == 0);
  CHECK((p.attention.head_dim >= 32 && p.attention.head_dim <= 96));
  CHECK(p.experts.stored % 8 == 0);
  CHECK((p.experts.stored >= 480 && p.experts.stored <= 600));
}

TEST_CASE("the base's shape comes before a smaller error") {
  const spec base = published::smelt_200m_baseline::value;
  // 1 % of the KV cache needs another number of heads; 4 % does not, and then the number stays.
  CHECK(find_match(base, middle_twice).partner.attention.kv_heads == 4);
  const match_result tight = find_match(base, middle_twice, {.flops = 1_pct, .params = 1_pct, .kv_cache = 1_pct});
  CHECK(tight.found());
  CHECK(tight.partner.attention.kv_heads != 4);
  CHECK(tight.shape > 0);
  CHECK(std::abs(tight.budgets.kv_cache.ratio() - 1'000'000) <
        std::abs(find_match(base, middle_twice).budgets.kv_cache.ratio() - 1'000'000));
}

TEST_CASE("a match that fails names the budget, the constraint and the nearest candidate") {
  const spec base = published::smelt_200m_baseline::value;
  const auto message = [&](const match_options& options, const within& tolerance = {}) {
    try {
      return std::string("found ") + std::to_string(match_or_throw(base, middle_twice, tolerance, options).width);
    } catch (const error& e) {
      CHECK(e.code() == errc::mismatch);
      return std::string(e.what());
    }
  };
  CHECK_THAT(message({.vary = {.width = false}}),
             ContainsSubstring("[smelt-M001]") && ContainsSubstring("the width may not vary") &&
                 ContainsSubstring("nearest candidate: width 1280, heads ") && ContainsSubstring("flops ") &&
                 ContainsSubstring(" against ") && ContainsSubstring("tolerance 4 %") &&
                 ContainsSubstring("convention smelt") && ContainsSubstring("parameters non_embedding"));
  CHECK_THAT(message({.width = {.most = 1'024}, .experts = {.most = 200}}),
             ContainsSubstring("[smelt-M002]") && ContainsSubstring("stored experts is limited to 0 .. 200"));
  CHECK_THAT(message({.vary = {.kv_heads = false, .head_dim = false}}),
             ContainsSubstring("[smelt-M003]") &&
                 ContainsSubstring("neither the number of KV heads nor the head size") &&
                 ContainsSubstring("kv_cache 18432 against 12288 (+50.00 %, tolerance 4 %)"));
  CHECK_THAT(message({.head_dim_multiple = 32}),
             ContainsSubstring("[smelt-M003]") && ContainsSubstring("the head size is a multiple of 32"));
  CHECK_THAT(message({.vary = {.experts = false}}),
             ContainsSubstring("[smelt-M004]") && ContainsSubstring("the number of stored experts may not vary"));
  // A dense base has nothing that recovers the parameters.
  const match_result dense = find_match(public_models::llama3_8b, middle_twice);
  CHECK(!dense.found());
  CHECK(dense.constraint == match_constraint::no_experts);
  CHECK_THAT(describe(dense), ContainsSubstring("no layer has routed experts to add"));
}

TEST_CASE("an invalid request is refused with what is wrong") {
  const spec base = published::smelt_200m_baseline::value;
  const auto code = [&](const spec& s, const loop_spec& loop, const within& tolerance, const match_options& options) {
    try {
      (void)match_or_throw(s, loop, tolerance, options);
    } catch (const error& e) {
      return e.code();
    }
    FAIL("accepted");
    return errc::io;
  };
  spec broken = base;
  broken.attention.heads = 21;
  CHECK(code(broken, middle_twice, {}, {}) == errc::invalid_spec);
  CHECK_THROWS_WITH(match_or_throw(broken, middle_twice), ContainsSubstring("[smelt-S009]"));
  const loop_spec past_the_end{.first = 8, .count = 6, .visits = visits(2)};
  CHECK(code(base, past_the_end, {}, {}) == errc::invalid_spec);
  CHECK_THROWS_WITH(match_or_throw(base, past_the_end), ContainsSubstring("[smelt-S024]"));
  CHECK(code(base, middle_twice, {.flops = percent{-1}}, {}) == errc::invalid_argument);
  CHECK(code(base, middle_twice, {}, {.width_multiple = -8}) == errc::invalid_argument);
  CHECK(code(base, middle_twice, {}, {.head_dim_multiple = 0}) == errc::invalid_argument);
  CHECK(code(base, middle_twice, {}, {.experts_multiple = 0}) == errc::invalid_argument);
  CHECK(code(base, middle_twice, {}, {.by = {.kv_bytes_per_element = 0}}) == errc::invalid_argument);
  CHECK(code(base, middle_twice, {}, {.width = {.least = 100, .most = 50}}) == errc::invalid_argument);
  CHECK(code(base, middle_twice, {}, {.width_multiple = 64, .width = {.least = 65, .most = 127}}) ==
        errc::invalid_argument);
  CHECK(code(base, middle_twice, {}, {.experts = {.most = 4}}) == errc::invalid_argument);  // a token visits 8
  CHECK(code(base, middle_twice, {}, {.by = {.flops = conventions::torchtitan}}) == errc::unsupported);
  CHECK_THROWS_WITH(match_or_throw(base, middle_twice, {}, {.by = {.flops = conventions::torchtitan}}),
                    ContainsSubstring("[smelt-M005]") && ContainsSubstring("run more than once"));
  spec huge = base;
  huge.width = 2'000'000'000;
  huge.experts.hidden = 2'000'000'000;
  CHECK(code(huge, middle_twice, {}, {}) == errc::overflow);
}

TEST_CASE("options far outside the base end in a reason, not in an overflow") {
  struct request {
    match_options options;
    match_outcome outcome;
    match_constraint constraint;
  };
  using enum match_outcome;
  const spec base = published::smelt_200m_baseline::value;  // width 1280, hidden 224, 192 experts
  for (const int far : {2'000, 50'000, 1'000'000, 1'000'000'000})
    for (const auto& [options, outcome, constraint] :
         {request{{.width_multiple = far}, flops_unmet, match_constraint::width_multiple},
          request{{.head_dim_multiple = far}, kv_cache_unmet, match_constraint::head_dim_multiple},
          request{{.experts_multiple = far}, params_unmet, match_constraint::experts_multiple},
          request{{.width = {.least = far}}, flops_unmet, match_constraint::width_limits},
          request{{.head_dim = {.least = far}}, kv_cache_unmet, match_constraint::head_dim_limits},
          request{{.experts = {.least = far}}, params_unmet, match_constraint::experts_limits}}) {
      const match_result r = find_match(base, middle_twice, {}, options);
      INFO(far << ": " << describe(r));
      CHECK(r.outcome == outcome);
      CHECK(r.constraint == constraint);
      CHECK(first_violation(r.partner).broken == rule::none);
      CHECK(describe(r).rfind(describe_failure(r) + "; nearest candidate: width ", 0) == 0);
    }
  // What a far hidden width breaks first depends on how far it is.
  for (const int far : {2'000, 50'000, 1'000'000, 1'000'000'000}) {
    const match_result r = find_match(base, middle_twice, {}, {.hidden_multiple = far});
    INFO(far << ": " << describe(r));
    CHECK(!r.found());
    CHECK(r.constraint != match_constraint::none);
    CHECK(first_violation(r.partner).broken == rule::none);
  }
  // Tolerances that allow anything.
  const within any{.flops = percent{INT64_MAX}, .params = percent{INT64_MAX}, .kv_cache = percent{INT64_MAX}};
  CHECK(find_match(base, middle_twice, any).found());
  CHECK(find_match(public_models::deepseek_v2, middle_twice, any).found());
  // Sequences of a hundred thousand tokens of a model of 400 billion parameters.
  CHECK(find_match(public_models::llama31_405b, middle_twice).outcome != match_outcome::too_large);
  CHECK(find_match(public_models::deepseek_v2, middle_twice).found());
  // Elements of the KV cache so large that no multiple of them is an int, and chunks of every length.
  loop_spec chunks{.count = loop_spec::half, .visits = visit_list{}.then({.compression = 7}).then({.compression = 12})};
  for (const int bytes : {1, 2, 100'000'000, 2'147'483'647})
    CHECK(find_match(base, chunks, any, {.by = {.kv_bytes_per_element = bytes}}).found());
  const match_result exact = find_match(base, chunks, {.flops = 4_pct, .params = 1_pct, .kv_cache = 1_pct});
  INFO(describe(exact));
  CHECK(exact.found());
}

TEST_CASE("extreme sizes and shares end in a match or a reason, without undefined behaviour") {
  draws d(13);
  int searched = 0;
  int too_large = 0;
  for (int i = 0; i < 3'000; ++i) {
    spec base = random_base(d);
    int* const sizes[] = {&base.width,   &base.experts.hidden,     &base.experts.stored, &base.vocab,
                          &base.context, &base.attention.head_dim, &base.dense_hidden};
    for (int n = 0; n < 2; ++n)
      *sizes[d.below(7)] = d.of({1, 2, 6, 1'000'000, 30'030, 510'510 * 2, 223'092'870, 2'147'483'646});
    if (base.dense_layers == 0) base.dense_hidden = 0;
    const auto share = [&](int size) {
      const int den = d.of({2, 3, 5, 6, 30, 2'310, 510'510, size});
      return size % den == 0 ? ratio{static_cast<int>(1 + d.below(den)), den} : ratio{};
    };
    const visit_plan first{.compression = d.of({1, 2, 3, 5, 7, 250}),
                           .active = d.coin() ? base.experts.active : 0,
                           .expert_hidden = share(base.experts.hidden),
                           .stream = share(base.width)};
    const visit_plan second{.expert_hidden = share(base.experts.hidden), .stream = share(base.width)};
    const loop_spec loop{.count = loop_spec::half, .visits = visit_list{}.then(first).then(second, 2)};
    spec looped = base;
    looped.loop = loop;
    if (!is_valid(base) || !is_valid(looped)) continue;
    const match_options options{.vary = {.hidden = d.coin() ? hidden_rule::keep_ratio : hidden_rule::free},
                                .width_multiple = d.of({0, 1, 8, 1'000'003}),
                                .by = {.kv_bytes_per_element = d.of({1, 2, 64, 2'147'483'647})}};
    const match_result r = find_match(base, loop, {}, options);
    if (r.outcome == match_outcome::too_large) {
      ++too_large;
      continue;
    }
    if (r.outcome == match_outcome::options_invalid) continue;
    ++searched;
    INFO(describe(r));
    CHECK(first_violation(r.partner).broken == rule::none);
    CHECK(r.found() == compare(r.partner, base, {}, options.by).ok);
  }
  CHECK(searched > 300);
  CHECK(too_large > 300);
}

}  // namespace
