// Which architectures have a name? The papers' rows, and a ladder that trains on a CPU, each with its looped partners.
#pragma once

#include <smelt/budget/check.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/budget/tolerance.hpp>
#include <smelt/spec/arch.hpp>
#include <smelt/spec/published.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt::presets {

/// Vocabulary of the ladder: the 256 bytes and an end-of-document token.
inline constexpr int byte_vocab = 257;

/// What the ladder's partners are solved with: widths and hidden widths that fill SIMD registers, tolerances of the
/// SMELT paper.
inline constexpr within ladder_tolerance{
    .flops = percent{40'000}, .params = percent{10'000}, .kv_cache = percent{40'000}};
inline constexpr match_options ladder_options{.width_multiple = 16, .hidden_multiple = 16, .head_dim_multiple = 8};

namespace detail {

/// One rung of the ladder with `stored` experts. Head size 24 becomes 16 under the loop, so that the KV cache of the
/// partner is exactly the base's; weights of the selected experts sum to 1, since few of many experts would otherwise
/// whisper at the start of training.
[[nodiscard]] consteval spec rung(int context, int width, int layers, int heads, int kv_heads, int stored, int active,
                                  int hidden) {
  return {.vocab = byte_vocab,
          .context = context,
          .width = width,
          .layers = layers,
          .attention = {.heads = heads, .kv_heads = kv_heads, .head_dim = 24},
          .experts = {.stored = stored, .active = active, .hidden = hidden, .renormalise = true},
          .tied_head = true};
}
[[nodiscard]] consteval spec nano_with(int stored) {
  return rung(256, 128, 4, 4, 1, stored, 4, 32);
}
[[nodiscard]] consteval spec micro_with(int stored) {
  return rung(512, 128, 8, 4, 2, stored, 4, 64);
}
[[nodiscard]] consteval spec mini_with(int stored) {
  return rung(512, 224, 8, 10, 2, stored, 6, 64);
}
[[nodiscard]] consteval spec small_with(int stored) {
  return rung(512, 320, 12, 10, 2, stored, 8, 80);
}

}  // namespace detail

/// About 0.3 million active parameters; 81 % sparse.
struct nano : arch<detail::nano_with(32)> {};
/// Every expert active: the control that sparsity is measured against.
struct nano_control : arch<detail::nano_with(4)> {};
/// 94 % sparse.
struct nano_s94 : arch<detail::nano_with(128)> {};

/// About 1 million active parameters; 83 % sparse.
struct micro : arch<detail::micro_with(32)> {};
/// Every expert active.
struct micro_control : arch<detail::micro_with(4)> {};
/// 97 % sparse.
struct micro_s97 : arch<detail::micro_with(224)> {};

/// About 3 million active parameters; 86 % sparse.
struct mini : arch<detail::mini_with(64)> {};
/// Every expert active.
struct mini_control : arch<detail::mini_with(6)> {};
/// 97 % sparse.
struct mini_s97 : arch<detail::mini_with(320)> {};

/// About 10 million active parameters; 84 % sparse.
struct small_base : arch<detail::small_with(64)> {};
/// Every expert active.
struct small_control : arch<detail::small_with(8)> {};
/// 92 % sparse.
struct small_s92 : arch<detail::small_with(128)> {};

/// The SMELT partner of a rung: the middle half of the layers visited twice, at the rung's budgets.
template <Architecture Base>
using partner = partner_of<Base, middle_twice, ladder_tolerance, ladder_options>;

struct nano_smelt : partner<nano> {};
struct nano_control_smelt : partner<nano_control> {};
struct nano_s94_smelt : partner<nano_s94> {};
struct micro_smelt : partner<micro> {};
struct micro_control_smelt : partner<micro_control> {};
struct micro_s97_smelt : partner<micro_s97> {};
struct mini_smelt : partner<mini> {};
struct mini_control_smelt : partner<mini_control> {};
struct mini_s97_smelt : partner<mini_s97> {};
struct small_smelt : partner<small_base> {};
struct small_control_smelt : partner<small_control> {};
struct small_s92_smelt : partner<small_s92> {};

static_assert(budgets_match<nano_smelt, nano, ladder_tolerance>::passed);
static_assert(budgets_match<nano_control_smelt, nano_control, ladder_tolerance>::passed);
static_assert(budgets_match<nano_s94_smelt, nano_s94, ladder_tolerance>::passed);
static_assert(budgets_match<micro_smelt, micro, ladder_tolerance>::passed);
static_assert(budgets_match<micro_control_smelt, micro_control, ladder_tolerance>::passed);
static_assert(budgets_match<micro_s97_smelt, micro_s97, ladder_tolerance>::passed);
static_assert(budgets_match<mini_smelt, mini, ladder_tolerance>::passed);
static_assert(budgets_match<mini_control_smelt, mini_control, ladder_tolerance>::passed);
static_assert(budgets_match<mini_s97_smelt, mini_s97, ladder_tolerance>::passed);
static_assert(budgets_match<small_smelt, small_base, ladder_tolerance>::passed);
static_assert(budgets_match<small_control_smelt, small_control, ladder_tolerance>::passed);
static_assert(budgets_match<small_s92_smelt, small_s92, ladder_tolerance>::passed);

/// The rung's loop with coefficient 1: SMELT's sizes, which coefficients do not move.
template <Architecture Smelt>
using unscaled = arch<[] {
  spec s = Smelt::value;
  s.loop.visits = visits(2, {});
  return s;
}()>;

struct nano_moe_loop : unscaled<nano_smelt> {};
struct micro_moe_loop : unscaled<micro_smelt> {};
struct mini_moe_loop : unscaled<mini_smelt> {};
struct small_moe_loop : unscaled<small_smelt> {};

/// LatentLoop's loop: the middle half of the layers, first on pairs of tokens (their mean; increments scaled by channel
/// and receiver as they are written back) with attention of its own, then on every token. Both visits have coefficient
/// 1: what the first one writes is scaled by the writeback alone.
inline constexpr loop_spec latent_twice{
    .count = loop_spec::half, .visits = visit_list{}.then({.compression = 2, .own_attention = true}).then({})};
/// What LatentLoop's partners are solved with. Its 5/4 of the executed KV entries ask for heads of 19.2, and 20 is the
/// nearest even size: 4.2 % above the base.
inline constexpr within latent_tolerance{
    .flops = percent{40'000}, .params = percent{10'000}, .kv_cache = percent{50'000}};
inline constexpr match_options latent_options{.width_multiple = 16, .hidden_multiple = 16, .head_dim_multiple = 2};
/// The same with finer steps, for a rung where an expert more is too much and one fewer too little.
inline constexpr match_options fine_latent_options{.width_multiple = 8, .hidden_multiple = 8, .head_dim_multiple = 2};

struct nano_latentloop : partner_of<nano, latent_twice, latent_tolerance, latent_options> {};
struct micro_latentloop : partner_of<micro, latent_twice, latent_tolerance, fine_latent_options> {};
struct mini_latentloop : partner_of<mini, latent_twice, latent_tolerance, latent_options> {};
struct small_latentloop : partner_of<small_base, latent_twice, latent_tolerance, latent_options> {};

static_assert(budgets_match<nano_moe_loop, nano, ladder_tolerance>::passed);
static_assert(budgets_match<micro_moe_loop, micro, ladder_tolerance>::passed);
static_assert(budgets_match<mini_moe_loop, mini, ladder_tolerance>::passed);
static_assert(budgets_match<small_moe_loop, small_base, ladder_tolerance>::passed);
static_assert(budgets_match<nano_latentloop, nano, latent_tolerance>::passed);
static_assert(budgets_match<micro_latentloop, micro, latent_tolerance>::passed);
static_assert(budgets_match<mini_latentloop, mini, latent_tolerance>::passed);
static_assert(budgets_match<small_latentloop, small_base, latent_tolerance>::passed);

/// `base` as the looped mixture-of-experts laws loop: two entry and two exit layers, everything between visited
/// `times` times with `plan`. Its sizes are the base's, so that it costs more: those laws compare at equal training
/// FLOPs, which `at_equal_flops` has in tokens. Precondition: at least 5 layers, times from 1 to max_visits.
[[nodiscard]] constexpr spec looped_between(spec base, int times, const visit_plan& plan = {}) noexcept {
  base.loop = {.first = 2, .count = base.layers - 4, .visits = visits(times, plan)};
  return base;
}

/// A named architecture of the registry.
struct preset {
  const char* name;
  spec value;
  const char* partner_of;   ///< for a looped architecture the name of the base whose budgets it has; "" otherwise
  const char* control;      ///< the fully active, unlooped architecture of its scale; "" when there is none
  const char* description;  ///< one line
  const char* group;        ///< what it is listed with
};

/// Groups that `smelt specs` lists.
inline constexpr const char* ladder_group = "Ladder: bases that train on a CPU, and their partners of equal budgets";
inline constexpr const char* sparsity_group = "Ladder: other sparsities";
inline constexpr const char* paper_group = "Rows of the SMELT paper";

/// Every named architecture.
inline constexpr preset all[] = {
    {"nano", nano::value, "", "nano-control", "0.3 M active, 1.7 M in all, trains in minutes on two cores",
     ladder_group},
    {"nano-smelt", nano_smelt::value, "nano", "nano-control",
     "nano with its middle half visited twice, writes scaled by 1/2", ladder_group},
    {"nano-moe-loop", nano_moe_loop::value, "nano", "nano-control", "the same with coefficient 1: the papers' MoE Loop",
     ladder_group},
    {"nano-latentloop", nano_latentloop::value, "nano", "nano-control",
     "nano with LatentLoop's visits: pairs of tokens, own attention; then all", ladder_group},
    {"micro", micro::value, "", "micro-control", "1.1 M active, 6.6 M in all", ladder_group},
    {"micro-smelt", micro_smelt::value, "micro", "micro-control",
     "micro with its middle half visited twice, writes scaled by 1/2", ladder_group},
    {"micro-moe-loop", micro_moe_loop::value, "micro", "micro-control",
     "the same with coefficient 1: the papers' MoE Loop", ladder_group},
    {"micro-latentloop", micro_latentloop::value, "micro", "micro-control",
     "micro with LatentLoop's visits: pairs of tokens, own attention; then all", ladder_group},
    {"mini", mini::value, "", "mini-control", "3.2 M active, 23 M in all", ladder_group},
    {"mini-smelt", mini_smelt::value, "mini", "mini-control",
     "mini with its middle half visited twice, writes scaled by 1/2", ladder_group},
    {"mini-moe-loop", mini_moe_loop::value, "mini", "mini-control", "the same with coefficient 1: the papers' MoE Loop",
     ladder_group},
    {"mini-latentloop", mini_latentloop::value, "mini", "mini-control",
     "mini with LatentLoop's visits: pairs of tokens, own attention; then all", ladder_group},
    {"small", small_base::value, "", "small-control", "10 M active, 61 M in all", ladder_group},
    {"small-smelt", small_smelt::value, "small", "small-control",
     "small with its middle half visited twice, writes scaled by 1/2", ladder_group},
    {"small-moe-loop", small_moe_loop::value, "small", "small-control",
     "the same with coefficient 1: the papers' MoE Loop", ladder_group},
    {"small-latentloop", small_latentloop::value, "small", "small-control",
     "small with LatentLoop's visits: pairs of tokens, own attention; then all", ladder_group},
    {"nano-control", nano_control::value, "", "nano-control", "nano with every expert active", sparsity_group},
    {"nano-control-smelt", nano_control_smelt::value, "nano-control", "nano-control",
     "nano-control with its middle half visited twice", sparsity_group},
    {"nano-s94", nano_s94::value, "", "nano-control", "nano with 128 experts, 94 % sparse", sparsity_group},
    {"nano-s94-smelt", nano_s94_smelt::value, "nano-s94", "nano-control", "nano-s94 with its middle half visited twice",
     sparsity_group},
    {"micro-control", micro_control::value, "", "micro-control", "micro with every expert active", sparsity_group},
    {"micro-control-smelt", micro_control_smelt::value, "micro-control", "micro-control",
     "micro-control with its middle half visited twice", sparsity_group},
    {"micro-s97", micro_s97::value, "", "micro-control", "micro with 224 experts, 97 % sparse", sparsity_group},
    {"micro-s97-smelt", micro_s97_smelt::value, "micro-s97", "micro-control",
     "micro-s97 with its middle half visited twice", sparsity_group},
    {"mini-control", mini_control::value, "", "mini-control", "mini with every expert active", sparsity_group},
    {"mini-control-smelt", mini_control_smelt::value, "mini-control", "mini-control",
     "mini-control with its middle half visited twice", sparsity_group},
    {"mini-s97", mini_s97::value, "", "mini-control", "mini with 320 experts, 97 % sparse", sparsity_group},
    {"mini-s97-smelt", mini_s97_smelt::value, "mini-s97", "mini-control", "mini-s97 with its middle half visited twice",
     sparsity_group},
    {"small-control", small_control::value, "", "small-control", "small with every expert active", sparsity_group},
    {"small-control-smelt", small_control_smelt::value, "small-control", "small-control",
     "small-control with its middle half visited twice", sparsity_group},
    {"small-s92", small_s92::value, "", "small-control", "small with 128 experts, 92 % sparse", sparsity_group},
    {"small-s92-smelt", small_s92_smelt::value, "small-s92", "small-control",
     "small-s92 with its middle half visited twice", sparsity_group},
    {"smelt-200m-baseline", published::smelt_200m_baseline::value, "", "",
     "SMELT paper, 0.2 B active, 3.9 B in all, unlooped", paper_group},
    {"smelt-200m", published::smelt_200m::value, "smelt-200m-baseline", "",
     "SMELT paper, the partner of smelt-200m-baseline as published", paper_group},
    {"smelt-600m-baseline", published::smelt_600m_baseline::value, "", "",
     "SMELT paper, 0.7 B active, 21.8 B in all, unlooped", paper_group},
    {"smelt-600m", published::smelt_600m::value, "smelt-600m-baseline", "",
     "SMELT paper, the partner of smelt-600m-baseline as published", paper_group},
};

/// The preset called `name`, a null-terminated string; null when there is none.
[[nodiscard]] constexpr const preset* find(const char* name) noexcept {
  for (const preset& p : all) {
    const char* a = p.name;
    const char* b = name;
    while (*a != 0 && *a == *b) {
      ++a;
      ++b;
    }
    if (*a == *b) return &p;
  }
  return nullptr;
}

}  // namespace smelt::presets
