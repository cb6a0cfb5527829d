// Do parameter counts equal the totals that are printed publicly? Every row to the integer.
#include <smelt/budget/parameters.hpp>
#include <smelt/spec/published.hpp>
#include <smelt/spec/rules.hpp>
#include <smelt/spec/schedule.hpp>

#include "support/public_models.hpp"

namespace {

using namespace smelt;
namespace models = smelt::public_models;

struct row {
  std::int64_t total, active, active_without_input_table, non_embedding;
  friend constexpr bool operator==(const row&, const row&) = default;
};
constexpr row row_of(const spec& s) {
  const parameter_count p = parameters(s);
  return {p.total, p.active, p.active_without_input_table, p.non_embedding};
}

static_assert(row_of(models::mixtral_8x7b) == row{46'702'792'704, 12'879'925'248, 12'748'853'248, 46'440'648'704});
static_assert(row_of(models::mixtral_8x22b) == row{140'630'071'296, 39'161'468'928, 38'960'142'336, 140'227'418'112});
static_assert(row_of(models::olmoe_1b_7b) == row{6'919'161'856, 1'282'017'280, 1'178'994'688, 6'713'116'672});
static_assert(row_of(models::qwen3_30b_a3b) == row{30'532'122'624, 3'353'032'704, 3'041'867'776, 29'909'792'768});
static_assert(row_of(models::qwen2_57b_a14b) == row{57'408'658'944, 14'249'270'784, 13'704'732'160, 56'319'581'696});
static_assert(row_of(models::deepseek_v2_lite) == row{15'706'484'224, 2'661'150'208, 2'451'435'008, 15'287'053'824});
static_assert(row_of(models::deepseek_v2) == row{235'741'434'880, 21'375'800'320, 20'851'512'320, 234'692'858'880});
static_assert(row_of(models::gpt_oss_20b) == row{20'914'757'184, 4'187'440'704, 3'608'307'264, 19'756'490'304});
static_assert(row_of(models::granite_1b_a400m) == row{1'334'628'352, 428'658'688, 428'658'688, 1'284'293'632});
static_assert(row_of(models::llama3_8b) == row{8'030'261'248, 8'030'261'248, 7'504'924'672, 6'979'588'096});
static_assert(row_of(models::qwen3_06b) == row{596'049'920, 596'049'920, 596'049'920, 440'467'456});

/// `s` after `change` was applied to it.
template <class Change>
constexpr spec changed(spec s, Change change) {
  change(s);
  return s;
}

// What a wrong assumption costs.
static_assert(parameters(changed(models::mixtral_8x22b, [](spec& s) { s.vocab = 32'000; })).total == 140'620'634'112);
static_assert(parameters(changed(models::qwen3_30b_a3b, [](spec& s) { s.attention.head_dim = 64; })).total ==
              30'079'131'648);
static_assert(parameters(models::qwen3_30b_a3b).total -
                  parameters(changed(models::qwen3_30b_a3b, [](spec& s) { s.attention.norm = qk_norm::none; })).total ==
              12'288);
static_assert(parameters(changed(models::llama3_8b, [](spec& s) { s.attention.kv_heads = 32; })).total ==
              8'835'567'616);
static_assert(parameters(changed(models::gpt_oss_20b, [](spec& s) {
                s.attention.head_dim = 45;
                s.positions = position_kind::learned;  // an odd head size, without rotary
                s.context = 0;
              })).total == 20'725'608'384);
static_assert(parameters(changed(models::gpt_oss_20b, [](spec& s) {
                s.attention.qkv_bias = s.attention.o_bias = s.attention.sinks = false;
                s.experts.bias = s.experts.router_bias = false;
              })).total == 20'907'927'360);
static_assert(parameters(changed(models::qwen2_57b_a14b, [](spec& s) {
                s.experts.shared_hidden = 0;
                s.experts.shared_gate = false;
              })).total == 51'242'931'712);
static_assert(parameters(changed(models::olmoe_1b_7b, [](spec& s) { s.attention.norm = qk_norm::per_head; })).total ==
              6'919'100'416);
static_assert(parameters(changed(models::qwen2_57b_a14b, [](spec& s) { s.experts.hidden = 18'944 / 8; })).total ==
              53'709'282'816);

// A tied head is stored once, or twice where a file keeps both.
static_assert(parameters(models::stories_15m).total == 15'191'712 &&
              parameters(models::stories_15m).stored == 24'407'712);
static_assert(parameters(models::stories_42m).total == 41'689'600 &&
              parameters(models::stories_42m).stored == 58'073'600);
static_assert(parameters(models::stories_110m).total == 109'529'856 &&
              parameters(models::stories_110m).stored == 134'105'856);
static_assert(parameters(models::qwen3_06b).stored == 751'632'384);
constexpr std::int64_t untied = parameters(changed(models::qwen3_06b, [](spec& s) { s.tied_head = false; })).total;
static_assert(untied - parameters(models::qwen3_06b).total == 151'936LL * 1'024);

// The padded vocabulary is what is stored; the logical one is what the tokenizer has.
static_assert(parameters(models::gpt2_small).total == 124'439'808);
static_assert(parameters(changed(models::gpt2_small, [](spec& s) { s.padded_vocab = 50'304; })).total == 124'475'904);

static_assert(parameters(models::llama31_405b).total == 405'853'388'800);
static_assert(parameters(changed(models::llama31_405b, [](spec& s) { s.attention.kv_heads = 16; })).total ==
              410'081'247'232);
// The hidden width is that of ONE of gate and up.
static_assert(parameters(models::llama31_70b).total == 70'553'706'496);
static_assert(parameters(changed(models::llama31_70b, [](spec& s) { s.dense_hidden = 86'016; })).total !=
              70'553'706'496);

static_assert(tensor_count(models::olmoe_1b_7b) == 3'219);
static_assert(tensor_count(models::mixtral_8x7b) == 995);

// The active weights of a layer's experts, which are not those of a dense layer of the listed width.
constexpr layer_parameters qwen15 = parameters_of_layer(models::qwen15_moe_a27b);
static_assert(4 * qwen15.expert_matrices + qwen15.shared_matrices - 2'048 == 69'206'016);
static_assert(8 * parameters_of_layer(models::qwen3_30b_a3b).expert_matrices == 37'748'736);

// SMELT's rows: every digit of N_act and N, in billions.
constexpr std::int64_t thousandths(std::int64_t n) {
  return (n + 500'000) / 1'000'000;
}
constexpr std::int64_t hundredths(std::int64_t n) {
  return (n + 5'000'000) / 10'000'000;
}
static_assert(thousandths(parameters(published::smelt_200m_baseline::value).matrices_active) == 209);
static_assert(hundredths(parameters(published::smelt_200m_baseline::value).matrices) == 387);
static_assert(thousandths(parameters(published::smelt_200m::value).matrices_active) == 142);
static_assert(hundredths(parameters(published::smelt_200m::value).matrices) == 389);
static_assert(thousandths(parameters(published::smelt_600m_baseline::value).matrices_active) == 675);
static_assert(hundredths(parameters(published::smelt_600m_baseline::value).matrices) == 2'183);
static_assert(thousandths(parameters(published::smelt_600m::value).matrices_active) == 459);
static_assert(hundredths(parameters(published::smelt_600m::value).matrices) == 2'170);

// The unrolled size: R = 1 is one traversal; half of the layers in the loop make R = 2 one and a half.
constexpr parameter_count smelt_row = parameters(published::smelt_200m::value);
static_assert(unrolled_parameters(smelt_row, 1) == smelt_row.matrices_active);
static_assert(2 * unrolled_parameters(smelt_row, 2) == 3 * smelt_row.matrices_active);
static_assert(parameters(published::smelt_200m_baseline::value).matrices_loop == 0);

// Attention of a visit's own stores span x attention more; when every visit has its own, nobody keeps a shared one.
constexpr spec untied_visit = changed(published::smelt_200m::value,
                                      [](spec& s) { s.loop.visits = s.loop.visits.with(1, {.own_attention = true}); });
constexpr spec untied_visits =
    changed(untied_visit, [](spec& s) { s.loop.visits = s.loop.visits.with(0, {.own_attention = true}); });
static_assert(parameters(untied_visit).own_attention == 6 * parameters_of_layer(untied_visit).attention_matrices);
static_assert(parameters(untied_visit).matrices - smelt_row.matrices == parameters(untied_visit).own_attention);
static_assert(parameters(untied_visits).total == parameters(untied_visit).total);

// What a visit keeps for itself lies outside the layers: once a visit, whatever the number of layers in the span.
constexpr spec latent = changed(published::smelt_200m::value, [](spec& s) {
  s.loop.visits = visit_list{}.then({.learned = true, .compression = 2}).then({.stream = {1, 2}}, 2);
});
static_assert(parameters_of_visit(latent, latent.loop.visits[0]).writeback == 2 * 1'056);
static_assert(parameters_of_visit(latent, latent.loop.visits[0]).coefficient == 1);
static_assert(parameters_of_visit(latent, latent.loop.visits[1]).projections == 2 * 1'056 * 528);
static_assert(parameters(latent).total - smelt_row.total == 2 * 1'056 + 1 + 2 * (2 * 1'056 * 528));
static_assert(parameters(latent).coefficients == 1 && parameters(latent).writebacks == 2 * 1'056);

// The looped mixture-of-experts ladder is called by its parameters with the table, at one expert's worth a layer;
// attention is H (2 H + 512) a layer, the feed-forward 12 H^2 times the sparsity.
constexpr bool ladder_of_the_laws() {
  constexpr std::int64_t tenths[] = {3, 6, 10, 16, 24};
  for (int i = 0; i < 5; ++i) {
    const published::looped_moe_rung& rung = published::looped_moe_ladder[i];
    const std::int64_t h = rung.width;
    const parameter_count p = parameters(published::looped_moe(rung, 1, 1));
    if ((p.total + 50'000'000) / 100'000'000 != tenths[i]) return false;
    const spec sparse = published::looped_moe(rung, 16, 4);
    const parameter_count q = parameters(sparse);
    if (!is_valid(sparse) || q.matrices != rung.layers * (h * (2 * h + 512) + 16 * 12 * h * h + h * 128)) return false;
    // Sixteen visits unroll to N_act + 15 N_loop, of all layers but four.
    const spec deep = published::looped_moe(rung, 16, 16);
    if (unrolled_parameters(q, 16) * rung.layers != q.matrices_active * (rung.layers + 15LL * (rung.layers - 4)))
      return false;
    if (schedule(deep).size() != 4 + 16 * (rung.layers - 4)) return false;
  }
  return true;
}
static_assert(ladder_of_the_laws());

}  // namespace
