// What can be asked of the matcher, and what can be wrong with it?
#pragma once

#include <cstdint>
#include <smelt/budget/affine.hpp>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/tolerance.hpp>
#include <smelt/spec/rules.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// What the matcher may do with the hidden width of the experts.
enum class hidden_rule : int {
  keep_ratio,  ///< hidden / width stays about the base's: within 5 %, or the two multiples next to it
  free,        ///< from half to twice the base's ratio
  held,        ///< the base's hidden width
};

/// The fields of the base that the matcher may change. Shared experts and leading dense layers keep their own ratio to
/// the width whenever the width changes, unless `hidden` is held.
struct may_vary {
  bool width = true;
  bool experts = true;   ///< experts.stored; experts.active is always the base's
  bool heads = true;     ///< attention.heads
  bool kv_heads = true;  ///< attention.kv_heads; never under multi-head latent attention
  bool head_dim = true;  ///< attention.head_dim; the rank kv_rank under multi-head latent attention
  hidden_rule hidden = hidden_rule::keep_ratio;

  friend constexpr bool operator==(const may_vary&, const may_vary&) = default;
};

/// Limits of a size, both included; 0 is no limit.
struct size_limits {
  int least = 0;
  int most = 0;

  friend constexpr bool operator==(const size_limits&, const size_limits&) = default;
};

/// What the caller asks of a partner beside its tolerances.
struct match_options {
  may_vary vary{};
  int width_multiple = 0;   ///< 0: the largest power of two, 64 at most, that divides the base's width and is not above
                            ///< a sixteenth of it. 8 for replicas of published rows
  int hidden_multiple = 0;  ///< 0: the largest power of two, 8 at most, that divides the base's hidden width
  int head_dim_multiple = 2;  ///< even head sizes, which rotary positions need
  int experts_multiple = 1;   ///< of experts.stored
  size_limits width{};
  size_limits experts{};
  size_limits head_dim{};
  accounting by{};  ///< what is compared, on both sides: FLOPs convention, parameter metric, bytes of a KV element

  friend constexpr bool operator==(const match_options&, const match_options&) = default;
};

/// How a match ended.
enum class match_outcome : int {
  found,               ///< every budget is inside its tolerance
  flops_unmet,         ///< no candidate meets the FLOPs
  params_unmet,        ///< no candidate meets the parameters
  kv_cache_unmet,      ///< no candidate meets the KV cache
  not_together,        ///< each budget can be met, not all with the same sizes
  base_invalid,        ///< the base breaks a rule of the spec
  loop_invalid,        ///< the base with the loop breaks a rule of the spec, such as a share of its own width
  options_invalid,     ///< a negative tolerance, multiple or limit, or bytes below 1
  convention_invalid,  ///< the FLOPs convention does not cover the base, or the base with the loop
  too_large,           ///< the base or its loop has FLOPs that 64 bits do not hold, or 2^56 parameters or bytes
};

/// What keeps a budget from being met.
enum class match_constraint : int {
  none,
  width_held,         ///< .vary.width is off
  width_limits,       ///< .width
  width_multiple,     ///< .width_multiple, with .hidden_multiple: the steps of the FLOPs
  experts_held,       ///< .vary.experts is off
  experts_limits,     ///< .experts, or experts.active below
  experts_multiple,   ///< .experts_multiple: one step of experts is more than the tolerance
  no_experts,         ///< no layer has routed experts to add
  kv_heads_held,      ///< .vary.kv_heads and .vary.head_dim are off
  head_dim_held,      ///< .vary.head_dim is off
  head_dim_limits,    ///< .head_dim
  head_dim_multiple,  ///< .head_dim_multiple: the steps of the KV cache
};

