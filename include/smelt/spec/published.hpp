// Which architectures do the papers print? SMELT's rows at 200M and 600M active parameters (table 1).
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

}  // namespace smelt::published
