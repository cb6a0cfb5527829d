// Does the memory budget equal what a model really allocates for its activations?
#include <algorithm>
#include <cstdint>
#include <smelt/budget/memory.hpp>
#include <smelt/core/carver.hpp>
#include <smelt/core/page_block.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/spec/rules.hpp>
#include <smelt/spec/schedule.hpp>

#include "catch.hpp"
#include "support/random_specs.hpp"

namespace {

using namespace smelt;

template <class... Matrices>
std::int64_t elements(Matrices&... m) {
  return (std::int64_t{0} + ... + static_cast<std::int64_t>(m.span().size()));
}
template <class... Vectors>
std::int64_t lengths(const Vectors&... v) {
  return (std::int64_t{0} + ... + static_cast<std::int64_t>(v.size()));
}

TEST_CASE("activations_of_layer counts the buffers of a layer's record") {
  testing::random_specs draw(11);
  int tried = 0;
  while (tried < 300) {
    spec s = draw();
    if (has_latent_attention(s)) continue;
    ++tried;
    const std::int64_t tokens = draw.between(1, 9);
    for (const int layer : {0, s.layers - 1}) {
      carver measure;
      static_cast<void>(layer_activations<float>(s, layer, tokens, measure, measure));
      const page_block block(measure.used());
      carver memory({block.data(), block.size()});
      layer_activations<float> a(s, layer, tokens, memory, memory);
      routing<float>& r = a.routed;
      const std::int64_t reals =
          elements(a.input, a.raw_query, a.raw_key, a.query, a.key, a.value, a.attended, a.middle, a.ffn_input,
                   r.scores, r.weights, a.gate, a.up, a.shared_gate, a.shared_up) +
          lengths(a.attention_rms, a.query_rms, a.key_rms, a.logsumexp, a.ffn_rms, r.logsumexp, r.load);
      const std::int64_t indices = lengths(r.ids, r.offsets, r.assignment, r.row);
      const activation_elements counted = activations_of_layer(s, has_experts(s, layer), tokens);
      REQUIRE(counted.reals == reals);
      REQUIRE(counted.indices == indices);
    }
  }
}

TEST_CASE("activations_of_visit counts the buffers of a visit's record") {
  testing::random_specs draw(13);
  for (int i = 0; i < 300; ++i) {
    spec s = draw();
    s.loop = {.first = 0, .count = s.layers};
    const visit_plan plan = draw.plan_for(s);
    const std::int64_t tokens = draw.between(1, 9);
    const std::int64_t rows = tokens / plan.compression;
    carver measure;
    static_cast<void>(visit_activations<float>(s, plan, tokens, rows, false, measure));
    const page_block block(measure.used());
    carver memory({block.data(), block.size()});
    visit_activations<float> a(s, plan, tokens, rows, false, memory);
    REQUIRE(activations_of_visit(s, plan, tokens, rows) ==
            elements(a.stream, a.pooled, a.output, a.narrow_increment, a.increment));
  }
}

TEST_CASE("the activations of a budget are what a model's buffers hold for its backward pass") {
  testing::random_specs draw(14);
  int visited = 0;
  int with_latents = 0;
  for (int i = 0; i < 400; ++i) {
    spec s = draw();
    if (has_latent_attention(s)) continue;
    s.context = draw.between(1, 9);
    if (!is_valid(s)) continue;
    const std::int64_t sequences = draw.between(1, 3);
    const std::int64_t tokens = sequences * s.context;
    const auto rows_of = [&](const visit_plan& plan) { return sequences * (s.context / plan.compression); };
    carver measure;
    static_cast<void>(model_buffers<float>(s, tokens, saved_activations::all, rows_of, measure));
    const page_block block(measure.used());
    carver memory({block.data(), block.size()});
    model_buffers<float> b(s, tokens, saved_activations::all, rows_of, memory);
    std::int64_t held = 0;
    for (layer_activations<float>& a : b.layers) {
      const routing<float>& r = a.routed;
      held += elements(a.input, a.raw_query, a.raw_key, a.query, a.key, a.value, a.attended, a.middle, a.ffn_input,
                       a.routed.scores, a.routed.weights, a.gate, a.up, a.shared_gate, a.shared_up) +
              lengths(a.attention_rms, a.query_rms, a.key_rms, a.logsumexp, a.ffn_rms, r.logsumexp, r.load) +
              lengths(r.ids, r.offsets, r.assignment, r.row);
    }
    for (visit_activations<float>& v : b.visits) {
      held += elements(v.stream, v.pooled, v.output, v.narrow_increment, v.increment);
      ++visited;
      with_latents += !v.stream.span().empty();
    }
    REQUIRE(memory_of_training(s, {.tokens = tokens}).activations == 4 * held);
  }
  CHECK(visited > 100);
  CHECK(with_latents > 30);
}

TEST_CASE("training memory is the sum over the executed schedule") {
  testing::random_specs draw(12);
  for (int i = 0; i < 300; ++i) {
    const spec s = draw();
    const training_plan plan{.tokens = draw.between(1, 5'000), .weight_bytes = 2, .gradient_bytes = 4, .moments = 2};
    std::int64_t activations = 0;
    std::int64_t inputs = 0;
    std::int64_t largest = 0;
    for (const executed_layer e : schedule(s)) {
      // Whole sequences of the context, then a shorter one: each has its own trailing partial chunk.
      std::int64_t positions = 0;
      for (std::int64_t rest = plan.tokens; rest > 0; rest -= s.context)
        positions += executed_positions(e, (std::min)(rest, std::int64_t{s.context}));
      const activation_elements one = activations_of_layer(s, has_experts(s, e.layer), positions, e.plan);
      if (e.enters) {
        const std::int64_t of_visit = 4 * activations_of_visit(s, e.plan, plan.tokens, positions);
        activations += of_visit;
        inputs += of_visit;
      }
      const std::int64_t bytes = 4 * (one.reals + one.indices);
      activations += bytes;
      const std::int64_t input =
          4 * (positions * width_of(s, e.plan) + (has_experts(s, e.layer) ? s.experts.stored : 0));
      inputs += input;
      largest = (std::max)(largest, bytes - input);
    }
    const training_memory m = memory_of_training(s, plan);
    REQUIRE(m.activations == activations);
    REQUIRE(m.weights == 2 * parameters(s).total);
    REQUIRE(m.gradients == 4 * parameters(s).total);
    REQUIRE(m.moments == 8 * parameters(s).total);
    REQUIRE(m.total == m.weights + m.gradients + m.moments + m.activations);
    training_plan recomputed = plan;
    recomputed.recompute = true;
    REQUIRE(memory_of_training(s, recomputed).activations == inputs + largest);
  }
}

}  // namespace
