// Does the memory budget count what the model allocates?
#include <smelt/model/activations.hpp>

#include <smelt/budget/memory.hpp>
#include <smelt/spec/schedule.hpp>

#include "catch.hpp"
#include "support/small_specs.hpp"

using namespace smelt;

namespace {

/// Elements that a record really holds.
activation_elements elements_of(const layer_activations<float>& a) {
  const auto& r = a.routed;
  std::size_t reals = 0;
  for (const matrix<float>* m :
       {&a.input, &a.raw_query, &a.raw_key, &a.query, &a.key, &a.value, &a.attended, &a.middle,
        &a.ffn_input, &r.scores, &r.weights, &a.gate, &a.up, &a.shared_gate, &a.shared_up})
    reals += m->span().size();
  for (const std::vector<float>* v :
       {&a.attention_rms, &a.query_rms, &a.key_rms, &a.logsumexp, &a.ffn_rms, &r.logsumexp, &r.load})
    reals += v->size();
  const std::size_t indices = r.ids.size() + r.offsets.size() + r.assignment.size() + r.row.size();
  return {static_cast<std::int64_t>(reals), static_cast<std::int64_t>(indices)};
}

}  // namespace

TEST_CASE("the memory budget counts what the model allocates, to the element", "[model]") {
  for (const auto& [name, s] : smelt_test::executable_variants()) {
    INFO(name);
    const std::int64_t tokens = 21;
    std::int64_t bytes = 0;
    for (const executed_layer e : schedule(s)) {
      const activation_elements real = elements_of(layer_activations<float>(s, e.layer, tokens));
      const activation_elements counted = activations_of_layer(s, has_experts(s, e.layer), tokens);
      CHECK(real.reals == counted.reals);
      CHECK(real.indices == counted.indices);
      bytes += 4 * (real.reals + real.indices);
    }
    CHECK(memory_of_training(s, {.tokens = tokens}).activations == bytes);
  }
}
