// Which loops does LatentLoop's paper compare? Its ablation rows for every rung of the ladder, at the rung's budgets.
#pragma once

#include <cstdint>
#include <smelt/budget/affine.hpp>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/budget/presets.hpp>
#include <smelt/spec/arch.hpp>
#include <smelt/spec/rules.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt::presets {

namespace detail {

/// Rungs of the ladder, and the ablation's rows of each.
inline constexpr int rungs = 4;
inline constexpr int ablation_rows = 16;

struct rung_name {
  const char* name;
  const char* control;
};
inline constexpr rung_name rung_names[rungs] = {
    {"nano", "nano-control"}, {"micro", "micro-control"}, {"mini", "mini-control"}, {"small", "small-control"}};

/// Loops of equal sizes: what their visits say costs the same to a fraction of a percent.
enum class family : int {
  loop,          ///< two full visits
  untied,        ///< two full visits, the first with attention of its own
  three,         ///< three full visits
  four,          ///< four full visits
  latent,        ///< on pairs of tokens with attention of its own, then full
  latent_tied,   ///< on pairs of tokens, then full
  half_stream,   ///< on half of the stream, then full
  half_experts,  ///< on half of every expert, or half of the experts, then full
};
inline constexpr int families = 8;

[[nodiscard]] constexpr visit_list first_then_full(const visit_plan& first) {
  return visit_list{}.then(first).then({});
}

/// The visits that the sizes of a family are solved for; an `active` of 1 stands for half of the base's.
[[nodiscard]] constexpr visit_list visits_of(family f) {
  switch (f) {
    case family::loop:
      return visits(2, {});
    case family::untied:
      return first_then_full({.own_attention = true});
    case family::three:
      return visits(3, {.learned = true});
    case family::four:
      return visits(4, {.learned = true});
    case family::latent:
      return latent_twice.visits;
    case family::latent_tied:
      return first_then_full({.compression = 2});
    case family::half_stream:
      return first_then_full({.stream = {1, 2}});
    case family::half_experts:
      break;
  }
  return first_then_full({.expert_hidden = {1, 2}});
}

/// The sizes of a family at the budgets of `Base`; of the two families that have a name, those of their presets.
template <Architecture Base, family Family, match_options Options>
inline constexpr size_set solved =
    sizes_of(match(Base::value, {.count = loop_spec::half, .visits = visits_of(Family)}, latent_tolerance, Options));

/// The sizes of every family at one rung.
struct rung_sizes {
  size_set of[families];
};
template <Architecture Base, Architecture Smelt, Architecture LatentLoop, match_options LatentOptions = latent_options>
inline constexpr rung_sizes sizes_at{
    {sizes_of(Smelt::value), solved<Base, family::untied, latent_options>, solved<Base, family::three, latent_options>,
     solved<Base, family::four, latent_options>, sizes_of(LatentLoop::value),
     solved<Base, family::latent_tied, LatentOptions>, solved<Base, family::half_stream, latent_options>,
     solved<Base, family::half_experts, latent_options>}};
inline constexpr rung_sizes sizes[rungs] = {
    sizes_at<nano, nano_smelt, nano_latentloop>, sizes_at<micro, micro_smelt, micro_latentloop, fine_latent_options>,
    sizes_at<mini, mini_smelt, mini_latentloop>, sizes_at<small_base, small_smelt, small_latentloop>};

struct ablation_row {
  const char* suffix;
  family sizes;
  visit_list visits;  ///< its `active` of 1 stands for half of the base's
  const char* description;
};

/// LatentLoop's first visit with another encoder or writeback.
[[nodiscard]] constexpr visit_list latent(encoder_kind encoder, writeback_kind writeback) {
  return first_then_full({.compression = 2, .encoder = encoder, .writeback = writeback, .own_attention = true});
}

inline constexpr ablation_row rows[ablation_rows] = {
    {"loop-fixed", family::loop, first_then_full({.residual = {1, 4}}),
     "coefficients, fixed: 1/4 in the first visit, 1 in the second"},
    {"loop-learned", family::loop, visits(2, {.learned = true}), "coefficients, learned: one a visit, started at 1"},
    {"loop-3-learned", family::three, visits(3, {.learned = true}), "three visits with learned coefficients"},
    {"loop-4-learned", family::four, visits(4, {.learned = true}), "four visits with learned coefficients"},
    {"latentloop-direct", family::latent, latent(encoder_kind::mean, writeback_kind::direct),
     "encoder, mean: with the direct writeback"},
    {"latentloop-conv-direct", family::latent, latent(encoder_kind::conv, writeback_kind::direct),
     "encoder, convolution: with the direct writeback"},
    {"latentloop-softmax-direct", family::latent, latent(encoder_kind::softmax, writeback_kind::direct),
     "encoder, softmax aggregation: with the direct writeback"},
    {"latentloop-conv", family::latent, latent(encoder_kind::conv, writeback_kind::scaled),
     "encoder, convolution: with the scaled writeback"},
    {"latentloop-softmax", family::latent, latent(encoder_kind::softmax, writeback_kind::scaled),
     "encoder, softmax aggregation: with the scaled writeback"},
    {"latentloop-scalar", family::latent, latent(encoder_kind::mean, writeback_kind::scalar),
     "writeback, one scalar a receiver"},
    {"latentloop-normalised", family::latent, latent(encoder_kind::mean, writeback_kind::normalised),
     "writeback, RMS-normalised coefficients"},
    {"latentloop-tied", family::latent_tied, first_then_full({.compression = 2}),
     "sharing, compressed: attention shared by the visits; the first visit cut by compression"},
    {"loop-untied", family::untied, first_then_full({.own_attention = true}),
     "sharing, uncompressed: attention of the first visit's own"},
    {"half-stream", family::half_stream, first_then_full({.stream = {1, 2}}),
     "the first visit cut to half of the residual stream"},
    {"half-hidden", family::half_experts, first_then_full({.expert_hidden = {1, 2}}),
     "the first visit cut to half of every expert's hidden units"},
    {"half-active", family::half_experts, first_then_full({.active = 1}),
     "the first visit cut to half of the active experts"},
};

/// Names are put together here, so that a row is written once for all rungs.
struct ablation_names {
  char text[rungs * ablation_rows][40] = {};
};
inline constexpr ablation_names names = [] {
  ablation_names all;
  for (int i = 0; i < rungs * ablation_rows; ++i) {
    int n = 0;
    for (const char* c = rung_names[i / ablation_rows].name; *c != 0; ++c) all.text[i][n++] = *c;
    all.text[i][n++] = '-';
    for (const char* c = rows[i % ablation_rows].suffix; *c != 0; ++c) all.text[i][n++] = *c;
  }
  return all;
}();

[[nodiscard]] constexpr const spec& base_of(int rung) noexcept {
  return rung == 0 ? nano::value : rung == 1 ? micro::value : rung == 2 ? mini::value : small_base::value;
}

[[nodiscard]] constexpr spec ablation_spec(int rung, const ablation_row& row) noexcept {
  spec s = with_sizes(base_of(rung), sizes[rung].of[static_cast<int>(row.sizes)]);
  s.loop = {.count = loop_spec::half, .visits = row.visits};
  if (s.loop.visits.v0.active > 0) s.loop.visits.v0.active = s.experts.active / 2;
  return s;
}

}  // namespace detail

