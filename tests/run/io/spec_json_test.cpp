// Does a spec survive JSON, and is wrong JSON refused by its place?
#include <climits>
#include <fstream>
#include <smelt/io/spec_json.hpp>
#include <smelt/spec/published.hpp>
#include <string>

#include "catch.hpp"
#include "support/random_specs.hpp"
#include "support/temporary_folder.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// A valid spec in which every field differs from its default (the second one covers latent attention and gelu).
constexpr spec every_field{
    .vocab = 1'000,
    .padded_vocab = 1'024,
    .context = 96,
    .width = 48,
    .layers = 10,
    .dense_layers = 1,
    .dense_hidden = 112,
    .dense_bias = true,
    .ffn = ffn_kind::gelu,
    .positions = position_kind::learned,
    .attention = {.heads = 6,
                  .kv_heads = 2,
                  .head_dim = 10,
                  .qkv_bias = true,
                  .o_bias = true,
                  .norm = qk_norm::full_width,
                  .sinks = true,
                  .window = 32,
                  .global_layers = layer_set{}.with(0).with(7).with(9),
                  .rotary_base = 500'000,
                  .latent = {.kv_rank = 16, .q_rank = 24, .nope_dim = 8, .rope_dim = 4, .value_dim = 12}},
    .experts = {.stored = 12,
                .active = 3,
                .hidden = 40,
                .shared_hidden = 56,
                .shared_gate = true,
                .bias = true,
                .router_bias = true,
                .balance_bias = true,
                .score = score_function::sigmoid,
                .renormalise = true},
    .norms_per_layer = 4,
    .norm_bias = true,
    .norm_eps = 1.0 / 3 * 1e-6,
    .tied_head = true,
    .head_bias = true,
    .loop = {.first = 2,
             .count = 4,
             .visits = visit_list{}
                           .then({.residual = {1, 4},
                                  .learned = true,
                                  .compression = 2,
                                  .encoder = encoder_kind::softmax,
                                  .writeback = writeback_kind::normalised,
                                  .position = latent_position::chunk,
                                  .own_attention = true,
                                  .active = 5,
                                  .expert_hidden = {3, 4},
                                  .stream = {2, 3}})
                           .then({.residual = {1, 1}}, 3)
                           .then({.residual = {-3, 7}, .compression = 96})},
    .exit_gate = true};
static_assert(is_valid(every_field));

std::string failure(const std::string& text) {
  try {
    (void)parse_spec(text, "file.json");
  } catch (const error& e) {
    CHECK(e.code() == errc::invalid_spec);
    CHECK(std::string(e.what()).rfind("file.json: ", 0) == 0);
    return e.what();
  }
  return "no error";
}

/// The document of a small valid spec with one value replaced.
std::string with(const std::string& pointer, const json& value) {
  json document = spec_to_json(spec{.vocab = 257,
                                    .context = 64,
                                    .width = 32,
                                    .layers = 4,
                                    .attention = {.heads = 4, .kv_heads = 2, .head_dim = 8},
                                    .experts = {.stored = 8, .active = 2, .hidden = 16},
                                    .loop = middle_twice});
  document[json::json_pointer(pointer)] = value;
  return document.dump();
}

}  // namespace

TEST_CASE("a spec survives the round trip exactly", "[io][spec_json]") {
  for (const spec& s : {every_field, published::smelt_200m::value, published::smelt_200m_baseline::value,
                        published::smelt_600m::value}) {
    CHECK(parse_spec(spec_to_json(s).dump(2), "text") == s);
    CHECK(spec_from_json(spec_to_json(s)) == s);
  }
}

