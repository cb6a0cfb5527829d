// Do two trainings of equal FLOPs cost the same?
#include <cstdint>
#include <smelt/budget/equal_flops.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/spec/published.hpp>

#include "catch.hpp"
#include "support/public_models.hpp"
#include "support/random_specs.hpp"

namespace {

using namespace smelt;
__extension__ using wide = __int128;

TEST_CASE("products are divided exactly, to nearest, without overflow") {
  testing::random_specs draw(51);
  const auto number = [&] {
    const std::int64_t high = draw.between(0, 2'147'483'646);
    const std::int64_t n = high << 31 | draw.between(0, 2'147'483'646);
    return n >> draw.between(0, 61);
  };
  int marked = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::int64_t a = number(), b = number();
    const std::int64_t c = 1 + (number() >> 1);
    const wide right = (wide(a) * b + c / 2) / c;
    const std::int64_t got = detail::scaled_to_nearest(a, b, c);
    if (right < wide(overflowed) - 1)
      REQUIRE(wide(got) == right);
    else
      REQUIRE(got >= overflowed - 1);
    marked += got == overflowed;
  }
  CHECK(marked > 1'000);
  CHECK(detail::scaled_to_nearest(3, 1, 2) == 2);
  CHECK(detail::scaled_to_nearest(1, 1, 3) == 0);
  CHECK(detail::scaled_to_nearest(0, 5, 3) == 0);
}

TEST_CASE("what is at equal FLOPs costs the same to one token") {
  testing::random_specs draw(52);
  for (int i = 0; i < 500; ++i) {
    const spec base = draw();
    spec s = draw();
    if (draw.flip()) s.context = base.context;
    const std::int64_t amount = draw.between(1, 2'000'000'000);
    const std::int64_t n = at_equal_flops(s, base, amount);
    const double spent = static_cast<double>(flops(s).train) / static_cast<double>(s.context);
    const double given = static_cast<double>(flops(base).train) / static_cast<double>(base.context);
    // Half a token, and half a FLOP a token where contexts differ.
    CHECK(std::abs(static_cast<double>(n) * spent - static_cast<double>(amount) * given) <=
          0.51 * spent + static_cast<double>(amount) + static_cast<double>(n));
  }
}

TEST_CASE("LatentLoop's setting: all budgets within 1 %, and total FLOPs by the number of steps") {
  const within one_percent{.flops = 1_pct, .params = 1_pct, .kv_cache = 1_pct};
  const visit_plan latent{.compression = 2, .own_attention = true};
  const loop_spec loop{.count = loop_spec::half, .visits = visit_list{}.then(latent).then({})};
  for (const spec& base : {published::smelt_200m_baseline::value, published::smelt_600m_baseline::value}) {
    const match_result r = find_match(base, loop, one_percent, {.width_multiple = 8});
    REQUIRE(r.found());
    CHECK(std::abs(r.budgets.flops.ratio() - 1'000'000) <= 10'000);
    CHECK(std::abs(r.budgets.params.ratio() - 1'000'000) <= 10'000);
    CHECK(std::abs(r.budgets.kv_cache.ratio() - 1'000'000) <= 10'000);
    const std::int64_t steps = at_equal_flops(r.partner, base, 100'000);
    CHECK(std::abs(steps - 100'000) <= 1'001);
    const double total = static_cast<double>(steps) * static_cast<double>(flops(r.partner).train_per_token);
    CHECK(total == Approx(100'000.0 * static_cast<double>(flops(base).train_per_token)).epsilon(1e-5));

    // Attention of the first visit's own is paid for with experts: at the same sizes the matcher has to give some back.
    loop_spec tied = loop;
    tied.visits = visit_list{}.then({.compression = 2}).then({});
    spec untied_partner = find_match(base, tied, one_percent, {.width_multiple = 8}).partner;
    const std::int64_t tied_size = parameters(untied_partner).non_embedding;
    const parameter_count p = parameters(untied_partner);
    untied_partner.loop = loop;
    CHECK(parameters(untied_partner).non_embedding - tied_size == parameters(untied_partner).own_attention);
    const std::int64_t expert =
        p.experts / untied_partner.experts.stored + std::int64_t{untied_partner.width} * base.layers;
    const std::int64_t fewer = (parameters(untied_partner).own_attention + expert / 2) / expert;
    CHECK(fewer >= 1);
    const match_result paid = find_match(base, loop, one_percent,
                                         {.width_multiple = 8, .width = {untied_partner.width, untied_partner.width}});
    REQUIRE(paid.found());
    CHECK(paid.partner.experts.stored * std::int64_t{paid.partner.experts.hidden} <
          untied_partner.experts.stored * std::int64_t{untied_partner.experts.hidden});
  }
}

TEST_CASE("a convention that does not cover an architecture gives no number") {
  CHECK(at_equal_flops(published::smelt_200m::value, published::smelt_200m_baseline::value, 1'000,
                       conventions::torchtitan) == 0);
  CHECK(at_equal_flops(public_models::llama3_8b, public_models::llama3_8b, 1'000) == 1'000);
  spec huge = public_models::llama3_8b;
  huge.width = huge.dense_hidden = 2'000'000'000;
  CHECK(at_equal_flops(huge, huge, 1'000) == overflowed);
}

}  // namespace