/// The rows of one group a rung.
inline constexpr const char* ablation_groups[detail::rungs] = {
    "LatentLoop's ablation at the budgets of nano", "LatentLoop's ablation at the budgets of micro",
    "LatentLoop's ablation at the budgets of mini", "LatentLoop's ablation at the budgets of small"};

/// Number of ablation rows, of all rungs together.
inline constexpr int ablations = detail::rungs * detail::ablation_rows;

/// Ablation row `i`. Precondition: 0 <= i < ablations.
[[nodiscard]] constexpr preset ablation(int i) noexcept {
  const int rung = i / detail::ablation_rows;
  const detail::ablation_row& row = detail::rows[i % detail::ablation_rows];
  return {detail::names.text[i],
          detail::ablation_spec(rung, row),
          detail::rung_names[rung].name,
          detail::rung_names[rung].control,
          row.description,
          ablation_groups[rung]};
}

namespace detail {

/// The first row of `rung` that cannot exist or misses the rung's budgets; -1 when there is none.
[[nodiscard]] constexpr int first_unmatched(int rung) {
  const budget_figures base = figures_of(base_of(rung));
  for (int i = rung * ablation_rows; i < (rung + 1) * ablation_rows; ++i)
    if (const spec s = ablation(i).value; !is_valid(s) || !agree(figures_of(s), base, latent_tolerance)) return i;
  return -1;
}

}  // namespace detail

// A number that is not -1 is the row that does not match.
static_assert(detail::first_unmatched(0) == -1);
static_assert(detail::first_unmatched(1) == -1);
static_assert(detail::first_unmatched(2) == -1);
static_assert(detail::first_unmatched(3) == -1);

}  // namespace smelt::presets