TEST_CASE("every field of the spec is written under its own name", "[io][spec_json]") {
  // Every leaf must differ from the default spec's leaf: a field that is not written would keep the default.
  const json all = json(spec_to_json(every_field)).flatten();
  json defaults = json(spec_to_json(spec{}));
  defaults["loop"].erase("visits");
  const json leaves = defaults.flatten();
  for (const auto& item : leaves.items()) {
    INFO(item.key());
    if (item.key().find("global_layers") == std::string::npos) CHECK(all.at(item.key()) != item.value());
  }
  CHECK(all.at("/attention/latent/nope_dim") == 8);
  CHECK(all.at("/attention/global_layers/2") == 9);
  CHECK(all.at("/loop/visits/2/residual/0") == -3);
  CHECK(all.at("/experts/score") == "sigmoid");
  CHECK(all.at("/loop/visits/1/times") == 3);
  const json plan = json(spec_to_json(every_field))["loop"]["visits"][0].flatten();
  const json plain = json(spec_to_json(every_field))["loop"]["visits"][1].flatten();
  CHECK(plan.size() == 13);
  for (const auto& item : plan.items()) {
    INFO(item.key());
    if (item.key() != "/residual/0") CHECK(plain.at(item.key()) != item.value());
  }
}

TEST_CASE("random specs of every plan survive the round trip", "[io][spec_json]") {
  testing::random_specs draw(41);
  int plans = 0;
  for (int i = 0; i < 500; ++i) {
    const spec s = draw();
    const std::string text = spec_to_json(s).dump();
    REQUIRE(parse_spec(text, "text") == s);
    plans += s.loop.visits.runs();
  }
  CHECK(plans > 500);
}

TEST_CASE("short forms mean what they say", "[io][spec_json]") {
  const spec smelt_like =
      parse_spec(with("/loop", {{"first", "middle"}, {"count", "half"}, {"visits", {{"repeat", 2}}}}), "text");
  CHECK(smelt_like.loop == middle_twice);
  CHECK(spec_to_json(smelt_like)["loop"].dump() == R"({"first":"middle","count":"half","visits":{"repeat":2}})");

  const spec moe_loop =
      parse_spec(with("/loop/visits", {{"repeat", 3}, {"residual", {1, 1}}, {"own_attention", true}}), "text");
  CHECK(moe_loop.loop.visits == visits(3, {.residual = {1, 1}, .own_attention = true}));

  const spec listed = parse_spec(
      with("/loop/visits", json::array({{{"residual", {1, 4}}, {"compression", 2}}, json::object()})), "text");
  CHECK(listed.loop.visits == visit_list{}.then({.residual = {1, 4}, .compression = 2}).then({}));

  const spec runs = parse_spec(
      with("/loop/visits", json::array({{{"learned", true}, {"times", 3}}, {{"encoder", "conv"}, {"compression", 2}}})),
      "text");
  CHECK(runs.loop.visits ==
        visit_list{}.then({.learned = true}, 3).then({.compression = 2, .encoder = encoder_kind::conv}));
  CHECK(parse_spec(with("/loop/visits", json::array({json::object(), {{"times", 2}}})), "text").loop.visits ==
        visits(3, {}));

  const spec alternate = parse_spec(with("/attention/global_layers", {{"every", 2}, {"from", 1}}), "text");
  CHECK(alternate.attention.global_layers == every_layer(2, 1));
  CHECK(spec_to_json(alternate)["attention"]["global_layers"].dump() == R"({"every":2,"from":1})");
  CHECK(parse_spec(with("/attention/global_layers", {3, 0}), "text").attention.global_layers ==
        layer_set{}.with(0).with(3));
  CHECK(parse_spec(with("/norm_eps", 0.5), "text").norm_eps == 0.5);
}

TEST_CASE("an absent field has the default of the C++ field", "[io][spec_json]") {
  const spec s = parse_spec(R"({"vocab": 257, "context": 64, "width": 32, "layers": 2,
                                "attention": {"heads": 4, "head_dim": 8},
                                "experts": {"stored": 4, "active": 1, "hidden": 16}})",
                            "text");
  CHECK(s == spec{.vocab = 257,
                  .context = 64,
                  .width = 32,
                  .layers = 2,
                  .attention = {.heads = 4, .head_dim = 8},
                  .experts = {.stored = 4, .active = 1, .hidden = 16}});
}

