// Does the run-time table carry the same figures as the checks, with the words a person needs?
#include <smelt/budget/table.hpp>
#include <smelt/spec/published.hpp>

#include "catch.hpp"
#include "support/public_models.hpp"

namespace {

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the table of a published pair holds and names its conventions") {
  const budget_table t =
      table_of(published::smelt_200m::value, published::smelt_200m_baseline::value, within{}, paper_accounting);
  CHECK(t.ok);
  CHECK(t.convention == "paper");
  CHECK(t.parameters == "matrices");
  REQUIRE(t.rows.size() == 3);
  CHECK(t.rows[0].metric == "flops");
  CHECK(t.rows[0].ratio == Approx(1.029).margin(0.0005));
  CHECK(t.rows[1].metric == "params");
  CHECK(t.rows[1].actual == parameters(published::smelt_200m::value).matrices);
  CHECK(t.rows[2].metric == "kv_cache");
  CHECK(t.rows[2].ratio == Approx(1.03125));
  CHECK(t.rows[2].tolerance == Approx(0.04));
}

TEST_CASE("a broken row keeps both figures, the ratio and the tolerance") {
  spec larger = published::smelt_200m_baseline::value;
  larger.experts.stored = 195;
  const budget_table t = table_of(larger, published::smelt_200m_baseline::value);
  CHECK_FALSE(t.ok);
  CHECK(t.rows[0].ok);
  CHECK_FALSE(t.rows[1].ok);
  CHECK(t.rows[2].ok);
  CHECK(t.rows[1].actual == parameters(larger).non_embedding);
  const std::string text = to_text(t);
  CHECK_THAT(text, ContainsSubstring("BROKEN"));
  CHECK_THAT(text, ContainsSubstring(std::to_string(t.rows[1].actual)));
  CHECK_THAT(text, ContainsSubstring(std::to_string(t.rows[1].expected)));
  CHECK_THAT(text, ContainsSubstring("convention 'smelt'"));
}

TEST_CASE("FLOPs that a convention cannot count are marked, not printed as a ratio that holds") {
  const budget_table t = table_of(public_models::gpt_oss_20b, public_models::gpt_oss_20b, within{},
                                  accounting{.flops = conventions::torchtitan});
  CHECK_FALSE(t.ok);
  CHECK_FALSE(t.rows[0].ok);
  CHECK_THAT(t.rows[0].note, ContainsSubstring("not counted"));
  CHECK_THAT(to_text(t), ContainsSubstring("does not know attention windows"));
}

TEST_CASE("a spec that cannot exist is refused with the compiler's words") {
  spec bad = published::smelt_200m::value;
  bad.attention.kv_heads = 5;
  try {
    (void)table_of(bad, published::smelt_200m::value);
    FAIL("no error");
  } catch (const error& e) {
    CHECK(e.code() == errc::invalid_spec);
    CHECK_THAT(e.what(), ContainsSubstring("smelt-S009"));
    CHECK_THAT(e.what(), ContainsSubstring("found 24, limit 5"));
  }
}

}  // namespace
