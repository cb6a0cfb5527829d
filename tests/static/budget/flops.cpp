// Do FLOPs equal what the named tools print, and the papers' ratios? Every figure to the integer.
#include <smelt/budget/flops.hpp>
#include <smelt/budget/tolerance.hpp>
#include <smelt/spec/published.hpp>

#include "support/public_models.hpp"

namespace {

using namespace smelt;
namespace models = smelt::public_models;

template <class Change>
constexpr spec changed(spec s, Change change) {
  change(s);
  return s;
}

// One trainer, two paths, one model at T = 8192.
static_assert(flops(models::qwen3_30b_a3b, conventions::torchtitan, 8'192).train_per_token == 37'578'559'488);
static_assert(flops(models::qwen3_30b_a3b, conventions::torchtitan_every_parameter, 8'192).train_per_token ==
              192'856'412'160);

// Attended pairs at T = 8192: exact, and as conventions count them for one head of size 1.
static_assert(causal_pairs(8'192) == 33'558'528);
static_assert(causal_pairs(8'192, 128) == 1'040'448);
static_assert(causal_pairs(100, 128) == causal_pairs(100));
constexpr std::int64_t pairs(attended positions, int window) {
  return detail::doubled_pairs<std::int64_t>(8'192, window, 1, {.positions = positions}) / 2;
}
static_assert(pairs(attended::causal, 0) == 33'558'528);
static_assert(pairs(attended::full_square, 0) == 67'108'864);
static_assert(pairs(attended::half_square, 0) == 33'554'432);
static_assert(pairs(attended::full_square, 128) == 1'048'576);
static_assert(pairs(attended::half_square, 128) == 524'288);

// Megatron's formulas on h 12288, l 96, s 2048, V 51200.
constexpr flop_count megatron = flops(models::gpt3_175b, conventions::megatron_72);
static_assert(megatron.train_per_token == 1'076'442'955'776);
static_assert(3 * megatron.head / megatron.context == 3'774'873'600);
constexpr std::int64_t recomputed = flops(models::gpt3_175b, conventions::megatron_96).train_per_token;
static_assert(recomputed == 96LL * 96 * 12'288 * 12'288 + 16LL * 96 * 12'288 * 2'048 + 6LL * 12'288 * 51'200);

// The head costs 2 V d whether tied or not; the lookup costs nothing.
constexpr flop_count tied = flops(models::qwen3_06b);
constexpr flop_count untied = flops(changed(models::qwen3_06b, [](spec& s) { s.tied_head = false; }));
static_assert(tied.forward == untied.forward && tied.train == untied.train);
static_assert(tied.head / tied.context == 311'164'928 && tied.input_table == 0);

// A convention that does not know a kind of layer says so.
static_assert(flops(models::gpt_oss_20b, conventions::torchtitan).gap == coverage_gap::window);
static_assert(flops(published::smelt_200m::value, conventions::torchtitan).gap == coverage_gap::loop);
static_assert(flops(models::qwen3_30b_a3b, conventions::megatron_72).gap == coverage_gap::experts);
static_assert(flops(models::llama3_8b, conventions::megatron_72).gap == coverage_gap::gated_ffn);
static_assert(flops(models::deepseek_v2, conventions::torchtitan_every_parameter).gap ==
              coverage_gap::latent_attention);
static_assert(flops(changed(models::gpt3_175b, [](spec& s) { s.attention.head_dim = 64; }), conventions::megatron_72)
                  .gap == coverage_gap::shape);
static_assert(flops(models::gpt_oss_20b, conventions::torchtitan).train_per_token == 0);
static_assert(flops(models::gpt_oss_20b).covered());

// A part is its matrices, twice, for every token.
constexpr flop_count qwen15 = flops(models::qwen15_moe_a27b);
static_assert((qwen15.experts + qwen15.shared_experts) / qwen15.context == 2LL * 24 * (69'206'016 + 2'048));

// The papers' ratios, every published digit, and the formula itself.
constexpr std::int64_t paper_flops(const spec& s) {
  return flops(s, conventions::paper).train_per_token;
}
constexpr std::int64_t thousandths(std::int64_t ppm) {
  return (ppm + 500) / 1'000;
}
static_assert(thousandths(ratio_ppm(paper_flops(published::smelt_200m::value),
                                    paper_flops(published::smelt_200m_baseline::value))) == 1'029);
static_assert(thousandths(ratio_ppm(paper_flops(published::smelt_600m::value),
                                    paper_flops(published::smelt_600m_baseline::value))) == 1'031);
constexpr std::int64_t formula(const spec& s, std::int64_t executed) {
  const std::int64_t h = s.width;
  const std::int64_t heads_width = std::int64_t{s.attention.heads} * s.attention.head_dim;
  const std::int64_t kv_width = std::int64_t{s.attention.kv_heads} * s.attention.head_dim;
  const std::int64_t layer =
      h * (2 * heads_width + 2 * kv_width) + h * s.experts.stored + 3 * h * s.experts.active * s.experts.hidden;
  return 6 * executed * layer + 12 * executed * heads_width * 390;
}
static_assert(paper_flops(published::smelt_200m::value) == formula(published::smelt_200m::value, 18));
static_assert(paper_flops(published::smelt_600m_baseline::value) == formula(published::smelt_600m_baseline::value, 20));

// Half the resolution in the first visit: half of its projections, a quarter of its scores.
constexpr spec base = published::smelt_200m::value;
constexpr spec latent = changed(base, [](spec& s) { s.loop.visits = s.loop.visits.with(0, {.compression = 2}); });
constexpr flop_count full_paper = flops(base, conventions::paper);
constexpr flop_count latent_paper = flops(latent, conventions::paper);
static_assert(full_paper.experts / 18 * 15 == latent_paper.experts);
static_assert(full_paper.router / 18 * 15 == latent_paper.router);
static_assert(full_paper.attention_projections / 18 * 15 == latent_paper.attention_projections);
static_assert(full_paper.attention_scores / 72 * (4 * 12 + 6) == latent_paper.attention_scores);
// Exactly: 1024 latents attend to (1024 * 1025) / 2 pairs.
static_assert(flops(base).attention_scores / 18 * 12 + 6 * (4LL * 24 * 44) * (1'024 * 1'025 / 2) ==
              flops(latent).attention_scores);

constexpr flop_count f_base = flops(base);

// One multiply-add is two FLOPs.
static_assert(2 * flops(base, {.unit = operation::mac}).forward == flops(base).forward);

// Per token: independent of how many sequences make up a step, and the parts are the whole.
constexpr flop_count f = flops(models::gpt_oss_20b);
static_assert(f.attention_projections + f.attention_scores + f.router + f.experts + f.shared_experts + f.dense_ffn +
                  f.head + f.input_table + f.exit_gate + f.vectors ==
              f.forward);
static_assert(f.train == 3 * f.forward);

// A convention knows its name.
constexpr bool same(const char* a, const char* b) {
  for (; *a != 0 && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}
static_assert(same(name_of(conventions::smelt), "smelt") && same(name_of(conventions::megatron_96), "megatron-96"));
static_assert(same(name_of(convention{.head = false}), "custom"));

// A visit by half of the experts, half of their hidden units, half of the stream: 12 layers in full, 6 at the share.
constexpr spec with_first(const visit_plan& plan) {
  return changed(base, [&](spec& s) { s.loop.visits = s.loop.visits.with(0, plan); });
}
constexpr flop_count fewer = flops(with_first({.active = 4}));
static_assert(fewer.experts == f_base.experts / 18 * 15 && fewer.router == f_base.router);
constexpr flop_count thinner = flops(with_first({.expert_hidden = {1, 2}}));
static_assert(thinner.experts == fewer.experts && thinner.attention_projections == f_base.attention_projections);
constexpr flop_count narrower = flops(with_first({.stream = {1, 2}}));
static_assert(narrower.experts == fewer.experts &&
              narrower.attention_projections == f_base.attention_projections / 18 * 15);
static_assert(narrower.attention_scores == f_base.attention_scores);
static_assert(narrower.visit_projections == 2'048LL * 2 * (2 * 1'056 * 528) && f_base.visit_projections == 0);

}  // namespace