TEST_CASE("an unknown key is refused with the nearest known one", "[io][spec_json]") {
  CHECK_THAT(failure(with("/attention/head", 4)),
             ContainsSubstring("unknown key \"attention.head\"; did you mean \"attention.heads\"?"));
  CHECK_THAT(failure(with("/vocab_size", 4)), ContainsSubstring("unknown key \"vocab_size\""));
  CHECK_THAT(failure(with("/experts/renormalize", true)), ContainsSubstring("\"experts.renormalise\""));
  CHECK_THAT(failure(with("/loop/visits", json::array({{{"compresion", 2}}}))),
             ContainsSubstring("\"loop.visits[0].compresion\"; did you mean \"loop.visits[0].compression\"?"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", 2}, {"times", 2}})), ContainsSubstring("\"loop.visits.times\""));
  // What a list's entry may say besides a plan is known as well.
  CHECK_THAT(failure(with("/loop/visits", json::array({{{"time", 2}}}))),
             ContainsSubstring("\"loop.visits[0].time\"; did you mean \"loop.visits[0].times\"?"));
  CHECK_THAT(failure(with("/loop/visits", json::array({3}))), ContainsSubstring("loop.visits[0] must be an object"));
}

TEST_CASE("a value of the wrong type is named with its path, what was found and what is needed", "[io][spec_json]") {
  CHECK_THAT(failure(with("/width", "wide")), ContainsSubstring("width must be an integer; found \"wide\""));
  CHECK_THAT(failure(with("/width", 32.0)), ContainsSubstring("width must be an integer; found 32.0"));
  CHECK_THAT(failure(with("/attention/heads", nullptr)), ContainsSubstring("attention.heads must be an integer"));
  CHECK_THAT(failure(with("/vocab", 4294967553LL)), ContainsSubstring("vocab must be an integer of 32 bits"));
  CHECK_THAT(failure(with("/vocab", ULLONG_MAX)), ContainsSubstring("vocab must be an integer of 32 bits"));
  CHECK_THAT(failure(with("/vocab", LLONG_MIN)), ContainsSubstring("vocab must be an integer of 32 bits"));
  CHECK_THAT(failure(with("/tied_head", 1)), ContainsSubstring("tied_head must be true or false; found 1"));
  CHECK_THAT(failure(with("/ffn", "relu")),
             ContainsSubstring("ffn must be one of \"swiglu\", \"gelu\"; found \"relu\""));
  CHECK_THAT(failure(with("/norm_eps", "1e-5")), ContainsSubstring("norm_eps must be a number"));
  CHECK_THAT(failure(with("/experts", 8)), ContainsSubstring("experts must be an object {...}; found 8"));
  CHECK_THAT(failure(with("/loop/first", "center")), ContainsSubstring("\"middle\" or an integer of at least 0"));
  CHECK_THAT(failure(with("/loop/first", -1)), ContainsSubstring("\"middle\" or an integer of at least 0; found -1"));
  CHECK_THAT(failure(with("/loop/count", -1)), ContainsSubstring("\"half\" or an integer of at least 0; found -1"));
  CHECK_THAT(failure(with("/loop/visits", 2)), ContainsSubstring("loop.visits must be a list of visits or"));
  CHECK_THAT(failure(with("/loop/visits", json::array({{{"residual", {1}}}}))),
             ContainsSubstring("loop.visits[0].residual must be [numerator, denominator]"));
  for (const int times : {0, -1, 17, 2'000'000'000})
    CHECK_THAT(failure(with("/loop/visits", json::array({{{"times", times}}}))),
               ContainsSubstring("loop.visits[0].times must be from 1 to 16; found " + std::to_string(times)));
  CHECK_THAT(failure(with("/loop/visits", json::array({3}))), ContainsSubstring("loop.visits[0] must be an object"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", 2}, {"encoder", "max"}})),
             ContainsSubstring("loop.visits.encoder must be one of \"mean\", \"conv\", \"softmax\""));
  CHECK_THAT(failure(with("/attention/global_layers", {0, 256})),
             ContainsSubstring("attention.global_layers[1] must be a layer from 0 to 255; found 256"));
  CHECK_THAT(failure(with("/attention/global_layers", {{"every", 0}})), ContainsSubstring("every must be at least 1"));
  CHECK_THAT(failure("[]"), ContainsSubstring("the document must be an object {...}; found []"));
}

TEST_CASE("a spec that cannot exist gives the words of its rule", "[io][spec_json]") {
  CHECK_THAT(failure(with("/experts/active", 9)),
             ContainsSubstring("[smelt-S016]") && ContainsSubstring("found 9, limit 8"));
  CHECK_THAT(failure(with("/attention/kv_heads", 3)), ContainsSubstring("[smelt-S009]"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", 1'000'000'000}})),
             ContainsSubstring("[smelt-S026]") && ContainsSubstring("found 1000000000"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", 0}})), ContainsSubstring("[smelt-S025]"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", -5}})), ContainsSubstring("[smelt-S025]"));
  json nine = json::array();
  for (int i = 1; i <= 9; ++i) nine.push_back({{"compression", i}});
  CHECK_THAT(failure(with("/loop/visits", nine)), ContainsSubstring("[smelt-S031]") && ContainsSubstring("found 9"));
  json seventeen = json::array();
  for (int i = 0; i < 17; ++i) seventeen.push_back(json::object());
  CHECK_THAT(failure(with("/loop/visits", seventeen)),
             ContainsSubstring("[smelt-S026]") && ContainsSubstring("found 17"));
  CHECK_THAT(failure(with("/loop/visits", json::array({{{"times", 16}}, {{"times", 2}}}))),
             ContainsSubstring("[smelt-S026]") && ContainsSubstring("found 18"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", 2}, {"active", 9}})), ContainsSubstring("[smelt-S032]"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", 2}, {"expert_hidden", {1, 3}}})),
             ContainsSubstring("[smelt-S033]"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", 2}, {"stream", {4, 3}}})), ContainsSubstring("[smelt-S034]"));
  CHECK_THAT(failure(with("/loop/visits", {{"repeat", 2}, {"residual", {0, 1}}, {"learned", true}})),
             ContainsSubstring("[smelt-S035]"));
  CHECK_THAT(failure("{}"), ContainsSubstring("[smelt-S001]"));
}

