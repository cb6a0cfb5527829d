// Which specs cannot exist? One rule a field, read by the compiler and at run time alike.
#pragma once

#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

// The words of the rules. Macros because a static_assert needs a literal, and the run-time message must be the same.
#define SMELT_S001 "[smelt-S001] spec: vocab must be at least 1; set .vocab to the tokenizer's size"
#define SMELT_S002 "[smelt-S002] spec: padded_vocab must be 0 or at least vocab; raise it or leave it 0"
#define SMELT_S003 "[smelt-S003] spec: context must be at least 1; set .context in tokens"
#define SMELT_S004 "[smelt-S004] spec: width must be at least 1; set .width"
#define SMELT_S005 "[smelt-S005] spec: layers must be from 1 to 256; change .layers"
#define SMELT_S006 "[smelt-S006] spec: dense_layers must be from 0 to layers; lower .dense_layers"
#define SMELT_S007 "[smelt-S007] spec: dense_hidden must be at least 1 when there are dense layers; set .dense_hidden"
#define SMELT_S008 "[smelt-S008] spec: attention.heads must be at least 1; set .attention.heads"
#define SMELT_S009                                                                                           \
  "[smelt-S009] spec: attention.heads must be a multiple of attention.kv_heads; change .attention.heads or " \
  ".attention.kv_heads"
#define SMELT_S010 "[smelt-S010] spec: attention.head_dim must be at least 1; set .attention.head_dim"
#define SMELT_S011                                                                                                    \
  "[smelt-S011] spec: attention.head_dim (rope_dim of latent attention) must be even with rotary positions; make it " \
  "even"
#define SMELT_S012 "[smelt-S012] spec: attention.window must be 0 (no window) or positive; set .attention.window"
#define SMELT_S013 "[smelt-S013] spec: attention.rotary_base must be at least 2; set .attention.rotary_base"
#define SMELT_S014                                                                                             \
  "[smelt-S014] spec: attention.latent must have ranks and head sizes of at least 1 when kv_rank is set; set " \
  ".attention.latent"
#define SMELT_S015                                                                                                    \
  "[smelt-S015] spec: experts.stored must be at least 1 when a layer has experts; set .experts.stored or make every " \
  "layer dense"
#define SMELT_S016 \
  "[smelt-S016] spec: experts.active must be from 1 to experts.stored; lower .experts.active or raise .experts.stored"
#define SMELT_S017 "[smelt-S017] spec: experts.hidden must be at least 1 when a layer has experts; set .experts.hidden"
#define SMELT_S018 \
  "[smelt-S018] spec: experts.shared_hidden must be 0 (no shared expert) or positive; set .experts.shared_hidden"
#define SMELT_S019                                                                                    \
  "[smelt-S019] spec: experts.shared_gate needs a shared expert; set .experts.shared_hidden or drop " \
  ".experts.shared_gate"
#define SMELT_S020 "[smelt-S020] spec: norms_per_layer must be 2 or 4; change .norms_per_layer"
#define SMELT_S021 "[smelt-S021] spec: norm_eps must be above 0 and below 1; set .norm_eps"
#define SMELT_S022 "[smelt-S022] spec: loop.count must be 0 (no loop), positive, or loop_spec::half; set .loop.count"
#define SMELT_S023 "[smelt-S023] spec: loop.first must be a layer or loop_spec::middle; set .loop.first"
#define SMELT_S024 "[smelt-S024] spec: loop.first + loop.count must not pass layers; move or shorten the span"
#define SMELT_S025 \
  "[smelt-S025] spec: loop.visits must hold at least 1 visit when there is a span; set .loop.visits = visits(2)"
