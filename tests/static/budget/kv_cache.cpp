// Do KV-cache bytes equal what is printed publicly? Per token, at a context, with windows, latents and visits.
#include <smelt/budget/kv_cache.hpp>
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
constexpr std::int64_t per_token(const spec& s) {
  return kv_cache(s).bytes_per_token;
}

static_assert(per_token(models::mixtral_8x7b) == 131'072);
static_assert(per_token(models::mixtral_8x22b) == 229'376);
static_assert(per_token(models::olmoe_1b_7b) == 131'072);
static_assert(per_token(models::qwen3_30b_a3b) == 98'304);
static_assert(per_token(models::qwen2_57b_a14b) == 57'344);
static_assert(per_token(models::deepseek_v2_lite) == 31'104);
static_assert(per_token(models::deepseek_v2) == 69'120);
static_assert(per_token(models::gpt_oss_20b) == 49'152);
static_assert(per_token(models::granite_1b_a400m) == 49'152);
static_assert(per_token(models::llama3_8b) == 131'072);
static_assert(per_token(models::qwen3_06b) == 114'688);
static_assert(per_token(models::llama31_405b) == 516'096);
static_assert(per_token(changed(models::llama31_405b, [](spec& s) { s.attention.kv_heads = 16; })) == 1'032'192);

// 22 layers, 4096 cells, 2 bytes: 88 MiB.
static_assert(kv_cache(models::tinyllama, 2, 4'096).bytes_at_context == 92'274'688);

// 12 layers, the middle 6 twice: 18 executed layers keep entries, not 12.
constexpr spec looped = changed(published::smelt_200m::value, [](spec& s) { s.attention.head_dim = 64; });
static_assert(per_token(looped) == 18'432);
static_assert(per_token(looped) != 12'288);

// A window keeps its last entries: half of the layers of gpt-oss keep 128.
static_assert(kv_cache(models::gpt_oss_20b, 2, 1'000).bytes_at_context == 2LL * 2 * 8 * 64 * 12 * (1'000 + 128));
static_assert(kv_cache(models::gpt_oss_20b, 2, 100).bytes_at_context == 100LL * 49'152);

// A visit at half resolution keeps one entry every two tokens.
constexpr spec latent = changed(looped, [](spec& s) { s.loop.visits = s.loop.visits.with(0, {.compression = 2}); });
static_assert(per_token(latent) == 15LL * 1'024);
constexpr std::int64_t held(std::int64_t tokens) {
  return kv_cache(latent, 2, tokens).bytes_at_context;
}
static_assert(held(1) == 12LL * 1'024);
static_assert(held(2) == (2LL * 12 + 6) * 1'024);
static_assert(held(3) == (3LL * 12 + 6) * 1'024);
static_assert(held(9) == (9LL * 12 + 4LL * 6) * 1'024);

// The published ratios.
constexpr std::int64_t thousandths(std::int64_t ppm) {
  return (ppm + 500) / 1'000;
}
static_assert(thousandths(ratio_ppm(per_token(published::smelt_200m::value),
                                    per_token(published::smelt_200m_baseline::value))) == 1'031);
static_assert(thousandths(ratio_ppm(per_token(published::smelt_600m::value),
                                    per_token(published::smelt_600m_baseline::value))) == 984);

}  // namespace
