// Which operations does a FLOPs figure count? The answer travels with the figure: no number without its convention.
#pragma once

#include <cstdint>

namespace smelt {

/// How many positions a token attends to, on average over a sequence of T.
enum class attended : int {
  causal,       ///< exactly: (T + 1) / 2, less under a window
  full_square,  ///< T, as if there were no mask; min(T, window) under a window
  half_square,  ///< half of full_square
  given,        ///< `convention::mean_attended`, for example a document-masked mean
};

/// The unit of a figure: one multiply-add is 1 MAC or 2 FLOPs.
enum class operation : int { flop, mac };

/// A way of counting. Defaults are smelt's own: exactly the matrix products that run, a lookup costs nothing.
struct convention {
  attended positions = attended::causal;
  std::int64_t mean_attended = 0;       ///< attended positions when `positions` is `given`
  int score_products = 2;               ///< of Q K^T and A V, how many are counted: 2, or 1 as some tools do
  bool head = true;                     ///< the output head
  bool router = true;                   ///< the routers
  bool input_table = false;             ///< an untied input table as if it were a matrix product
  bool vectors = false;                 ///< biases, gains, pooling, writebacks, one multiply-add each ("6 N")
  bool every_expert = false;            ///< all stored experts as if every token visited them
  int backward = 2;                     ///< backward passes in units of the forward pass
  bool recompute = false;               ///< layers (not the head) run forward once more in the backward pass
  operation unit = operation::flop;     ///< what one multiply-add counts as
  bool covers_loops = true;             ///< the formula knows layers that run more than once
  bool covers_windows = true;           ///< the formula knows windowed layers
  bool covers_experts = true;           ///< the formula knows routed experts
  bool covers_gated_ffn = true;         ///< the formula knows three-matrix feed-forwards
  bool covers_any_shape = true;         ///< otherwise heads x head_dim = width and hidden = 4 x width are built in
  bool covers_latent_attention = true;  ///< the formula knows multi-head latent attention

  friend constexpr bool operator==(const convention&, const convention&) = default;
};

/// A part of an architecture that a convention does not know. A figure with a gap is not a figure.
enum class coverage_gap : int {
  none,
  loop,
  window,
  experts,
  gated_ffn,
  shape,
  latent_attention,
};

/// The words of a gap.
[[nodiscard]] constexpr const char* describe(coverage_gap gap) noexcept {
  switch (gap) {
    case coverage_gap::none:
      return "covered";
    case coverage_gap::loop:
      return "not counted: the convention does not know layers that run more than once";
    case coverage_gap::window:
      return "not counted: the convention does not know attention windows";
    case coverage_gap::experts:
      return "not counted: the convention does not know routed experts";
    case coverage_gap::gated_ffn:
      return "not counted: the convention does not know gated feed-forwards";
    case coverage_gap::shape:
      return "not counted: the convention assumes heads x head_dim = width = kv_heads x head_dim and hidden = 4 x "
             "width";
    case coverage_gap::latent_attention:
      return "not counted: the convention does not know multi-head latent attention";
  }
  return "";
}

/// The conventions by name.
namespace conventions {

/// smelt's own: exact causal pairs, head and routers in, lookups free, every visit counted.
inline constexpr convention smelt{};

/// The looped-MoE papers: 6 L_eff (attn + router + k expert) + 12 L_eff n_q d_k 390; no head. 390 is the mean number of
/// positions attended to in their document-masked batches.
inline constexpr convention paper{
    .positions = attended::given, .mean_attended = 390, .head = false, .covers_windows = false};

/// torchtitan: 6 x (active parameters without the input table) + 6 x layers x heads x (key + value size) x T.
inline constexpr convention torchtitan{
    .positions = attended::full_square, .vectors = true, .covers_loops = false, .covers_windows = false};

/// torchtitan's other path: 6 x (every parameter) + 6 x layers x heads x head_dim x T, one score product.
inline constexpr convention torchtitan_every_parameter{.positions = attended::full_square,
                                                       .score_products = 1,
                                                       .input_table = true,
                                                       .vectors = true,
                                                       .every_expert = true,
                                                       .covers_loops = false,
                                                       .covers_windows = false,
                                                       .covers_latent_attention = false};

/// Megatron's 72 B s l h^2 (1 + s/(6h) + V/(12 l h)): no recomputation.
inline constexpr convention megatron_72{.positions = attended::full_square,
                                        .covers_loops = false,
                                        .covers_windows = false,
                                        .covers_experts = false,
                                        .covers_gated_ffn = false,
                                        .covers_any_shape = false,
                                        .covers_latent_attention = false};

/// Megatron's 96 B s l h^2 (1 + s/(6h) + V/(16 l h)): the layers are recomputed.
inline constexpr convention megatron_96 = [] {
  convention c = megatron_72;
  c.recompute = true;
  return c;
}();

/// As smelt, with the whole T x T square of attention scores.
inline constexpr convention full_square{.positions = attended::full_square};

/// As smelt, with half of the T x T square.
inline constexpr convention half_square{.positions = attended::half_square};

}  // namespace conventions

/// A convention with its name.
struct named_convention {
  const char* name;
  const convention* value;
};

/// Every named convention, the default first.
inline constexpr named_convention named_conventions[] = {
    {"smelt", &conventions::smelt},
    {"paper", &conventions::paper},
    {"torchtitan", &conventions::torchtitan},
    {"torchtitan-every-parameter", &conventions::torchtitan_every_parameter},
    {"megatron-72", &conventions::megatron_72},
    {"megatron-96", &conventions::megatron_96},
    {"full-square", &conventions::full_square},
    {"half-square", &conventions::half_square},
};

/// The name of `c`; "custom" when it is none of the named ones.
[[nodiscard]] constexpr const char* name_of(const convention& c) noexcept {
  for (const named_convention& n : named_conventions)
    if (*n.value == c) return n.name;
  return "custom";
}

/// Which number a comparison of parameters compares.
enum class parameter_metric : int {
  non_embedding,  ///< without input table, head and learned positions
  total,          ///< every unique parameter
  active,         ///< of one token, with the input table
  matrices,       ///< N of the looped-model papers: matrices only, no embeddings
};

/// The name of `m`, as the JSON output writes it.
[[nodiscard]] constexpr const char* name_of(parameter_metric m) noexcept {
  switch (m) {
    case parameter_metric::non_embedding:
      return "non_embedding";
    case parameter_metric::total:
      return "total";
    case parameter_metric::active:
      return "active";
    case parameter_metric::matrices:
      return "matrices";
  }
  return "";
}

/// What two architectures are compared by: the same on both sides. The checks and the matcher share these defaults.
struct accounting {
  convention flops = conventions::smelt;
  parameter_metric params = parameter_metric::non_embedding;
  int kv_bytes_per_element = 2;

  friend constexpr bool operator==(const accounting&, const accounting&) = default;
};

/// The looped-MoE papers' own comparison.
inline constexpr accounting paper_accounting{.flops = conventions::paper, .params = parameter_metric::matrices};

}  // namespace smelt
