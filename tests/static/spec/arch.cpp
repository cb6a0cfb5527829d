// Do concepts name the kinds of architecture, and are its quantities static members?
#include <smelt/spec/arch.hpp>
#include <smelt/spec/published.hpp>

#include "support/public_models.hpp"

namespace {

using namespace smelt;
using published::smelt_200m;
using published::smelt_200m_baseline;

template <class Change>
constexpr spec changed(spec s, Change change) {
  change(s);
  return s;
}

struct dense : arch<public_models::llama3_8b> {};
struct latent_kv : arch<public_models::deepseek_v2_lite> {};
struct latent_loop
    : arch<changed(smelt_200m::value, [](spec& s) { s.loop.visits = s.loop.visits.with(0, {.compression = 2}); })> {};
struct not_one {
  static constexpr spec value = smelt_200m::value;
};

static_assert(Architecture<smelt_200m> && Architecture<dense> && Architecture<arch<smelt_200m::value>>);
static_assert(!Architecture<not_one> && !Architecture<int> && !Architecture<spec>);
static_assert(Looped<smelt_200m> && !Looped<smelt_200m_baseline> && !Looped<int>);
static_assert(UniformVisits<smelt_200m> && UniformVisits<smelt_200m_baseline> && !UniformVisits<latent_loop>);
static_assert(Compressed<latent_loop> && !Compressed<smelt_200m>);
static_assert(MixtureOfExperts<smelt_200m> && !MixtureOfExperts<dense>);
static_assert(Dense<dense> && !Dense<latent_kv>);
static_assert(LatentAttention<latent_kv> && !LatentAttention<smelt_200m>);

static_assert(smelt_200m::width == 1'056 && smelt_200m::depth == 12 && smelt_200m::executed_depth == 18);
static_assert(smelt_200m::visits == 2 && smelt_200m::loop == loop_span{3, 6, 2});
static_assert(smelt_200m::experts == 288 && smelt_200m::active_experts == 8 && smelt_200m::compression == 1);
static_assert(latent_loop::compression == 2 && smelt_200m_baseline::visits == 1);

// The largest public spec compiles within the compilers' default limits.
struct llama_405b : arch<public_models::llama31_405b> {};
static_assert(llama_405b::depth == 126);

// Every public model can exist.
static_assert(is_valid(public_models::mixtral_8x7b) && is_valid(public_models::mixtral_8x22b));
static_assert(is_valid(public_models::olmoe_1b_7b) && is_valid(public_models::qwen3_30b_a3b));
static_assert(is_valid(public_models::qwen2_57b_a14b) && is_valid(public_models::deepseek_v2));
static_assert(is_valid(public_models::gpt_oss_20b) && is_valid(public_models::granite_1b_a400m));
static_assert(is_valid(public_models::qwen3_06b) && is_valid(public_models::gpt2_small));
static_assert(is_valid(public_models::stories_15m) && is_valid(public_models::gpt3_175b));

}  // namespace
