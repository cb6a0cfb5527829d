// Visits that are not alike: what a plan can say, what it costs, whether it keeps to the past, and more visits than a
// model was trained with.
#include <cstdio>
#include <smelt/smelt.hpp>
#include <vector>

// [plans]
/// A small mixture of experts whose middle half is visited as `list` says.
constexpr smelt::spec looped(smelt::visit_list list) {
  return {.vocab = 257,
          .context = 64,
          .width = 64,
          .layers = 4,
          .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
          .experts = {.stored = 8, .active = 2, .hidden = 32, .renormalise = true},
          .tied_head = true,
          .loop = {.count = smelt::loop_spec::half, .visits = list}};
}

/// Twice, and every write counts fully.
struct twice : smelt::arch<looped(smelt::visits(2, {}))> {};

/// LatentLoop: first on pairs of tokens, with attention of its own; then on every token.
struct latent_loop : smelt::arch<looped(smelt::visit_list{}.then({.compression = 2, .own_attention = true}).then({}))> {
};

/// Three visits that learn how much each writes, the first of them on one expert a token and half of its hidden units.
struct learned
    : smelt::arch<looped(smelt::visit_list{}
                             .then({.residual = {1, 4}, .learned = true, .active = 1, .expert_hidden = {1, 2}})
                             .then({.learned = true}, 2))> {};
// [/plans]

// [costs]
// Six executed layers, two of them on half as many positions: five sixths of the experts' work and of the KV cache.
static_assert(smelt::flops(latent_loop::value).experts * 6 == smelt::flops(twice::value).experts * 5);
static_assert(smelt::kv_cache(latent_loop::value).bytes_at_context * 6 ==
              smelt::kv_cache(twice::value).bytes_at_context * 5);
// What the first visit keeps for itself: a factor a receiver and channel, and the attention of two layers.
static_assert(smelt::parameters(latent_loop::value).writebacks == 2 * 64);
static_assert(smelt::parameters(latent_loop::value).own_attention * 2 == smelt::parameters(twice::value).attention);
static_assert(smelt::parameters(learned::value).coefficients == 3);
// [/costs]

int main() {
  smelt::cpu backend{smelt::serial_executor{}};

  // [probe]
  // Tokens behind a prefix are changed; the prefix must keep its bits.
  const smelt::weight_buffer<float> weights = smelt::probe_weights<float>(latent_loop::value, /*seed=*/1);
  const std::vector<std::int64_t> lengths = smelt::causality_lengths(latent_loop::value.context);
  const smelt::causality_report report = smelt::probe_causality(latent_loop{}, backend, weights, lengths);
  std::printf("%lld pairs of batches, %s\n", static_cast<long long>(report.comparisons),
              report.holds() ? "nothing leaks" : "the future leaks");
  // [/probe]

  // [more_visits]
  // The same weights, visited three times; the coefficient stays as it was trained.
  const smelt::spec deeper = smelt::with_visits(twice::value, 3);
  // [/more_visits]
  const bool same_weights = smelt::weight_layout(deeper).size() == smelt::weight_layout(twice::value).size();
  return report.holds() && same_weights && smelt::schedule(deeper).size() == 8 ? 0 : 1;
}