namespace detail {

/// What divides every multiple that the caller left to the matcher.
[[nodiscard]] constexpr int dividing_power_of_two(int value, int most) noexcept {
  int power = 1;
  while (2 * power <= most && value % (2 * power) == 0) power *= 2;
  return power;
}

/// Whether the limits are in order and a multiple of `step` lies inside them.
[[nodiscard]] constexpr bool hold_a_multiple(const size_limits& l, int step) noexcept {
  return l.least >= 0 && l.most >= 0 && step >= 1 &&
         (l.most == 0 || (l.least + std::int64_t{step} - 1) / step * step <= l.most);
}

/// `multiple` as a multiple of `unit`, too; 0 when that does not fit. Precondition: unit >= 1.
[[nodiscard]] constexpr int with_unit(int multiple, std::int64_t unit) noexcept {
  if (multiple < 1) return multiple;
  const std::int64_t both = common_multiple(multiple, unit);
  return both <= 2'147'483'647 ? static_cast<int>(both) : 0;
}

/// The most routed experts that a token visits in a layer of `s`.
[[nodiscard]] constexpr int most_active(const spec& s) noexcept {
  int most = s.experts.active;
  for (int i = 0; i < s.loop.visits.runs(); ++i) {
    const int active = active_of(s, visit_list::plan_of(s.loop.visits, i));
    most = active > most ? active : most;
  }
  return most;
}

/// What KV bytes a token are multiplied by to be whole numbers: a multiple of the compression factors of `list`, as far
/// as it is not above 1,000 and the bytes of an element stay an int. Precondition: bytes >= 1.
[[nodiscard]] constexpr std::int64_t kv_scale_of(const visit_list& list, int bytes) noexcept {
  const std::int64_t most = 2'147'483'647 / bytes < 1'000 ? 2'147'483'647 / bytes : 1'000;
  std::int64_t n = 1;
  for (int i = 0; i < list.runs(); ++i)
    if (const std::int64_t m = common_multiple(n, visit_list::plan_of(list, i).compression); m <= most) n = m;
  return n;
}

/// The options with the multiples that were left open, and every multiple one of the unit that the plans of `looped`
/// need. Precondition: both specs are valid.
[[nodiscard]] constexpr match_options resolved(match_options o, const spec& base, const spec& looped) noexcept {
  if (o.width_multiple == 0) {
    const int most = base.width / 16;
    o.width_multiple = dividing_power_of_two(base.width, most < 64 ? most : 64);
  }
  if (o.hidden_multiple == 0)
    o.hidden_multiple = base.dense_layers < base.layers ? dividing_power_of_two(base.experts.hidden, 8) : 1;
  const size_units units = units_of(looped.loop.visits);
  o.width_multiple = with_unit(o.width_multiple, units.width);
  o.hidden_multiple = with_unit(o.hidden_multiple, units.hidden);
  return o;
}

/// What is wrong with the request; `found` when nothing is. `o` is resolved if the base is valid.
[[nodiscard]] constexpr match_outcome request_problem(const spec& base, const spec& looped, const within& tolerance,
                                                      const match_options& o) noexcept {
  if (first_violation(base).broken != rule::none) return match_outcome::base_invalid;
  if (first_violation(looped).broken != rule::none) return match_outcome::loop_invalid;
  size_limits experts = o.experts;  // a token's experts are stored
  if (base.dense_layers < base.layers && experts.least < most_active(looped)) experts.least = most_active(looped);
  if (tolerance.flops.ppm < 0 || tolerance.params.ppm < 0 || tolerance.kv_cache.ppm < 0 || o.width_multiple < 1 ||
      o.hidden_multiple < 1 || o.head_dim_multiple < 1 || o.experts_multiple < 1 || o.by.kv_bytes_per_element < 1 ||
      !hold_a_multiple(o.width, o.width_multiple) || !hold_a_multiple(o.head_dim, o.head_dim_multiple) ||
      !hold_a_multiple(experts, o.experts_multiple))
    return match_outcome::options_invalid;
  if (!o.by.flops.covers_any_shape || gap_of(base, o.by.flops) != coverage_gap::none ||
      gap_of(looped, o.by.flops) != coverage_gap::none)
    return match_outcome::convention_invalid;
  // The search costs candidates of up to 32 times these figures in 64 bits; it scales the FLOPs itself. Its models are
  // multiples of the budgets where visits run on shares of sizes, had from widths of up to three units.
  constexpr std::int64_t most = std::int64_t{1} << 56;
  const size_units units = units_of(looped.loop.visits);
  const std::int64_t scale = units.width * units.hidden;
  const std::int64_t most_flops = scale == 1 ? overflowed - 1 : overflowed / 16 / scale;
  const std::int64_t kv_scale = kv_scale_of(looped.loop.visits, o.by.kv_bytes_per_element);
  const auto countable = [&](const spec& s) {
    return flops(s, o.by.flops).train <= most_flops && parameters(s).stored <= most / scale &&
           kv_cache(s, o.by.kv_bytes_per_element).bytes_at_context <= most / scale / kv_scale;
  };
  if (!countable(base) || !countable(looped)) return match_outcome::too_large;
  return match_outcome::found;
}

}  // namespace detail

}  // namespace smelt