#define SMELT_S026 "[smelt-S026] spec: loop.visits must hold at most 16 visits; drop visits"
#define SMELT_S027 "[smelt-S027] spec: loop.visits needs a span to visit; set .loop.count, or drop .loop.visits"
#define SMELT_S028 "[smelt-S028] spec: visit_plan.compression must be from 1 to context; 1 is full resolution"
#define SMELT_S029 "[smelt-S029] spec: visit_plan.residual must have a denominator of at least 1; write 1/2 as {1, 2}"
#define SMELT_S030 "[smelt-S030] spec: exit_gate needs a loop of at least 2 visits; add .loop or drop .exit_gate"
#define SMELT_S031                                                                                             \
  "[smelt-S031] spec: loop.visits must be at most 8 runs of visits by the same plan; build it with visits(n) " \
  "and .then(plan, n), and let neighbours share a plan"
#define SMELT_S032                                                                                           \
  "[smelt-S032] spec: visit_plan.active must be 0 (as many as experts.active) or from 1 to experts.stored, " \
  "and 0 in a span without routed experts; change .active"
#define SMELT_S033                                                                                   \
  "[smelt-S033] spec: visit_plan.expert_hidden must be above 0 and at most 1, leave whole units of " \
  "experts.hidden, and be 1 in a span without routed experts; write a half as {1, 2}"
#define SMELT_S034                                                                                               \
  "[smelt-S034] spec: visit_plan.stream must be above 0 and at most 1 and leave whole channels of width; write " \
  "a half as {1, 2}"
#define SMELT_S035                                                                                                 \
  "[smelt-S035] spec: visit_plan.residual must not be 0 when learned, or its gradient could not be had; start it " \
  "elsewhere or drop .learned"

/// The rules by name.
enum class rule : int {
  none,
  vocab,
  padded_vocab,
  context,
  width,
  layers,
  dense_layers,
  dense_hidden,
  attention_heads,
  attention_kv_heads,
  attention_head_dim,
  rotary_head_dim,
  attention_window,
  rotary_base,
  latent_attention,
  experts_stored,
  experts_active,
  experts_hidden,
  shared_hidden,
  shared_gate,
  norms_per_layer,
  norm_eps,
  loop_count,
  loop_first,
  loop_span,
  loop_visits,
  loop_visits_limit,
  loop_without_span,
  visit_compression,
  visit_residual,
  exit_gate,
  loop_runs,
  visit_active,
  visit_expert_hidden,
  visit_stream,
  visit_learned,
};

/// A broken rule with the value found and the value it was held against; `rule::none` when all hold.
struct violation {
  rule broken = rule::none;
  long long found = 0;
  long long limit = 0;
};

namespace detail {

/// The least of the ranks and head sizes.
[[nodiscard]] constexpr int least_of(const latent_attention_spec& l) noexcept {
  const int sizes[] = {l.kv_rank, l.q_rank, l.nope_dim, l.rope_dim, l.value_dim};
  int least = sizes[0];
  for (const int size : sizes) least = size < least ? size : least;
  return least;
}
/// Visits that the runs of a list hold.
[[nodiscard]] constexpr long long visits_in_runs(const visit_list& list) noexcept {
  long long n = 0;
  for (int i = 0; i < list.runs(); ++i) n += visit_list::length_of(list, i);
  return n;
}

/// The violation of `broken` by a share of `size`: it is above 0 and at most 1, and so is the whole part it leaves.
[[nodiscard]] constexpr violation share_violation(rule broken, const ratio& share, int size) noexcept {
  if (share.den < 1) return {broken, share.den, 1};
  if (share.num < 1) return {broken, share.num, 1};
  if (share.num > share.den) return {broken, share.num, share.den};
  if (const long long rest = static_cast<long long>(size) * share.num % share.den; rest != 0)
    return {broken, size, share.den};
  return {};
}

/// The first rule that a plan of `s` breaks; `routed` says whether a layer of the span has routed experts.
[[nodiscard]] constexpr violation plan_violation(const spec& s, const visit_plan& v, bool routed) noexcept {
  if (!(v.compression >= 1 && v.compression <= s.context))
    return {rule::visit_compression, v.compression, v.compression < 1 ? 1 : s.context};
  if (!(v.residual.den >= 1)) return {rule::visit_residual, v.residual.den, 1};
  if (!(v.active >= 0 && v.active <= (routed ? s.experts.stored : 0)))
    return {rule::visit_active, v.active, routed ? s.experts.stored : 0};
  if (!(routed || is_whole(v.expert_hidden)))
    return {rule::visit_expert_hidden, v.expert_hidden.num, v.expert_hidden.den};
  if (const violation b = share_violation(rule::visit_expert_hidden, v.expert_hidden, routed ? s.experts.hidden : 0);
      b.broken != rule::none)
    return b;
  if (const violation b = share_violation(rule::visit_stream, v.stream, s.width); b.broken != rule::none) return b;
  if (!(!v.learned || v.residual.num != 0)) return {rule::visit_learned, v.residual.num, v.residual.den};
  return {};
}

}  // namespace detail

