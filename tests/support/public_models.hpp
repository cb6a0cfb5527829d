// Which published models do the budget tests know? Architectures whose totals are printed publicly.
#pragma once

#include <smelt/spec/spec.hpp>

namespace smelt::public_models {

inline constexpr spec mixtral_8x7b{.vocab = 32'000,
                                   .context = 32'768,
                                   .width = 4'096,
                                   .layers = 32,
                                   .attention = {.heads = 32, .kv_heads = 8, .head_dim = 128},
                                   .experts = {.stored = 8, .active = 2, .hidden = 14'336, .renormalise = true}};

inline constexpr spec mixtral_8x22b{.vocab = 32'768,
                                    .context = 65'536,
                                    .width = 6'144,
                                    .layers = 56,
                                    .attention = {.heads = 48, .kv_heads = 8, .head_dim = 128},
                                    .experts = {.stored = 8, .active = 2, .hidden = 16'384, .renormalise = true}};

inline constexpr spec olmoe_1b_7b{
    .vocab = 50'304,
    .context = 4'096,
    .width = 2'048,
    .layers = 16,
    .attention = {.heads = 16, .kv_heads = 16, .head_dim = 128, .norm = qk_norm::full_width},
    .experts = {.stored = 64, .active = 8, .hidden = 1'024}};

inline constexpr spec qwen3_30b_a3b{
    .vocab = 151'936,
    .context = 8'192,
    .width = 2'048,
    .layers = 48,
    .attention = {.heads = 32, .kv_heads = 4, .head_dim = 128, .norm = qk_norm::per_head},
    .experts = {.stored = 128, .active = 8, .hidden = 768, .renormalise = true}};

inline constexpr spec qwen2_57b_a14b{
    .vocab = 151'936,
    .context = 32'768,
    .width = 3'584,
    .layers = 28,
    .attention = {.heads = 28, .kv_heads = 4, .head_dim = 128, .qkv_bias = true},
    .experts = {.stored = 64, .active = 8, .hidden = 2'560, .shared_hidden = 20'480, .shared_gate = true}};

inline constexpr spec deepseek_v2_lite{
    .vocab = 102'400,
    .context = 32'768,
    .width = 2'048,
    .layers = 27,
    .dense_layers = 1,
    .dense_hidden = 10'944,
    .attention = {.heads = 16,
                  .kv_heads = 16,
                  .latent = {.kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128}},
    .experts = {.stored = 64, .active = 6, .hidden = 1'408, .shared_hidden = 2 * 1'408}};

inline constexpr spec deepseek_v2{
    .vocab = 102'400,
    .context = 131'072,
    .width = 5'120,
    .layers = 60,
    .dense_layers = 1,
    .dense_hidden = 12'288,
    .attention = {.heads = 128,
                  .kv_heads = 128,
                  .latent = {.kv_rank = 512, .q_rank = 1'536, .nope_dim = 128, .rope_dim = 64, .value_dim = 128}},
    .experts = {.stored = 160, .active = 6, .hidden = 1'536, .shared_hidden = 2 * 1'536}};

inline constexpr spec gpt_oss_20b{
    .vocab = 201'088,
    .context = 131'072,
    .width = 2'880,
    .layers = 24,
    .attention = {.heads = 64,
                  .kv_heads = 8,
                  .head_dim = 64,
                  .qkv_bias = true,
                  .o_bias = true,
                  .sinks = true,
                  .window = 128,
                  .global_layers = every_layer(2, 1)},
    .experts = {.stored = 32, .active = 4, .hidden = 2'880, .bias = true, .router_bias = true, .renormalise = true}};

inline constexpr spec granite_1b_a400m{.vocab = 49'155,
                                       .context = 4'096,
                                       .width = 1'024,
                                       .layers = 24,
                                       .attention = {.heads = 16, .kv_heads = 8, .head_dim = 64},
                                       .experts = {.stored = 32, .active = 8, .hidden = 512, .renormalise = true},
                                       .tied_head = true};

inline constexpr spec qwen15_moe_a27b{
    .vocab = 151'936,
    .context = 8'192,
    .width = 2'048,
    .layers = 24,
    .attention = {.heads = 16, .kv_heads = 16, .head_dim = 128, .qkv_bias = true},
    .experts = {.stored = 60, .active = 4, .hidden = 1'408, .shared_hidden = 5'632, .shared_gate = true}};

/// A dense decoder with rotary positions, RMSNorm and SwiGLU.
[[nodiscard]] constexpr spec llama(int vocab, int context, int width, int layers, int heads, int kv_heads, int head_dim,
                                   int hidden, bool tied = false) noexcept {
  return {.vocab = vocab,
          .context = context,
          .width = width,
          .layers = layers,
          .dense_layers = layers,
          .dense_hidden = hidden,
          .attention = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim},
          .tied_head = tied};
}

inline constexpr spec llama3_8b = llama(128'256, 8'192, 4'096, 32, 32, 8, 128, 14'336);
inline constexpr spec llama31_70b = llama(128'256, 131'072, 8'192, 80, 64, 8, 128, 28'672);
inline constexpr spec llama31_405b = llama(128'256, 131'072, 16'384, 126, 128, 8, 128, 53'248);
inline constexpr spec tinyllama = llama(32'000, 2'048, 2'048, 22, 32, 4, 64, 5'632);
inline constexpr spec stories_15m = llama(32'000, 256, 288, 6, 6, 6, 48, 768, true);
inline constexpr spec stories_42m = llama(32'000, 1'024, 512, 8, 8, 8, 64, 1'376, true);
inline constexpr spec stories_110m = llama(32'000, 1'024, 768, 12, 12, 12, 64, 2'048, true);

/// `s` with normalised queries and keys, one gain a head size.
[[nodiscard]] constexpr spec with_head_norm(spec s) noexcept {
  s.attention.norm = qk_norm::per_head;
  return s;
}
inline constexpr spec qwen3_06b = with_head_norm(llama(151'936, 32'768, 1'024, 28, 16, 8, 128, 3'072, true));

inline constexpr spec gpt2_small{
    .vocab = 50'257,
    .context = 1'024,
    .width = 768,
    .layers = 12,
    .dense_layers = 12,
    .dense_hidden = 3'072,
    .dense_bias = true,
    .ffn = ffn_kind::gelu,
    .positions = position_kind::learned,
    .attention = {.heads = 12, .kv_heads = 12, .head_dim = 64, .qkv_bias = true, .o_bias = true},
    .norm_bias = true,
    .tied_head = true};

/// GPT-3 shapes with Megatron's vocabulary, the example of its FLOPs formula: no biases in the formula.
inline constexpr spec gpt3_175b{.vocab = 51'200,
                                .context = 2'048,
                                .width = 12'288,
                                .layers = 96,
                                .dense_layers = 96,
                                .dense_hidden = 4 * 12'288,
                                .ffn = ffn_kind::gelu,
                                .positions = position_kind::learned,
                                .attention = {.heads = 96, .kv_heads = 96, .head_dim = 128},
                                .tied_head = true};

}  // namespace smelt::public_models
