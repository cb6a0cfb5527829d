// Which architectures do the papers print? SMELT's rows at 200M and 600M active parameters (table 1), and the ladder of
// the looped mixture-of-experts laws.
#pragma once

#include <smelt/spec/arch.hpp>

namespace smelt::published {

/// SMELT, 200M active parameters, unlooped baseline. The paper's context is 2,048 tokens; embeddings are not part of
/// its budgets.
struct smelt_200m_baseline : arch<spec{.vocab = 50'304,
                                       .context = 2'048,
                                       .width = 1'280,
                                       .layers = 12,
                                       .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
                                       .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

/// SMELT, 200M active parameters: the middle 6 layers visited twice.
struct smelt_200m : arch<spec{.vocab = 50'304,
                              .context = 2'048,
                              .width = 1'056,
                              .layers = 12,
                              .attention = {.heads = 24, .kv_heads = 4, .head_dim = 44},
                              .experts = {.stored = 288, .active = 8, .hidden = 352},
                              .loop = middle_twice}> {};

/// SMELT, 600M active parameters, unlooped baseline.
struct smelt_600m_baseline : arch<spec{.vocab = 50'304,
                                       .context = 2'048,
                                       .width = 1'792,
                                       .layers = 20,
                                       .attention = {.heads = 28, .kv_heads = 4, .head_dim = 64},
                                       .experts = {.stored = 336, .active = 8, .hidden = 600}}> {};

/// SMELT, 600M active parameters: the middle 10 layers visited twice.
struct smelt_600m : arch<spec{.vocab = 50'304,
                              .context = 2'048,
                              .width = 1'512,
                              .layers = 20,
                              .attention = {.heads = 36, .kv_heads = 4, .head_dim = 42},
                              .experts = {.stored = 504, .active = 8, .hidden = 472},
                              .loop = middle_twice}> {};

/// A rung of the ladder of the looped mixture-of-experts laws: width and layers.
struct looped_moe_rung {
  const char* name;  ///< parameters with the tied table at one expert's worth a layer
  int width;
  int layers;
};
inline constexpr looped_moe_rung looped_moe_ladder[] = {
    {"0.3B", 768, 20}, {"0.6B", 1'024, 26}, {"1.0B", 1'280, 32}, {"1.6B", 1'536, 38}, {"2.4B", 1'792, 44}};

/// The laws' model on a rung: a feed-forward of 12 H^2 a token, cut into `active` experts of which `sparsity` times as
/// many are stored; two entry and two exit layers, those between visited `times` times. The laws print neither the
/// number of active experts nor the context; both are the caller's. Precondition: 4 H is a multiple of `active`.
[[nodiscard]] constexpr spec looped_moe(const looped_moe_rung& rung, int sparsity, int times, int active = 8,
                                        int context = 4'096) noexcept {
  spec s{.vocab = 202'048,
         .context = context,
         .width = rung.width,
         .layers = rung.layers,
         .attention = {.heads = rung.width / 64, .kv_heads = 4, .head_dim = 64},
         .experts = {.stored = sparsity * active, .active = active, .hidden = 4 * rung.width / active},
         .tied_head = true};
  if (times > 1) s.loop = {.first = 2, .count = rung.layers - 4, .visits = visits(times, {})};
  return s;
}

}  // namespace smelt::published