/// The first rule that `s` breaks; every condition can be evaluated whatever the values of the fields.
[[nodiscard]] constexpr violation first_violation(const spec& s) noexcept {
  const bool routed = s.dense_layers < s.layers;
  const bool looped = span_of(s).count != 0;
  const latent_attention_spec& latent = s.attention.latent;
  if (!(s.vocab >= 1)) return {rule::vocab, s.vocab, 1};
  if (!(s.padded_vocab == 0 || s.padded_vocab >= s.vocab)) return {rule::padded_vocab, s.padded_vocab, s.vocab};
  if (!(s.context >= 1)) return {rule::context, s.context, 1};
  if (!(s.width >= 1)) return {rule::width, s.width, 1};
  if (!(s.layers >= 1 && s.layers <= max_layers)) return {rule::layers, s.layers, max_layers};
  if (!(s.dense_layers >= 0 && s.dense_layers <= s.layers)) return {rule::dense_layers, s.dense_layers, s.layers};
  if (!(s.dense_layers <= 0 || s.dense_hidden >= 1)) return {rule::dense_hidden, s.dense_hidden, 1};
  if (!(s.attention.heads >= 1)) return {rule::attention_heads, s.attention.heads, 1};
  if (!(s.attention.kv_heads >= 1 && s.attention.heads % (s.attention.kv_heads < 1 ? 1 : s.attention.kv_heads) == 0))
    return {rule::attention_kv_heads, s.attention.heads, s.attention.kv_heads};
  if (!(s.attention.head_dim >= 1 || has_latent_attention(s)))
    return {rule::attention_head_dim, s.attention.head_dim, 1};
  if (!(s.positions != position_kind::rotary ||
        (has_latent_attention(s) ? latent.rope_dim : s.attention.head_dim) % 2 == 0))
    return {rule::rotary_head_dim, has_latent_attention(s) ? latent.rope_dim : s.attention.head_dim, 2};
  if (!(s.attention.window >= 0)) return {rule::attention_window, s.attention.window, 0};
  if (!(s.attention.rotary_base >= 2)) return {rule::rotary_base, s.attention.rotary_base, 2};
  if (!(detail::least_of(latent) >= 0)) return {rule::latent_attention, detail::least_of(latent), 0};
  if (!(!has_latent_attention(s) || (latent.value_dim >= 1 && (latent.nope_dim >= 1 || latent.rope_dim >= 1))))
    return {rule::latent_attention, 0, 1};
  if (!(!routed || s.experts.stored >= 1)) return {rule::experts_stored, s.experts.stored, 1};
  if (!(!routed || (s.experts.active >= 1 && s.experts.active <= s.experts.stored)))
    return {rule::experts_active, s.experts.active, s.experts.stored};
  if (!(!routed || s.experts.hidden >= 1)) return {rule::experts_hidden, s.experts.hidden, 1};
  if (!(s.experts.shared_hidden >= 0)) return {rule::shared_hidden, s.experts.shared_hidden, 0};
  if (!(!s.experts.shared_gate || s.experts.shared_hidden > 0)) return {rule::shared_gate, s.experts.shared_hidden, 1};
  if (!(s.norms_per_layer == 2 || s.norms_per_layer == 4)) return {rule::norms_per_layer, s.norms_per_layer, 2};
  if (!(s.norm_eps > 0.0 && s.norm_eps < 1.0)) return {rule::norm_eps, s.norm_eps >= 1.0 ? 1 : 0, 1};
  if (!(s.loop.count >= 0 || s.loop.count == loop_spec::half)) return {rule::loop_count, s.loop.count, 0};
  if (!(s.loop.first >= 0 || s.loop.first == loop_spec::middle)) return {rule::loop_first, s.loop.first, 0};
  if (!(span_of(s).first >= 0 && span_of(s).count <= s.layers - span_of(s).first))
    return {rule::loop_span, static_cast<long long>(span_of(s).first > 0 ? span_of(s).first : 0) + span_of(s).count,
            s.layers};
  if (!(!looped || s.loop.visits.count >= 1)) return {rule::loop_visits, s.loop.visits.count, 1};
  if (!(s.loop.visits.count >= 0 && s.loop.visits.count <= max_visits))
    return {rule::loop_visits_limit, s.loop.visits.count, max_visits};
  if (!(looped || s.loop.visits.count <= 0)) return {rule::loop_without_span, s.loop.visits.count, 0};
  if (!(detail::visits_in_runs(s.loop.visits) == s.loop.visits.count))
    return {rule::loop_runs, s.loop.visits.count, detail::visits_in_runs(s.loop.visits)};
  const bool routed_span = looped && span_of(s).first + span_of(s).count > s.dense_layers;
  for (int i = 0; i < s.loop.visits.runs(); ++i)
    if (const violation v = detail::plan_violation(s, visit_list::plan_of(s.loop.visits, i), routed_span);
        v.broken != rule::none)
      return v;
  if (!(!s.exit_gate || span_of(s).visits > 1)) return {rule::exit_gate, span_of(s).visits, 2};
  return {};
}

