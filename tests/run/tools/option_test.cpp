#include "../../../tools/smelt/loop_option.hpp"
#include "../../../tools/smelt/tolerance_option.hpp"
#include "catch.hpp"
#include "support/random_specs.hpp"

using namespace smelt;
using namespace smelt::tool;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("percentages are read exactly", "[tools][option]") {
  CHECK(read_percent("4%") == percent{40'000});
  CHECK(read_percent("0.25%") == percent{2'500});
  CHECK(read_percent("0.0001%") == percent{1});
  CHECK(read_percent("0%") == percent{0});
  CHECK(read_percent("100%") == percent{1'000'000});
  for (const char* text : {"", "%", "4", "0.04", "-1%", "0.00001%", "1e2%", "4%%", "4k%", "1000001%", " 4%"})
    CHECK_FALSE(read_percent(text).has_value());
  CHECK(shown(percent{40'000}) == "4%");
  CHECK(shown(percent{2'500}) == "0.25%");
  CHECK(shown(percent{1}) == "0.0001%");
  CHECK(shown(percent{1'000'000}) == "100%");
}

TEST_CASE("tolerances keep their default where they are not named", "[tools][option]") {
  CHECK(parse_tolerance("") == within{});
  CHECK(parse_tolerance("flops=1%,params=0.5%,kv=2%") ==
        within{.flops = {10'000}, .params = {5'000}, .kv_cache = {20'000}});
  CHECK(parse_tolerance("kv_cache=3%") == within{.kv_cache = {30'000}});
  CHECK_THROWS_WITH(parse_tolerance("flop=1%"), ContainsSubstring("\"flop\", did you mean \"flops\"?"));
  CHECK_THROWS_WITH(parse_tolerance("flops=1"), ContainsSubstring("such as flops=4%; found \"flops=1\""));
  CHECK_THROWS_WITH(parse_tolerance("flops"), ContainsSubstring("found \"flops\""));
  CHECK_THROWS_WITH(parse_tolerance("kv=1000001%"), ContainsSubstring("up to 1000000%"));
  CHECK_THROWS_WITH(parse_tolerance("4%"), ContainsSubstring("such as flops=4%,params=4%,kv=4%; found \"4%\""));
  for (const char* twice : {"flops=4%,flops=5%", "flops=4%,flops=4%", "kv=1%,params=1%,kv_cache=1%"})
    CHECK_THROWS_WITH(parse_tolerance(twice), ContainsSubstring("every budget once"));
  CHECK_THROWS_WITH(parse_tolerance("flops=1%,,kv=1%"), ContainsSubstring("found \"\""));
}

TEST_CASE("loops are a span and the visits", "[tools][option]") {
  CHECK(parse_loop("middle:2") == middle_twice);
  CHECK(parse_loop("middle+6:3") == loop_spec{.first = loop_spec::middle, .count = 6, .visits = visits(3)});
  CHECK(parse_loop("3+6:2") == loop_spec{.first = 3, .count = 6, .visits = visits(2)});
  CHECK_THROWS_WITH(parse_loop("middle"), ContainsSubstring("no colon"));
  CHECK(parse_loop("middle:16").visits == visits(16));
  for (const char* wrong : {"middle:0", "middle:17", "middle:", "middle:99999999999999999999"})
    CHECK_THROWS_WITH(parse_loop(wrong), ContainsSubstring("visits must be from 1 to 16"));
  CHECK_THROWS_WITH(parse_loop("4:2"), ContainsSubstring("no number of layers"));
  CHECK_THROWS_WITH(parse_loop("-1+2:2"), ContainsSubstring("first layer must be from 0 to 255"));
  CHECK_THROWS_WITH(parse_loop("center+2:2"), ContainsSubstring("first layer"));
  CHECK_THROWS_WITH(parse_loop("1+:2"), ContainsSubstring("number of layers must be from 1 to 256"));
}

TEST_CASE("visits are plans of words", "[tools][option]") {
  const auto list = [](const char* text) { return parse_loop(std::string("middle:") + text).visits; };
  CHECK(list("1/4+1") == visit_list{}.then({.residual = {1, 4}}).then({}));
  CHECK(list("1,x2") == visits(2, {}));
  CHECK(list("2+1") == visit_list{}.then({.residual = {2, 1}}).then({}));
  CHECK(list("-3/7,learned+1") == visit_list{}.then({.residual = {-3, 7}, .learned = true}).then({}));
  CHECK(list("learned,x3") == visits(3, {.learned = true}));
  CHECK(list("c2,own+1") == visit_list{}.then({.compression = 2, .own_attention = true}).then({}));
  CHECK(list("1/2,c3,conv,normalised,chunk,k4,f1/2,h3/4,x2+own") == visit_list{}
                                                                        .then({.residual = {1, 2},
                                                                               .compression = 3,
                                                                               .encoder = encoder_kind::conv,
                                                                               .writeback = writeback_kind::normalised,
                                                                               .position = latent_position::chunk,
                                                                               .active = 4,
                                                                               .expert_hidden = {1, 2},
                                                                               .stream = {3, 4}},
                                                                              2)
                                                                        .then({.own_attention = true}));
  // The order of the words plays no part, and neighbours by one plan are one run.
  CHECK(list("x2,own,c2") == list("c2,own+c2,own"));
  CHECK(list("mean,c2,scaled,last_token") == list("c2"));
}

TEST_CASE("plans that cannot be read are refused by the word", "[tools][option]") {
  const auto refused = [](const char* list, const char* why) {
    CHECK_THROWS_WITH(parse_loop(std::string("middle:") + list),
                      ContainsSubstring("--loop must be SPAN:VISITS") && ContainsSubstring(why));
  };
  refused("c2+", "\"\" is no word of a plan");
  refused("c2,+1", "\"\" is no word of a plan");
  refused("lerned", "\"lerned\" is no word of a plan; the nearest is \"learned\"");
  refused("c2,cnov", "tokens a latent must be from 1 to 1000000000, found \"cnov\"");
  refused("c0", "tokens a latent must be from 1");
  refused("k0+1", "active experts must be from 1");
  refused("k+1", "active experts must be from 1");
  refused("f2x", "the share of hidden units must be a ratio such as 1/2, found \"f2x\"");
  refused("h", "the share of the stream must be a ratio");
  refused("h1/", "the share of the stream must be a ratio");
  refused("1/2/3", "is no word of a plan");
  refused("1/4,1/2+1", "the coefficient is given twice");
  refused("c2,c3", "tokens a latent is given twice");
  refused("conv,mean,c2", "the encoder is given twice");
  refused("conv+1", "an encoder is given, but no latents; add c2");
  refused("c2+direct", "a writeback is given, but no latents; add c2");
  refused("chunk,own+1", "a position of latents is given, but no latents; add c2");
  refused("own,own", "own is given twice");
  refused("x17,own", "visits by one plan must be from 1 to 16");
  refused("x9,own+x9,c2", "visits must be from 1 to 16");
  refused("k1+k2+k3+k4+k5+k6+k7+k8+k9", "at most 8 different plans in a row");
  CHECK(parse_loop("middle:k1+k2+k3+k4+k5+k6+k7+k8+k8").visits.count == 9);
}

TEST_CASE("every list of visits can be written on the command line", "[tools][option]") {
  testing::random_specs draw(31);
  for (int i = 0; i < 1'000; ++i) {
    const spec s = draw();
    const std::string text = "3+2:" + plans_text(s.loop.visits);
    if (s.loop.visits.count == 0) continue;
    // What a plan without latents says of latents means nothing, and is not written.
    visit_list meant;
    for (int run = 0; run < s.loop.visits.runs(); ++run) {
      visit_plan plan = visit_list::plan_of(s.loop.visits, run);
      if (plan.compression == 1) {
        plan.encoder = visit_plan{}.encoder;
        plan.writeback = visit_plan{}.writeback;
        plan.position = visit_plan{}.position;
      }
      meant = meant.then(plan, visit_list::length_of(s.loop.visits, run));
    }
    INFO(text);
    CHECK(parse_loop(text) == loop_spec{.first = 3, .count = 2, .visits = meant});
  }
  CHECK(plans_text(visits(2)) == "2");
  CHECK(plans_text(visits(1, {.residual = {3, 1}})) == "3,x1");
  CHECK(plans_text(visits(2, {})) == "1,x2");
  CHECK(plans_text(visit_list{}.then({}).then({.residual = {0, 1}})) == "1+0");
  for (const char* text : {"1/4+1", "c2,own+1", "-1/2,learned,c3,conv,direct,chunk,own,k2,f1/2,h1/2,x2+1", "3,x1"})
    CHECK(plans_text(parse_loop(std::string("middle:") + text).visits) == text);
}
