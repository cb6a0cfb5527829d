// Do memory and sparsity follow from parameters, KV cache and FLOPs?
#include <smelt/budget/memory.hpp>
#include <smelt/budget/sparsity.hpp>
#include <smelt/spec/published.hpp>

#include "support/public_models.hpp"

namespace {

using namespace smelt;
namespace models = smelt::public_models;

// A 4-bit model holds half a byte a parameter; bf16 two bytes.
static_assert(memory_of_inference(models::mixtral_8x7b, 0, 4).weights == 46'702'792'704 / 2);
static_assert(memory_of_inference(models::mixtral_8x7b, 0).weights == 2 * 46'702'792'704);
static_assert(memory_of_inference(models::tinyllama, 4'096).kv_cache == 92'274'688);
static_assert(memory_of_inference(models::stories_15m, 0, 1).weights == (15'191'712 + 7) / 8);

// AdamW in fp32: 4 + 4 + 8 bytes a parameter.
constexpr training_memory m = memory_of_training(models::stories_15m);
static_assert(m.weights + m.gradients + m.moments == 16LL * 15'191'712);
static_assert(m.activations > 0 && m.total == m.weights + m.gradients + m.moments + m.activations);

// A second visit keeps a second record: 18 layers' worth instead of 12.
constexpr spec looped = published::smelt_200m::value;
constexpr spec straight = [] {
  spec s = looped;
  s.loop = {};
  return s;
}();
static_assert(2 * memory_of_training(looped).activations == 3 * memory_of_training(straight).activations);
static_assert(memory_of_training(looped).weights == memory_of_training(straight).weights);
// Recomputation keeps less.
static_assert(memory_of_training(looped, {.recompute = true}).activations < memory_of_training(looped).activations);

// Sparsity: a control against itself has none, and N_eq is its own N.
constexpr spec base = published::smelt_200m_baseline::value;
constexpr spec control = fully_active_control(base);
static_assert(control.experts.stored == base.experts.active && control.loop == loop_spec{});
static_assert(sparsity(control).s == 0);
static_assert(sparsity(control).n_eq == static_cast<double>(parameters(control).matrices));
// The published 200M row sits at 95 %.
static_assert(sparsity(base).s > 0.94 && sparsity(base).s < 0.95);
static_assert(sparsity(looped, control).s > 0.94 && sparsity(looped, control).s < 0.95);
// A looped control does more work than its parameters alone would: slightly negative, and not clamped.
constexpr spec looped_control = [] {
  spec s = control;
  s.loop = middle_twice;
  return s;
}();
static_assert(sparsity(looped_control, control).s < 0);
// What cannot be counted is said.
static_assert(sparsity(models::gpt_oss_20b).gap == coverage_gap::window);
static_assert(sparsity(models::gpt_oss_20b, fully_active_control(models::gpt_oss_20b), accounting{}).s > 0);

}  // namespace
