// Does the memory budget count what the model allocates?
#include <smelt/model/activations.hpp>

#include <cstdlib>
#include <smelt/budget/memory.hpp>
#include <smelt/core/carver.hpp>
#include <smelt/core/page_block.hpp>
#include <smelt/spec/schedule.hpp>

#include "catch.hpp"
#include "support/small_specs.hpp"

using namespace smelt;

namespace {

/// Elements that a record really holds.
activation_elements elements_of(const layer_activations<float>& a) {
  const auto& r = a.routed;
  std::size_t reals = 0;
  for (const matrix<float>* m : {&a.input, &a.raw_query, &a.raw_key, &a.query, &a.key, &a.value, &a.attended, &a.middle,
                                 &a.ffn_input, &r.scores, &r.weights, &a.gate, &a.up, &a.shared_gate, &a.shared_up})
    reals += m->span().size();
  for (const std::span<float>* v :
       {&a.attention_rms, &a.query_rms, &a.key_rms, &a.logsumexp, &a.ffn_rms, &r.logsumexp, &r.load})
    reals += v->size();
  const std::size_t indices = r.ids.size() + r.offsets.size() + r.assignment.size() + r.row.size();
  return {static_cast<std::int64_t>(reals), static_cast<std::int64_t>(indices)};
}

/// Of a batch of whole sequences whose visits have `tokens` / c rows.
model_buffers<float> buffers_of(const spec& s, std::int64_t tokens, saved_activations saved, carver& memory) {
  return {s, tokens, saved, [=](const visit_plan& plan) { return tokens / plan.compression; }, memory};
}

}  // namespace

TEST_CASE("the memory budget counts what the model allocates, to the element", "[model]") {
  for (const auto& [name, s] : smelt_test::executable_variants()) {
    INFO(name);
    const std::int64_t tokens = 21;
    std::int64_t bytes = 0;
    for (const executed_layer e : schedule(s)) {
      carver measure;
      static_cast<void>(layer_activations<float>(s, e.layer, tokens, measure, measure));
      const page_block block(measure.used());
      carver memory({block.data(), block.size()});
      const activation_elements real = elements_of(layer_activations<float>(s, e.layer, tokens, memory, memory));
      const activation_elements counted = activations_of_layer(s, has_experts(s, e.layer), tokens);
      CHECK(real.reals == counted.reals);
      CHECK(real.indices == counted.indices);
      bytes += 4 * (real.reals + real.indices);
    }
    CHECK(memory_of_training(s, {.tokens = tokens}).activations == bytes);
  }
}

TEST_CASE("what a model keeps for its backward pass is what the budget says, recomputing or not", "[model]") {
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const std::int64_t tokens = s.context;
    const auto measured = [&](saved_activations saved) {
      carver measure;
      static_cast<void>(buffers_of(s, tokens, saved, measure));
      return static_cast<std::int64_t>(measure.used());
    };
    // Beside the activations there are the buffers of a backward pass, which recomputation does not change; and every
    // array begins at a cache line.
    const std::int64_t gaps = 64 * 64 * schedule(s).size();
    const std::int64_t all = memory_of_training(s, {.tokens = tokens}).activations;
    const std::int64_t again = memory_of_training(s, {.tokens = tokens, .recompute = true}).activations;
    CHECK(std::abs((measured(saved_activations::all) - all) - (measured(saved_activations::inputs) - again)) <= gaps);
    CHECK(measured(saved_activations::none) < measured(saved_activations::inputs));
    CHECK(measured(saved_activations::inputs) < measured(saved_activations::all));
  }
}

TEST_CASE("layers that save inputs share all but their inputs and loads", "[model]") {
  for (const auto& [name, s] : smelt_test::executable_variants()) {
    INFO(name);
    carver measure;
    static_cast<void>(buffers_of(s, 8, saved_activations::inputs, measure));
    const page_block block(measure.used());
    carver memory({block.data(), block.size()});
    const model_buffers<float> buffers = buffers_of(s, 8, saved_activations::inputs, memory);
    CHECK(memory.used() == block.size());
    const schedule steps(s);
    for (int i = 1; i < steps.size(); ++i) {
      const auto& before = buffers.layers[static_cast<std::size_t>(i - 1)];
      const auto& here = buffers.layers[static_cast<std::size_t>(i)];
      CHECK(here.middle.view().data == before.middle.view().data);
      CHECK(here.input.view().data != before.input.view().data);
      if (has_experts(s, steps[i].layer)) CHECK(here.routed.load.data() != before.routed.load.data());
    }
  }
}