/// Whether `s` can exist.
[[nodiscard]] constexpr bool is_valid(const spec& s) noexcept {
  return first_violation(s).broken == rule::none;
}

/// The value a rule found, as a type, so that the compiler prints it.
template <long long Value>
struct found {
  static constexpr bool allowed = false;
};
/// The value a rule compares with, as a type, so that the compiler prints it.
template <long long Value>
struct limit {};

/// Fails to compile, with the rule's words, when instantiated for a broken rule.
template <rule Broken, class Found, class Limit>
struct spec_check {};
template <class Found, class Limit>
struct spec_check<rule::vocab, Found, Limit> {
  static_assert(Found::allowed, SMELT_S001);
};
template <class Found, class Limit>
struct spec_check<rule::padded_vocab, Found, Limit> {
  static_assert(Found::allowed, SMELT_S002);
};
template <class Found, class Limit>
struct spec_check<rule::context, Found, Limit> {
  static_assert(Found::allowed, SMELT_S003);
};
template <class Found, class Limit>
struct spec_check<rule::width, Found, Limit> {
  static_assert(Found::allowed, SMELT_S004);
};
template <class Found, class Limit>
struct spec_check<rule::layers, Found, Limit> {
  static_assert(Found::allowed, SMELT_S005);
};
template <class Found, class Limit>
struct spec_check<rule::dense_layers, Found, Limit> {
  static_assert(Found::allowed, SMELT_S006);
};
template <class Found, class Limit>
struct spec_check<rule::dense_hidden, Found, Limit> {
  static_assert(Found::allowed, SMELT_S007);
};
template <class Found, class Limit>
struct spec_check<rule::attention_heads, Found, Limit> {
  static_assert(Found::allowed, SMELT_S008);
};
template <class Found, class Limit>
struct spec_check<rule::attention_kv_heads, Found, Limit> {
  static_assert(Found::allowed, SMELT_S009);
};
template <class Found, class Limit>
struct spec_check<rule::attention_head_dim, Found, Limit> {
  static_assert(Found::allowed, SMELT_S010);
};
template <class Found, class Limit>
struct spec_check<rule::rotary_head_dim, Found, Limit> {
  static_assert(Found::allowed, SMELT_S011);
};
template <class Found, class Limit>
struct spec_check<rule::attention_window, Found, Limit> {
  static_assert(Found::allowed, SMELT_S012);
};
template <class Found, class Limit>
struct spec_check<rule::rotary_base, Found, Limit> {
  static_assert(Found::allowed, SMELT_S013);
};
template <class Found, class Limit>
struct spec_check<rule::latent_attention, Found, Limit> {
  static_assert(Found::allowed, SMELT_S014);
};
template <class Found, class Limit>
struct spec_check<rule::experts_stored, Found, Limit> {
  static_assert(Found::allowed, SMELT_S015);
};
template <class Found, class Limit>
struct spec_check<rule::experts_active, Found, Limit> {
  static_assert(Found::allowed, SMELT_S016);
};
template <class Found, class Limit>
struct spec_check<rule::experts_hidden, Found, Limit> {
  static_assert(Found::allowed, SMELT_S017);
};
template <class Found, class Limit>
struct spec_check<rule::shared_hidden, Found, Limit> {
  static_assert(Found::allowed, SMELT_S018);
};
template <class Found, class Limit>
struct spec_check<rule::shared_gate, Found, Limit> {
  static_assert(Found::allowed, SMELT_S019);
};
template <class Found, class Limit>
struct spec_check<rule::norms_per_layer, Found, Limit> {
  static_assert(Found::allowed, SMELT_S020);
};
template <class Found, class Limit>
struct spec_check<rule::norm_eps, Found, Limit> {
  static_assert(Found::allowed, SMELT_S021);
};
template <class Found, class Limit>
struct spec_check<rule::loop_count, Found, Limit> {
  static_assert(Found::allowed, SMELT_S022);
};
template <class Found, class Limit>
struct spec_check<rule::loop_first, Found, Limit> {
  static_assert(Found::allowed, SMELT_S023);
};
template <class Found, class Limit>
struct spec_check<rule::loop_span, Found, Limit> {
  static_assert(Found::allowed, SMELT_S024);
};
template <class Found, class Limit>
struct spec_check<rule::loop_visits, Found, Limit> {
  static_assert(Found::allowed, SMELT_S025);
};
template <class Found, class Limit>
struct spec_check<rule::loop_visits_limit, Found, Limit> {
  static_assert(Found::allowed, SMELT_S026);
};
template <class Found, class Limit>
struct spec_check<rule::loop_without_span, Found, Limit> {
  static_assert(Found::allowed, SMELT_S027);
};
template <class Found, class Limit>
struct spec_check<rule::visit_compression, Found, Limit> {
  static_assert(Found::allowed, SMELT_S028);
};
template <class Found, class Limit>
struct spec_check<rule::visit_residual, Found, Limit> {
  static_assert(Found::allowed, SMELT_S029);
};
template <class Found, class Limit>
struct spec_check<rule::exit_gate, Found, Limit> {
  static_assert(Found::allowed, SMELT_S030);
};
template <class Found, class Limit>
struct spec_check<rule::loop_runs, Found, Limit> {
  static_assert(Found::allowed, SMELT_S031);
};
template <class Found, class Limit>
struct spec_check<rule::visit_active, Found, Limit> {
  static_assert(Found::allowed, SMELT_S032);
};
template <class Found, class Limit>
struct spec_check<rule::visit_expert_hidden, Found, Limit> {
  static_assert(Found::allowed, SMELT_S033);
};
template <class Found, class Limit>
struct spec_check<rule::visit_stream, Found, Limit> {
  static_assert(Found::allowed, SMELT_S034);
};
template <class Found, class Limit>
struct spec_check<rule::visit_learned, Found, Limit> {
  static_assert(Found::allowed, SMELT_S035);
};

}  // namespace smelt
