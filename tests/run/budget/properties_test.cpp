// Do budgets keep their promises on any architecture? Random specs against sums, a walk of the schedule, and growth.
#include <array>
#include <cstdint>
#include <cstring>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/budget/memory.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/budget/sparsity.hpp>
#include <smelt/budget/table.hpp>
#include <smelt/spec/published.hpp>

#include "catch.hpp"
#include "support/public_models.hpp"
#include "support/random_specs.hpp"

namespace {

using namespace smelt;
namespace models = smelt::public_models;

constexpr int trials = 2'000;

// Every figure again, in the plainest way: layer by layer of the executed schedule, in wide arithmetic.
__extension__ using wide = __int128;

wide matrices_of_ffn(const spec& s, int width, int hidden) {
  return wide(s.ffn == ffn_kind::swiglu ? 3 : 2) * width * hidden;
}
wide biases_of_ffn(const spec& s, int hidden) {
  return (s.ffn == ffn_kind::swiglu ? 2 : 1) * wide(hidden) + s.width;
}
wide attention_of(const spec& s) {
  const attention_spec& a = s.attention;
  const latent_attention_spec& l = a.latent;
  wide n = (a.sinks ? a.heads : 0) + (a.o_bias ? s.width : 0);
  if (l.kv_rank > 0) {
    const wide query = wide(a.heads) * (l.nope_dim + l.rope_dim);
    n += l.q_rank > 0 ? wide(s.width) * l.q_rank + l.q_rank + l.q_rank * query : s.width * query;
    n += wide(s.width) * (l.kv_rank + l.rope_dim) + l.kv_rank;
    n += wide(l.kv_rank) * a.heads * (l.nope_dim + l.value_dim);
    return n + wide(a.heads) * l.value_dim * s.width;
  }
  const wide q = wide(a.heads) * a.head_dim;
  const wide kv = wide(a.kv_heads) * a.head_dim;
  n += 2 * q * s.width + 2 * kv * s.width + (a.qkv_bias ? q + 2 * kv : 0);
  if (a.norm == qk_norm::per_head) n += wide(2) * a.head_dim;
  if (a.norm == qk_norm::full_width) n += q + kv;
  return n;
}

wide total_by_walking(const spec& s) {
  wide n = wide(table_rows(s)) * s.width * (s.tied_head ? 1 : 2) + (s.head_bias ? table_rows(s) : 0);
  if (s.positions == position_kind::learned) n += wide(s.context) * s.width;
  const wide norm = wide(s.width) * (s.norm_bias ? 2 : 1);
  const experts_spec& e = s.experts;
  for (int i = 0; i < s.layers; ++i) {
    n += attention_of(s) + s.norms_per_layer * norm;
    if (!has_experts(s, i)) {
      n += matrices_of_ffn(s, s.width, s.dense_hidden) + (s.dense_bias ? biases_of_ffn(s, s.dense_hidden) : 0);
      continue;
    }
    n += wide(s.width) * e.stored + (e.router_bias ? e.stored : 0) + (e.balance_bias ? e.stored : 0);
    n += e.stored * (matrices_of_ffn(s, s.width, e.hidden) + (e.bias ? biases_of_ffn(s, e.hidden) : 0));
    if (e.shared_hidden > 0) {
      n += matrices_of_ffn(s, s.width, e.shared_hidden) + (e.bias ? biases_of_ffn(s, e.shared_hidden) : 0);
      n += e.shared_gate ? s.width : 0;
    }
  }
  // The first attention of the span is its own; every other visit with attention of its own adds one a layer, unless
  // all visits have their own, when the first of them takes the place of the shared one.
  const loop_span span = span_of(s);
  int own = 0;
  for (int v = 0; v < span.visits && span.count > 0; ++v) own += s.loop.visits[v].own_attention;
  if (own > 0 && own == span.visits) --own;
  n += wide(own) * span.count * attention_of(s);
  // What every visit keeps for itself.
  for (int v = 0; v < span.visits && span.count > 0; ++v) {
    const visit_plan plan = s.loop.visits[v];
    const wide chunk = wide(plan.compression) * s.width;
    n += plan.learned ? 1 : 0;
    if (plan.compression > 1) {
      if (plan.encoder == encoder_kind::conv) n += chunk;
      if (plan.encoder == encoder_kind::softmax) n += s.width;
      if (plan.writeback == writeback_kind::scaled || plan.writeback == writeback_kind::normalised) n += chunk;
      if (plan.writeback == writeback_kind::scalar) n += plan.compression;
    }
    if (plan.stream.num != plan.stream.den)
      n += wide(2) * s.width * (wide(s.width) * plan.stream.num / plan.stream.den);
  }
  return n + norm + (s.exit_gate ? s.width + 1 : 0);
}

struct walked {
  wide forward = 0;
  wide kv_held = 0;
};
walked walk(const spec& s) {
  walked w;
  const wide t = s.context;
  const attention_spec& a = s.attention;
  const latent_attention_spec& l = a.latent;
  const experts_spec& e = s.experts;
  for (const executed_layer run : schedule(s)) {
    const std::int64_t positions = executed_positions(run, s.context);
    const int window = window_of(s, run.layer);
    wide pairs = 0;
    std::int64_t kept = positions;
    for (std::int64_t p = 1; p <= positions; ++p) pairs += window > 0 && p > window ? window : p;
    if (window > 0 && kept > window) kept = window;
    wide multiplies = 0;
    const int width = static_cast<int>(wide(s.width) * run.plan.stream.num / run.plan.stream.den);
    const int hidden = static_cast<int>(wide(e.hidden) * run.plan.expert_hidden.num / run.plan.expert_hidden.den);
    const int active = run.plan.active > 0 ? run.plan.active : e.active;
    if (l.kv_rank > 0) {
      const wide query = wide(a.heads) * (l.nope_dim + l.rope_dim);
      multiplies += l.q_rank > 0 ? (width + query) * l.q_rank : width * query;
      multiplies += wide(width) * (l.kv_rank + l.rope_dim) + wide(l.kv_rank) * a.heads * (l.nope_dim + l.value_dim);
      multiplies += wide(a.heads) * l.value_dim * width;
      w.forward += 2 * pairs * a.heads * (l.nope_dim + l.rope_dim + l.value_dim);
      w.kv_held += wide(kept) * (l.kv_rank + l.rope_dim) * 2;
    } else {
      multiplies += wide(width) * a.head_dim * 2 * (a.heads + a.kv_heads);
      w.forward += 4 * pairs * a.heads * a.head_dim;
      w.kv_held += wide(kept) * 2 * a.kv_heads * a.head_dim * 2;
    }
    if (has_experts(s, run.layer)) {
      multiplies += wide(width) * e.stored + active * matrices_of_ffn(s, width, hidden);
      if (e.shared_hidden > 0) multiplies += matrices_of_ffn(s, width, e.shared_hidden) + (e.shared_gate ? width : 0);
    } else {
      multiplies += matrices_of_ffn(s, width, s.dense_hidden);
    }
    // The projections of a visit stand around its layers.
    if (run.enters && width < s.width) multiplies += wide(s.width) * width;
    if (run.leaves && width < s.width) multiplies += wide(s.width) * width;
    w.forward += wide(positions) * 2 * multiplies;
  }
  w.forward += 2 * t * table_rows(s) * s.width;
  if (s.exit_gate) w.forward += 2 * t * s.width * span_of(s).visits;
  return w;
}

TEST_CASE("budgets equal a walk of the executed schedule on random architectures") {
  testing::random_specs draw(1);
  for (int i = 0; i < trials; ++i) {
    const spec s = draw();
    REQUIRE(first_violation(s).broken == rule::none);
    REQUIRE(wide(parameters(s).total) == total_by_walking(s));
    const walked w = walk(s);
    REQUIRE(wide(flops(s).forward) == w.forward);
    REQUIRE(wide(kv_cache(s).bytes_at_context) == w.kv_held);
  }
}

TEST_CASE("the parts are the whole") {
  testing::random_specs draw(2);
  for (int i = 0; i < trials; ++i) {
    const spec s = draw();
    const parameter_count p = parameters(s);
    const std::int64_t outside = p.embedding + p.positions + p.head;
    REQUIRE(p.total == outside + p.attention + p.own_attention + p.router + p.experts + p.shared_experts + p.dense_ffn +
                           p.norms + p.exit_gate + p.coefficients + p.encoders + p.writebacks + p.projections);
    REQUIRE(p.active == p.total - p.experts + p.active_experts);
    REQUIRE(p.active_without_input_table == p.active - (s.tied_head ? 0 : p.embedding));
    REQUIRE(p.non_embedding == p.total - outside);
    REQUIRE(p.non_expert == p.total - p.experts);
    REQUIRE(p.stored == p.total + (s.tied_head ? p.embedding : 0));
    REQUIRE(unrolled_parameters(p, 1) == p.matrices_active);
    REQUIRE(p.matrices_loop <= p.matrices_active);
    REQUIRE(p.matrices_active <= p.matrices);
    REQUIRE(p.matrices <= p.non_embedding);
    for (const named_convention& n : named_conventions) {
      const flop_count f = flops(s, *n.value);
      if (!f.covered()) {
        REQUIRE(f.forward == 0);
        continue;
      }
      REQUIRE(f.forward == f.attention_projections + f.attention_scores + f.router + f.experts + f.shared_experts +
                               f.dense_ffn + f.head + f.input_table + f.exit_gate + f.visit_projections + f.vectors);
      REQUIRE(f.train >= 3 * f.forward);
    }
  }
}

TEST_CASE("no budget shrinks when a field grows") {
  testing::random_specs draw(3);
  int spec::* const top[] = {&spec::vocab, &spec::context, &spec::width, &spec::dense_hidden};
  int attention_spec::* const attention[] = {&attention_spec::head_dim, &attention_spec::window};
  int experts_spec::* const experts[] = {&experts_spec::stored, &experts_spec::hidden, &experts_spec::active};
  const auto check = [](const spec& before, const spec& after) {
    if (first_violation(after).broken != rule::none) return;
    REQUIRE(parameters(after).total >= parameters(before).total);
    REQUIRE(parameters(after).active >= parameters(before).active);
    REQUIRE(flops(after).forward >= flops(before).forward);
    REQUIRE(kv_cache(after).bytes_at_context >= kv_cache(before).bytes_at_context);
    REQUIRE(memory_of_training(after).total >= memory_of_training(before).total);
  };
  for (int i = 0; i < trials; ++i) {
    spec s = draw();
    s.padded_vocab = 0;
    for (int spec::* field : top) {
      spec grown = s;
      grown.*field += 1 + draw.between(0, 5);
      check(s, grown);
    }
    for (int attention_spec::* field : attention) {
      if (s.attention.*field == 0) continue;  // a window of 0 is the largest
      spec grown = s;
      grown.attention.*field += 2;
      check(s, grown);
    }
    for (int experts_spec::* field : experts) {
      spec grown = s;
      grown.experts.*field += 1;
      check(s, grown);
    }
    spec grown = s;
    grown.attention.kv_heads *= 2;
    grown.attention.heads *= 2;
    check(s, grown);
    if (s.loop.count > 0 && s.loop.visits.count < max_visits) {
      grown = s;
      grown.loop.visits = grown.loop.visits.then({});
      check(s, grown);
    }
  }
}

// ---- what a visit plan changes --------------------------------------------------------------------------------------

/// The parts of a forward pass that the middle two layers of four cost in a loop of one visit by `plan`.
struct visit_cost {
  std::int64_t projections, scores, router, experts, shared, visit_projections, kv;
};
visit_cost cost_of_visit(spec s, const visit_plan& plan, std::int64_t tokens) {
  s.loop = {.first = 1, .count = s.layers - 2, .visits = visits(2, {})};
  spec more = s;
  more.loop.visits = more.loop.visits.then(plan);
  const flop_count f = flops(s, conventions::smelt, tokens);
  const flop_count g = flops(more, conventions::smelt, tokens);
  return {g.attention_projections - f.attention_projections,
          g.attention_scores - f.attention_scores,
          g.router - f.router,
          g.experts - f.experts,
          g.shared_experts - f.shared_experts,
          g.visit_projections - f.visit_projections,
          kv_cache(more, 2, tokens).bytes_at_context - kv_cache(s, 2, tokens).bytes_at_context};
}
constexpr spec moe{.vocab = 257,
                   .context = 512,
                   .width = 96,
                   .layers = 6,
                   .attention = {.heads = 6, .kv_heads = 2, .head_dim = 16},
                   .experts = {.stored = 24, .active = 8, .hidden = 48, .shared_hidden = 40}};

TEST_CASE("a compressed visit costs its share of everything, and its square of the scores") {
  for (const int c : {2, 3, 4, 7})
    for (const std::int64_t chunks : {1, 2, 5, 64}) {
      const std::int64_t tokens = c * chunks;
      const visit_cost full = cost_of_visit(moe, {}, tokens);
      const visit_cost less = cost_of_visit(moe, {.compression = c}, tokens);
      CHECK(less.projections * c == full.projections);
      CHECK(less.router * c == full.router);
      CHECK(less.experts * c == full.experts);
      CHECK(less.shared * c == full.shared);
      CHECK(less.kv * c == full.kv);
      // Causally T (T + 1) / 2 pairs become n (n + 1) / 2 of n = T / c; of the whole square, exactly the square's
      // share.
      CHECK(less.scores * (tokens * (tokens + 1)) == full.scores * (chunks * (chunks + 1)));
      // So it is of a mean that is given for tokens: latents attend to its c-th part, and are as many fewer.
      convention given = conventions::full_square;
      given.positions = attended::given;
      given.mean_attended = 2 * std::int64_t{c} * c;
      for (const convention& by : {conventions::full_square, given}) {
        const auto scores = [&](const visit_plan& plan) {
          spec s = moe;
          s.loop = {.first = 1, .count = 4, .visits = visits(1, plan)};
          spec outside = moe;
          outside.layers = 2;
          return flops(s, by, tokens).attention_scores - flops(outside, by, tokens).attention_scores;
        };
        CHECK(scores({}) > 0);
        CHECK(scores({.compression = c}) * c * c == scores({}));
      }
      // Tokens of a trailing partial chunk add nothing.
      for (int more = 1; more < c; ++more) {
        const visit_cost odd = cost_of_visit(moe, {.compression = c}, tokens + more);
        CHECK(odd.projections == less.projections);
        CHECK(odd.scores == less.scores);
        CHECK(odd.experts == less.experts);
        CHECK(odd.kv == less.kv);
      }
    }
  // Fewer tokens than a chunk: the visit costs nothing.
  const visit_cost none = cost_of_visit(moe, {.compression = 4, .stream = {1, 2}}, 3);
  CHECK(none.projections + none.scores + none.router + none.experts + none.visit_projections + none.kv == 0);
}

TEST_CASE("fewer experts, hidden units and channels cost their share of what they cut") {
  constexpr std::int64_t tokens = 100;
  constexpr std::int64_t layers = 4;
  const visit_cost full = cost_of_visit(moe, {}, tokens);
  const visit_cost active = cost_of_visit(moe, {.active = 4}, tokens);
  CHECK(2 * active.experts == full.experts);
  CHECK(active.router == full.router);
  CHECK(active.projections == full.projections);
  const visit_cost hidden = cost_of_visit(moe, {.expert_hidden = {1, 2}}, tokens);
  CHECK(2 * hidden.experts == full.experts);
  CHECK(hidden.router == full.router);
  CHECK(hidden.shared == full.shared);
  const visit_cost both = cost_of_visit(moe, {.active = 4, .expert_hidden = {1, 2}}, tokens);
  CHECK(4 * both.experts == full.experts);

  const visit_cost narrow = cost_of_visit(moe, {.stream = {1, 2}}, tokens);
  CHECK(2 * narrow.projections == full.projections);
  CHECK(2 * narrow.router == full.router);
  CHECK(2 * narrow.experts == full.experts);
  CHECK(2 * narrow.shared == full.shared);
  CHECK(narrow.scores == full.scores);
  CHECK(narrow.kv == full.kv);
  CHECK(full.visit_projections == 0);
  CHECK(narrow.visit_projections == tokens * 4 * moe.width * (moe.width / 2));
  // Behind pooling there are half as many positions to project.
  CHECK(cost_of_visit(moe, {.compression = 2, .stream = {1, 2}}, tokens).visit_projections * 2 ==
        narrow.visit_projections);
  // 4 layers, by hand: H (2 nq + 2 nkv) dk, H E, 3 H k f.
  CHECK(full.projections == 2 * tokens * layers * 96 * (12 + 4) * 16);
  CHECK(full.router == 2 * tokens * layers * 96 * 24);
  CHECK(full.experts == 2 * tokens * layers * 3 * 96 * 8 * 48);
}

TEST_CASE("visits that change nothing cost what they did, and what they keep is counted once a visit") {
  spec s = moe;
  s.loop = {.first = 1, .count = 4, .visits = visits(3)};
  const parameter_count before = parameters(s);
  const auto after = [&](const visit_list& list) {
    spec t = s;
    t.loop.visits = list;
    CHECK(is_valid(t));
    // Whatever else the visits say, the layers stay what they are.
    CHECK(parameters(t).attention == before.attention);
    CHECK(parameters(t).experts == before.experts);
    return parameters(t);
  };
  const std::int64_t h = moe.width;
  // Coefficients, numbers written out for defaults: not a parameter, not a FLOP.
  for (const visit_plan& plan : {visit_plan{}, visit_plan{.residual = {1, 3}},
                                 visit_plan{.encoder = encoder_kind::conv, .writeback = writeback_kind::scalar},
                                 visit_plan{.active = 8, .expert_hidden = {3, 3}, .stream = {5, 5}}}) {
    const parameter_count p = after(visits(3, plan));
    CHECK(std::memcmp(&p, &before, sizeof p) == 0);
    spec t = s;
    t.loop.visits = visits(3, plan);
    CHECK(flops(t).forward == flops(s).forward);
    CHECK(kv_cache(t).bytes_at_context == kv_cache(s).bytes_at_context);
    CHECK(memory_of_training(t).total == memory_of_training(s).total);
    CHECK(tensor_count(t) == tensor_count(s));
  }
  CHECK(after(visits(3, {.learned = true})).coefficients == 3);
  CHECK(after(visits(3, {.learned = true})).total == before.total + 3);
  // The paper's writeback: 2 H at c = 2, once a visit.
  CHECK(after(visits(1, {.compression = 2}).then({})).writebacks == 2 * h);
  CHECK(after(visits(1, {.compression = 2}).then({})).total == before.total + 2 * h);
  CHECK(after(visits(3, {.compression = 4, .writeback = writeback_kind::normalised})).writebacks == 3 * 4 * h);
  CHECK(after(visits(3, {.compression = 4, .writeback = writeback_kind::scalar})).writebacks == 3 * 4);
  CHECK(after(visits(3, {.compression = 4, .writeback = writeback_kind::direct})).total == before.total);
  CHECK(after(visits(2, {.compression = 3, .encoder = encoder_kind::conv})).encoders == 2 * 3 * h);
  CHECK(after(visits(2, {.compression = 3, .encoder = encoder_kind::softmax})).encoders == 2 * h);
  const parameter_count narrow = after(visits(2, {.stream = {1, 3}}).then({}));
  CHECK(narrow.projections == 2 * 2 * h * (h / 3));
  CHECK(narrow.matrices == before.matrices + narrow.projections);
  CHECK(narrow.matrices_active == before.matrices_active);
  CHECK(narrow.active == before.active + narrow.projections);
  // What a token meets is what the visit that runs most experts, or most of each, uses.
  const std::int64_t expert = 3 * h * moe.experts.hidden;
  CHECK(after(visits(2, {.active = 4}).then({})).active_experts == before.active_experts);
  CHECK(after(visits(3, {.active = 4})).active_experts == before.active_experts - 4 * 4 * expert);
  CHECK(after(visits(3, {.active = 16})).active_experts == before.active_experts + 4 * 8 * expert);
  CHECK(after(visits(2, {.active = 4}).then({.expert_hidden = {1, 4}})).active_experts ==
        before.active_experts - 4 * 4 * expert);
  CHECK(after(visits(3, {.active = 4})).matrices_loop == before.matrices_loop - 4 * 4 * expert);
  // Named tensors: a coefficient, an encoder, a writeback, two projections a visit.
  spec all = s;
  all.loop.visits = visits(2, {.learned = true, .compression = 2, .encoder = encoder_kind::conv, .stream = {1, 2}});
  CHECK(tensor_count(all) == tensor_count(s) + 2 * 5);
}

TEST_CASE("conventions that count vectors count pooling and writing back") {
  convention with_vectors = conventions::smelt;
  with_vectors.vectors = true;
  spec s = moe;
  s.loop = {.first = 1, .count = 4, .visits = visits(2, {})};
  const auto added = [&](const visit_plan& plan, std::int64_t tokens) {
    spec t = s;
    t.loop.visits = t.loop.visits.then(plan);
    return flops(t, with_vectors, tokens).vectors;
  };
  const std::int64_t h = moe.width;
  // 7 tokens, chunks of 2: three latents of six tokens; tokens 2 to 7 receive.
  const std::int64_t layers_alone = added({}, 3) - flops(s, with_vectors, 3).vectors;
  CHECK(added({.compression = 2}, 7) - flops(s, with_vectors, 7).vectors == layers_alone + 2 * (6 + 6) * h);
  CHECK(added({.compression = 2, .encoder = encoder_kind::softmax}, 7) - flops(s, with_vectors, 7).vectors ==
        layers_alone + 2 * (2 * 6 + 6) * h);
  CHECK(added({.compression = 8}, 7) == flops(s, with_vectors, 7).vectors);
  CHECK(flops(s).vectors == 0);
}

/// `s` read through volatile bytes: the compiler cannot know it.
spec hidden(const spec& s) {
  std::array<unsigned char, sizeof(spec)> bytes{};
  std::memcpy(bytes.data(), &s, sizeof s);
  volatile unsigned char veil[sizeof(spec)];
  for (std::size_t i = 0; i < sizeof(spec); ++i) veil[i] = bytes[i];
  for (std::size_t i = 0; i < sizeof(spec); ++i) bytes[i] = veil[i];
  spec r;
  std::memcpy(&r, bytes.data(), sizeof r);
  return r;
}

template <const spec& S>
void same_at_compile_time_and_run_time() {
  constexpr parameter_count p = parameters(S);
  constexpr flop_count f = flops(S);
  constexpr kv_cache_size k = kv_cache(S);
  constexpr training_memory m = memory_of_training(S);
  constexpr inference_memory d = memory_of_inference(S, 1'000);
  constexpr budget_figures b = figures_of(S);
  const spec s = hidden(S);
  REQUIRE(s == S);
  const parameter_count q = parameters(s);
  CHECK(std::memcmp(&p, &q, sizeof p) == 0);
  CHECK(f.forward == flops(s).forward);
  CHECK(f.train_per_token == flops(s).train_per_token);
  CHECK(f.attention_scores == flops(s).attention_scores);
  CHECK(k.bytes_per_token == kv_cache(s).bytes_per_token);
  CHECK(k.bytes_at_context == kv_cache(s).bytes_at_context);
  CHECK(m.total == memory_of_training(s).total);
  CHECK(m.activations == memory_of_training(s).activations);
  CHECK(d.total == memory_of_inference(s, 1'000).total);
  CHECK(b == figures_of(s));
  // Asking twice changes nothing.
  CHECK(flops(s).forward == flops(s).forward);
}

TEST_CASE("compile time and run time give the same integers") {
  same_at_compile_time_and_run_time<models::mixtral_8x7b>();
  same_at_compile_time_and_run_time<models::deepseek_v2>();
  same_at_compile_time_and_run_time<models::gpt_oss_20b>();
  same_at_compile_time_and_run_time<models::gpt2_small>();
  same_at_compile_time_and_run_time<models::llama31_405b>();
  same_at_compile_time_and_run_time<published::smelt_600m::value>();
  static constexpr spec latent = [] {
    spec s = published::smelt_600m::value;
    s.loop.visits = visit_list{}
                        .then({.learned = true,
                               .compression = 3,
                               .encoder = encoder_kind::conv,
                               .own_attention = true,
                               .active = 5,
                               .expert_hidden = {3, 4},
                               .stream = {1, 2}})
                        .then({}, 12);
    return s;
  }();
  same_at_compile_time_and_run_time<latent>();
}

/// Whether sums that pass 2^63 are marked, and others are exact.
TEST_CASE("a figure that does not fit is marked, never wrapped") {
  testing::random_specs draw(4);
  int marked = 0;
  int exact = 0;
  for (int i = 0; i < trials; ++i) {
    spec s = draw();
    s.width = 1 + draw.between(0, 2'000'000'000);
    s.vocab = 1 + draw.between(0, 2'000'000'000);
    s.padded_vocab = 0;
    s.experts.hidden = 1 + draw.between(0, 40'000);
    s.attention.head_dim = 2 * draw.between(1, 100'000'000);
    const wide right = total_by_walking(s);
    const std::int64_t total = parameters(s).total;
    if (right < wide(overflowed)) {
      REQUIRE(wide(total) == right);
      ++exact;
    } else {
      REQUIRE(total == overflowed);
      REQUIRE_FALSE(compare(s, s).ok);
      ++marked;
    }
  }
  CHECK(marked > 100);
  CHECK(exact > 100);
}

TEST_CASE("budgets of extreme but valid architectures saturate without undefined behaviour") {
  testing::random_specs draw(5);
  int valid = 0;
  int saturated = 0;
  for (int i = 0; i < trials; ++i) {
    spec s = draw();
    int* const fields[] = {&s.vocab,
                           &s.context,
                           &s.width,
                           &s.dense_hidden,
                           &s.attention.head_dim,
                           &s.attention.window,
                           &s.attention.latent.kv_rank,
                           &s.attention.latent.nope_dim,
                           &s.attention.latent.value_dim,
                           &s.experts.stored,
                           &s.experts.hidden,
                           &s.experts.shared_hidden};
    for (int n = 0; n < 3; ++n) *fields[draw.between(0, 11)] = 2'147'483'646;
    if (!is_valid(s)) continue;
    ++valid;
    const flop_count f = flops(s, conventions::smelt, s.context);
    const training_memory m = memory_of_training(s, {.tokens = 2'147'483'647});
    const kv_cache_size k = kv_cache(s, 1'000'000, 9'000'000'000'000'000'000);
    for (const std::int64_t figure :
         {f.train, f.forward_per_token, m.total, k.bytes_at_context, k.bytes_per_token, parameters(s).stored,
          memory_of_inference(s, 1'000'000'000).total, causal_pairs(9'000'000'000'000'000'000, s.attention.window)}) {
      REQUIRE(figure >= 0);
      saturated += !fits(figure);
    }
  }
  CHECK(valid > 500);
  CHECK(saturated > 500);
}

TEST_CASE("the run-time table refuses figures that do not fit") {
  spec s = published::smelt_200m_baseline::value;
  s.width = 2'000'000'000;
  s.experts.hidden = 2'000'000'000;
  try {
    (void)table_of(s, s);
    FAIL("no error");
  } catch (const error& e) {
    CHECK(e.code() == errc::overflow);
    CHECK_THAT(e.what(), Catch::Matchers::ContainsSubstring("does not fit in 64 bits"));
  }
}

}  // namespace