TEST_CASE("text that is not JSON is refused with the place or the likely cause", "[io][spec_json]") {
  CHECK_THAT(failure("{\"vocab\": 257,\n \"width\": }"), ContainsSubstring("line 2"));
  CHECK_THAT(failure(""), ContainsSubstring("a spec must be JSON; found an empty file"));
  CHECK_THAT(failure("<!DOCTYPE html><html></html>"), ContainsSubstring("HTML page"));
  // A zero byte ends nothing: what follows it would be ignored.
  const std::string whole = R"({"vocab": 257, "context": 8, "width": 8, "layers": 1,
    "attention": {"heads": 1, "head_dim": 8}, "experts": {"stored": 1, "active": 1, "hidden": 8}})";
  CHECK(parse_spec(whole, "test").width == 8);
  for (const std::size_t at : {whole.size(), whole.find("layers"), std::size_t{0}}) {
    std::string text = whole;
    text.insert(at, 1, '\0');
    CHECK_THAT(failure(text), ContainsSubstring("a zero byte at offset " + std::to_string(at)));
  }
  CHECK_THAT(failure("version https://git-lfs.github.com/spec/v1\n"), ContainsSubstring("Git LFS pointer"));
  CHECK_THAT(failure(R"({"width": 32, "attention": {"heads": 1, "heads": 2}})"),
             ContainsSubstring("key \"heads\" stands twice"));
  CHECK(failure(R"({"width": 32, "attention": {"heads": 1}, "experts": {"hidden": 2}})").find("twice") ==
        std::string::npos);
}

TEST_CASE("a spec file is read, and what is not one is refused by its path", "[io][spec_json]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "model.json";
  std::ofstream(path) << spec_to_json(every_field).dump(2);
  CHECK(read_spec(path) == every_field);
  CHECK_THROWS_WITH(read_spec(folder.path() / "absent.json"), ContainsSubstring("absent.json: cannot be opened"));
  CHECK_THROWS_WITH(read_spec(folder.path()), ContainsSubstring("found a folder"));
  std::ofstream(path) << std::string(max_spec_bytes + 1, ' ');
  CHECK_THROWS_WITH(read_spec(path), ContainsSubstring("at most 1048576 bytes"));
}
