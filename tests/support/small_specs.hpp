// Small architectures that together use every field the model executes.
#pragma once

#include <smelt/spec/spec.hpp>
#include <string>
#include <utility>
#include <vector>

namespace smelt_test {

using namespace smelt;

/// A spec that runs in microseconds; the variants below change one thing each.
inline constexpr spec tiny{.vocab = 11,
                           .context = 16,
                           .width = 8,
                           .layers = 2,
                           .attention = {.heads = 4, .kv_heads = 2, .head_dim = 4},
                           .experts = {.stored = 4, .active = 2, .hidden = 6}};

struct named_spec {
  std::string name;
  spec value;
};

/// `tiny` and its variants.
inline std::vector<named_spec> executable_variants() {
  std::vector<named_spec> all{{"tiny", tiny}};
  const auto add = [&](const char* name, auto change) {
    spec s = tiny;
    change(s);
    all.push_back({name, s});
  };
  add("tied head", [](spec& s) { s.tied_head = true; });
  add("padded vocabulary", [](spec& s) { s.padded_vocab = 16; });
  add("renormalised", [](spec& s) { s.experts.renormalise = true; });
  add("sigmoid scores", [](spec& s) { s.experts.score = score_function::sigmoid; });
  add("sigmoid scores, renormalised, balancing bias", [](spec& s) {
    s.experts.score = score_function::sigmoid;
    s.experts.renormalise = true;
    s.experts.balance_bias = true;
  });
  add("fully active", [](spec& s) { s.experts.active = 4; });
  add("shared expert", [](spec& s) { s.experts.shared_hidden = 5; });
  add("leading dense layer", [](spec& s) {
    s.dense_layers = 1;
    s.dense_hidden = 7;
  });
  add("all dense", [](spec& s) {
    s.dense_layers = 2;
    s.dense_hidden = 7;
    s.experts = {};
  });
  add("QK-norm per head", [](spec& s) { s.attention.norm = qk_norm::per_head; });
  add("QK-norm over the full width", [](spec& s) { s.attention.norm = qk_norm::full_width; });
  add("window in one layer", [](spec& s) {
    s.attention.window = 3;
    s.attention.global_layers = layer_set{}.with(1);
  });
  add("window in a loop that a dense layer leads", [](spec& s) {
    s.layers = 4;
    s.dense_layers = 2;
    s.dense_hidden = 7;
    s.attention.window = 2;
    s.attention.global_layers = layer_set{}.with(0).with(2);
    s.loop = middle_twice;
  });
  add("one expert", [](spec& s) { s.experts = {.stored = 1, .active = 1, .hidden = 6}; });
  add("more experts than tokens", [](spec& s) { s.experts = {.stored = 40, .active = 3, .hidden = 2}; });
  add("large epsilon, small rotary base, QK-norm", [](spec& s) {
    s.norm_eps = 0.25;
    s.attention.rotary_base = 5;
    s.attention.norm = qk_norm::per_head;
  });
  add("one head", [](spec& s) { s.attention = {.heads = 1, .kv_heads = 1, .head_dim = 6}; });
  add("loop of one layer", [](spec& s) {
    s.layers = 3;
    s.loop = {.first = 1, .count = 1, .visits = visits(2)};
  });
  add("middle half, coefficients 1/4 and 1, four layers", [](spec& s) {
    s.layers = 4;
    s.loop = {.count = loop_spec::half, .visits = visit_list{}.then({.residual = {1, 4}}).then({.residual = {1, 1}})};
  });
  add("everything looped three times", [](spec& s) {
    s.layers = 1;
    s.loop = {.first = 0, .count = 1, .visits = visits(3)};
  });
  return all;
}

/// Four layers, the middle two visited by each kind of plan: what a visit can say, one thing at a time and together.
inline std::vector<named_spec> visit_variants() {
  std::vector<named_spec> all;
  const auto add = [&](const char* name, const visit_list& list) {
    spec s = tiny;
    s.layers = 4;
    s.loop = {.count = loop_spec::half, .visits = list};
    all.push_back({name, s});
  };
  const auto first = [](const visit_plan& plan) { return visit_list{}.then(plan).then({}); };
  add("learned coefficients", visit_list{}.then({.residual = {1, 4}, .learned = true}).then({.learned = true}));
  add("compressed by 2", first({.compression = 2}));
  add("compressed by 3, positions of chunks", first({.compression = 3, .position = latent_position::chunk}));
  add("compressed by 4, in the last visit", visit_list{}.then({}).then({.compression = 4}));
  add("convolution", first({.compression = 2, .encoder = encoder_kind::conv}));
  add("softmax aggregation", first({.compression = 3, .encoder = encoder_kind::softmax}));
  add("direct writeback", first({.compression = 2, .writeback = writeback_kind::direct}));
  add("scalar writeback", first({.compression = 3, .writeback = writeback_kind::scalar}));
  add("normalised writeback", first({.compression = 2, .writeback = writeback_kind::normalised}));
  add("attention of its own", first({.own_attention = true}));
  add("attention of their own in every visit", visits(3, {.own_attention = true}));
  add("one active expert", first({.active = 1}));
  add("more active experts", first({.active = 3}));
  add("half of the hidden units", first({.expert_hidden = {1, 2}}));
  add("half of the stream", first({.stream = {1, 2}}));
  add("three quarters of the stream, compressed", first({.compression = 2, .stream = {3, 4}}));
  add("compressed, learned, attention of its own",
      visit_list{}.then({.learned = true, .compression = 2, .own_attention = true}).then({.learned = true}, 2));
  add("everything at once", visit_list{}
                                .then({.residual = {1, 4},
                                       .learned = true,
                                       .compression = 2,
                                       .encoder = encoder_kind::conv,
                                       .writeback = writeback_kind::normalised,
                                       .own_attention = true,
                                       .active = 1,
                                       .expert_hidden = {1, 3},
                                       .stream = {1, 2}})
                                .then({.residual = {1, 2}}, 2)
                                .then({.compression = 3, .encoder = encoder_kind::softmax, .active = 3}));
  add("sixteen visits", visits(16));
  add("compressed, under a window in one layer", first({.compression = 2, .position = latent_position::chunk}));
  all.back().value.attention.window = 2;
  all.back().value.attention.global_layers = layer_set{}.with(1);
  return all;
}

/// Every architecture above.
inline std::vector<named_spec> all_variants() {
  std::vector<named_spec> all = executable_variants();
  for (named_spec& one : visit_variants()) all.push_back(std::move(one));
  return all;
}

}  // namespace smelt_test
