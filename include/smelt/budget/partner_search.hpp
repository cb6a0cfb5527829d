// How is a partner found? Widths around the one that the FLOPs ask for, heads from the KV cache, experts from the
// parameters; every candidate is costed by the budgets' own coefficients.
#pragma once

#include <cstdint>
#include <smelt/budget/affine.hpp>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/match_request.hpp>
#include <smelt/budget/tolerance.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt::detail {

[[nodiscard]] constexpr std::int64_t distance(std::int64_t a, std::int64_t b) noexcept {
  return a > b ? a - b : b - a;
}

/// Multiple of `step` nearest to a / b, `step` at least. Precondition: a >= 0, b >= 1, step >= 1.
[[nodiscard]] constexpr std::int64_t nearest_multiple(std::int64_t a, std::int64_t b, std::int64_t step) noexcept {
  const std::int64_t steps = (2 * (a / step) + b) / (2 * b);
  return steps < 1 ? step : steps * step;
}

/// By how much a : b differs from c : d, in parts per million of the smaller. Precondition: all >= 1, b and d below
/// 2^31.
[[nodiscard]] constexpr std::int64_t ratio_distance(std::int64_t a, std::int64_t b, std::int64_t c,
                                                    std::int64_t d) noexcept {
  // Low bits of both ratios that their products have no room for.
  while (a > INT32_MAX || c > INT32_MAX) {
    a = a > 1 ? a / 2 : 1;
    c = c > 1 ? c / 2 : 1;
  }
  const std::int64_t left = a * d;
  const std::int64_t right = c * b;
  return (left > right ? ratio_ppm(left, right) : ratio_ppm(right, left)) - 1'000'000;
}

/// A difference in thousandths of the one allowed; stops at 2^40.
[[nodiscard]] constexpr std::int64_t share_of_allowed(std::int64_t difference, std::int64_t allowed) noexcept {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (difference == 0) return 0;
  if (allowed == 0) return most;
  if (allowed >= most) return difference / (allowed / 1000);
  return difference > most ? most : difference * 1000 / allowed;
}

/// Key and value heads with their size, and how far the KV cache is then from the base's.
struct kv_choice {
  int kv_heads = 0;
  int head_dim = 0;
  std::int64_t difference = 0;      ///< bytes a token
  std::int64_t shape_distance = 0;  ///< ppm, of the number of KV heads
};

/// The choices in the order in which they are tried; those beyond the list's size are left out.
struct kv_choice_list {
  static constexpr int size = 8;
  kv_choice items[size];
  int count = 0;

  constexpr void add(const kv_choice& c) noexcept {
    for (int i = 0; i < count; ++i)
      if (items[i].kv_heads == c.kv_heads && items[i].head_dim == c.head_dim) return;
    if (count < size) items[count++] = c;
  }
};

/// How good a candidate is; the smaller the better. Inside the tolerances the shape comes first, then the error.
struct match_rank {
  bool outside = true;
  std::int64_t shape = 0;  ///< whole percent
  std::int64_t worst = 0;  ///< largest difference, in thousandths of the one allowed
  std::int64_t sum = 0;    ///< of the three

  [[nodiscard]] constexpr bool better_than(const match_rank& o) const noexcept {
    if (outside != o.outside) return o.outside;
    if (!outside && shape != o.shape) return shape < o.shape;
    if (worst != o.worst) return worst < o.worst;
    if (sum != o.sum) return sum < o.sum;
    return shape < o.shape;
  }
};

/// Why a search ended without a match.
struct match_failure {
  match_outcome outcome = match_outcome::not_together;
  match_constraint constraint = match_constraint::none;
};

/// The search for a partner of one base.
class partner_search {
 public:
  /// Precondition: the base, the base with the loop and the options are valid.
  constexpr partner_search(const spec& base, const spec& looped, const within& tolerance,
                           const match_options& options) noexcept
      : looped_(looped),
        options_(options),
        base_(sizes_of(base)),
        best_(base_),
        routed_(base.dense_layers < base.layers),
        value_dim_(has_latent_attention(base) ? base.attention.latent.value_dim : 0) {
    if (base.dense_layers == 0) base_.dense_hidden = 0;
    if (!routed_) base_.experts = base_.hidden = base_.shared_hidden = 0;
    const accounting& by = options_.by;
    // The models are multiples of the budgets, so that no coefficient is a fraction; so is all that they are held
    // against.
    const std::int64_t kv_scale = kv_scale_of(looped.loop.visits, by.kv_bytes_per_element);
    flops_ = affine_model_of(looped, [&](const spec& s) { return smelt::flops(s, by.flops).train; });
    params_ = affine_model_of(looped, [&](const spec& s) { return figure_of(parameters(s), by.params); });
    const int kv_bytes = by.kv_bytes_per_element * static_cast<int>(kv_scale);
    kv_ = affine_model_of(looped, [&](const spec& s) { return kv_cache(s, kv_bytes).bytes_per_token; }).zero;
    const flop_count base_flops = smelt::flops(base, by.flops);
    const std::int64_t scale = flops_.scale;
    const std::int64_t base_params = figure_of(parameters(base), by.params);
    const std::int64_t base_kv = kv_cache(base, by.kv_bytes_per_element).bytes_per_token;
    wanted_flops_ = base_flops.train * scale;
    wanted_params_ = base_params * scale;
    wanted_kv_ = base_kv * kv_scale * scale;
    // Figures a token are rounded: what is inside this many FLOPs of a sequence is inside the tolerance of a token.
    const std::int64_t a_token = share_of(base_flops.train_per_token, tolerance.flops);
    allowed_flops_ = a_token == 0                                       ? 0
                     : a_token > INT64_MAX / base_flops.context / scale ? INT64_MAX
                                                                        : (a_token - 1) * base_flops.context * scale;
    scale_down(smelt::flops(looped, by.flops).train * scale);
    allowed_params_ = times(share_of(base_params, tolerance.params), scale);
    allowed_kv_ = times(share_of(base_kv, tolerance.kv_cache), kv_scale * scale);
    const std::int64_t step = options_.experts_multiple;
    const int active = most_active(looped);
    const std::int64_t fewest = options_.experts.least > active ? options_.experts.least : active;
    const std::int64_t unasked = base_.experts < INT32_MAX / 16 ? 16 * base_.experts : INT32_MAX;
    least_experts_ = (fewest + step - 1) / step * step;
    most_experts_ = (options_.experts.most > 0 ? options_.experts.most : unasked) / step * step;
    if (most_experts_ < least_experts_) most_experts_ = least_experts_;
  }

  /// Tries every candidate, the likely ones first.
  constexpr void run() noexcept {
    const kv_choice_list choices = kv_choices();
    const std::int64_t step = options_.width_multiple;
    const std::int64_t centre =
        options_.vary.width ? clamped(nearest_multiple(wanted_width(choices.items[0]), 1, step), step, options_.width)
                            : base_.width;
    for (int c = 0; c < choices.count; ++c) {
      const kv_choice& kv = choices.items[c];
      if (!options_.vary.width) {
        try_width(centre, kv);
        continue;
      }
      const int steps = kv.kv_heads == base_.kv_heads ? width_steps : width_steps / 2;
      for (int i = 0; i <= steps; ++i) {
        if (i > 2 && i * step > centre / 4) break;
        try_width(centre - i * step, kv);
        if (i > 0) try_width(centre + i * step, kv);
      }
    }
  }

  /// The best candidate. Precondition: run() was called.
  [[nodiscard]] constexpr spec partner() const noexcept {
    spec s = with_sizes(looped_, best_);
    // Sizes that play no part keep what the base says.
    if (looped_.dense_layers == 0) s.dense_hidden = looped_.dense_hidden;
    if (!routed_) s.experts = looped_.experts;
    return s;
  }
  /// Its distance from the base's shape, in whole percent.
  [[nodiscard]] constexpr std::int64_t shape() const noexcept { return rank_.shape; }

  /// Why no candidate is inside the tolerances. Precondition: that is so.
  [[nodiscard]] constexpr match_failure failure() const noexcept {
    const std::int64_t flops = share_of_allowed(distance(flops_of(best_), wanted_flops_), allowed_flops_);
    const std::int64_t params = share_of_allowed(distance(params_of(best_), wanted_params_), allowed_params_);
    if (least_kv_ > allowed_kv_) return {match_outcome::kv_cache_unmet, kv_constraint()};
    if (!any_) return failure_of_far_sizes();
    if (least_params_ > allowed_params_) return {match_outcome::params_unmet, params_constraint()};
    if (least_flops_ > allowed_flops_) return {match_outcome::flops_unmet, flops_constraint()};
    // A size that cannot move explains more than the steps of those that can.
    if (!routed_ || !options_.vary.experts) return {match_outcome::not_together, params_constraint()};
    if (!options_.vary.width) return {match_outcome::not_together, flops_constraint()};
    return {match_outcome::not_together, rank_.worst == flops    ? flops_constraint()
                                         : rank_.worst == params ? params_constraint()
                                                                 : kv_constraint()};
  }

 private:
  /// Why every candidate lies too far from the base to be counted: a size that the options keep large.
  [[nodiscard]] constexpr match_failure failure_of_far_sizes() const noexcept {
    const bool wide =
        options_.vary.width && (options_.width_multiple > base_.width || options_.width.least > base_.width);
    if (routed_ && options_.vary.experts && least_experts_ > base_.experts && !wide)
      return {match_outcome::params_unmet, options_.experts.least > base_.experts ? match_constraint::experts_limits
                                                                                  : match_constraint::experts_multiple};
    return {match_outcome::flops_unmet, wide && options_.width.least > base_.width ? match_constraint::width_limits
                                                                                   : match_constraint::width_multiple};
  }

  /// Drops low bits of the FLOPs of very large sequences, so that the costs of far candidates fit in 64 bits, too. What
  /// rounding can hide comes off the tolerance.
  constexpr void scale_down(std::int64_t looped_flops) noexcept {
    const std::int64_t larger = looped_flops > wanted_flops_ ? looped_flops : wanted_flops_;
    int bits = 0;
    while (larger >> bits > std::int64_t{1} << 56) ++bits;
    if (bits == 0) return;
    wanted_flops_ >>= bits;
    allowed_flops_ >>= bits;
    const std::int64_t hidden = wanted_flops_ >> 20;
    allowed_flops_ = allowed_flops_ > hidden ? allowed_flops_ - hidden : 0;
    flops_ = scaled_down(flops_, bits);
  }

  /// Widths tried on each side of the expected one; half as many for another number of KV heads.
  static constexpr int width_steps = 12;
  /// Numbers of query heads tried on each side of the one that keeps heads x head_dim / width.
  static constexpr int heads_steps = 2;
  /// A ratio that differs by at most this much is the same shape (ppm).
  static constexpr std::int64_t same_shape = 50'000;

  [[nodiscard]] static constexpr bool inside(std::int64_t value, const size_limits& l) noexcept {
    return value >= l.least && (l.most == 0 || value <= l.most);
  }
  /// The multiple of `step` beside `value`; below the first one lies 0, which only a limit excludes.
  [[nodiscard]] static constexpr std::int64_t next(std::int64_t value, std::int64_t step, bool lower) noexcept {
    return !lower ? value + step : value > step ? value - step : 0;
  }
  /// `value`, a multiple of `step`, moved to the nearest multiple that is at least `step` and inside `l`.
  [[nodiscard]] static constexpr std::int64_t clamped(std::int64_t value, std::int64_t step,
                                                      const size_limits& l) noexcept {
    const std::int64_t least = (l.least + step - 1) / step * step;
    const std::int64_t most = l.most / step * step;
    if (value < least || value < step) return least < step ? step : least;
    return l.most > 0 && value > most ? most : value;
  }
  [[nodiscard]] static constexpr std::int64_t excess(std::int64_t ppm) noexcept {
    return ppm > same_shape ? ppm - same_shape : 0;
  }
  /// Size of one head's value: what heads * size is compared with the width by.
  [[nodiscard]] constexpr std::int64_t value_dim(std::int64_t head_dim) const noexcept {
    return value_dim_ > 0 ? value_dim_ : head_dim;
  }
  [[nodiscard]] constexpr std::int64_t kv_of(std::int64_t kv_heads, std::int64_t head_dim) const noexcept {
    const std::int64_t keys = times(kv_.key, kv_heads * head_dim);
    const std::int64_t rest = kv_.one + times(kv_.head_dim, head_dim);
    return rest > 0 && keys > INT64_MAX - rest ? INT64_MAX : keys + rest;
  }
  /// `value` times `n`; stops at the largest number. Precondition: value >= 0, n >= 1.
  [[nodiscard]] static constexpr std::int64_t times(std::int64_t value, std::int64_t n) noexcept {
    return value > INT64_MAX / n ? INT64_MAX : value * n;
  }
  [[nodiscard]] static constexpr std::int64_t sixteenths(std::int64_t size, std::int64_t of) noexcept {
    return of == 0 ? 16 : 16 * size / of + 1;
  }
  /// The largest size of `d` but experts and their hidden width, in sixteenths of the base's.
  [[nodiscard]] constexpr std::int64_t reach_of(const size_set& d) const noexcept {
    const auto larger = [](std::int64_t a, std::int64_t b) { return a > b ? a : b; };
    const std::int64_t size = d.head_dim;
    const std::int64_t base_size = base_.head_dim;
    const std::int64_t heads = value_dim_ > 0 ? larger(sixteenths(d.heads, base_.heads), sixteenths(size, base_size))
                                              : sixteenths(d.heads * size, base_.heads * base_size);
    return larger(
        larger(heads, sixteenths(d.kv_heads * size, base_.kv_heads * base_size)),
        larger(sixteenths(d.shared_hidden, base_.shared_hidden), sixteenths(d.dense_hidden, base_.dense_hidden)));
  }
  /// Whether products of sizes pass 32 times the base's: no partner lies there, and below it no figure overflows.
  [[nodiscard]] constexpr bool too_far(const size_set& d, std::int64_t reach) const noexcept {
    constexpr std::int64_t limit = std::int64_t{32} * 16 * 16 * 16;
    const std::int64_t width = sixteenths(d.width, base_.width);
    const std::int64_t hidden = sixteenths(d.hidden, base_.hidden);
    const std::int64_t experts = sixteenths(d.experts, base_.experts);
    const std::int64_t most = hidden > reach ? hidden : reach;
    return width > limit || most > limit || experts > limit || width * most * experts > limit;
  }
  [[nodiscard]] static constexpr std::int64_t value_of(const affine_model& m, const size_set& d) noexcept {
    const affine_budget b = m.at(d.width);
    return outside_experts(b, d) + b.experts * d.experts + (b.hidden + b.expert_body * d.experts) * d.hidden;
  }
  [[nodiscard]] constexpr std::int64_t flops_of(const size_set& d) const noexcept { return value_of(flops_, d); }
  [[nodiscard]] constexpr std::int64_t params_of(const size_set& d) const noexcept { return value_of(params_, d); }

  /// Shared and dense feed-forwards keep their ratio to the width.
  [[nodiscard]] constexpr int scaled_hidden(int hidden, std::int64_t width) const noexcept {
    if (hidden == 0 || width == base_.width || options_.vary.hidden == hidden_rule::held) return hidden;
    const std::int64_t scaled = nearest_multiple(hidden * width, base_.width, options_.hidden_multiple);
    return static_cast<int>(scaled < INT32_MAX ? scaled : INT32_MAX);
  }

  /// Heads and sizes that restore the KV cache: the base's number of KV heads first, then the others that are inside
  /// the tolerance, then the nearest.
  [[nodiscard]] constexpr kv_choice_list kv_choices() noexcept {
    kv_choice_list list;
    kv_choice nearest{.difference = -1};
    const auto add_choices = [&](std::int64_t kv_heads) {
      if (kv_heads < 1 || kv_heads > INT32_MAX) return;
      const std::int64_t step = options_.head_dim_multiple;
      const std::int64_t per_dim = kv_.key * kv_heads + kv_.head_dim;
      const std::int64_t exact = per_dim > 0 && wanted_kv_ > kv_.one ? (wanted_kv_ - kv_.one) / per_dim : 0;
      for (int i = 0; i < 2; ++i) {
        const std::int64_t wanted = exact / step < INT32_MAX / step - 1 ? exact / step + i : INT32_MAX / step;
        const std::int64_t size =
            options_.vary.head_dim ? clamped(wanted * step, step, options_.head_dim) : base_.head_dim;
        const kv_choice c{static_cast<int>(kv_heads), static_cast<int>(size),
                          distance(kv_of(kv_heads, size), wanted_kv_), ratio_distance(kv_heads, 1, base_.kv_heads, 1)};
        if (kv_heads == base_.kv_heads || c.difference <= allowed_kv_) list.add(c);
        if (nearest.difference < 0 || c.difference < nearest.difference) nearest = c;
      }
    };
    add_choices(base_.kv_heads);
    if (options_.vary.kv_heads && value_dim_ == 0) {
      if (!options_.vary.head_dim && kv_.key > 0) {
        const std::int64_t exact = (wanted_kv_ - kv_.one) / (kv_.key * base_.head_dim);
        add_choices(exact);
        add_choices(exact + 1);
      }
      for (int i = 1; i <= 8; ++i) {
        add_choices(base_.kv_heads - i);
        add_choices(std::int64_t{base_.kv_heads} + i);
      }
      if (base_.kv_heads % 2 == 0) add_choices(base_.kv_heads / 2);
      add_choices(std::int64_t{2} * base_.kv_heads);
    }
    least_kv_ = nearest.difference;
    if (list.count == kv_choice_list::size) --list.count;
    list.add(nearest);
    return list;
  }

  /// The width at which the base's shape, with `kv` and experts solved from the parameters, costs the base's FLOPs.
  [[nodiscard]] constexpr std::int64_t wanted_width(const kv_choice& kv) const noexcept {
    std::int64_t low = 1;
    std::int64_t high = std::int64_t{2} * base_.width;
    while (low < high) {
      const std::int64_t width = (low + high) / 2;
      size_set d = base_;
      d.width = static_cast<int>(width);
      d.kv_heads = kv.kv_heads;
      d.head_dim = kv.head_dim;
      d.heads = static_cast<int>(wanted_heads(width, kv.head_dim, 1));
      d.shared_hidden = scaled_hidden(base_.shared_hidden, width);
      d.dense_hidden = scaled_hidden(base_.dense_hidden, width);
      if (options_.vary.hidden != hidden_rule::held)
        d.hidden = static_cast<int>(nearest_multiple(base_.hidden * width, base_.width, 1));
      const affine_budget p = params_.at(width);
      d.experts = solved_experts(p, outside_experts(p, d), d.hidden);
      if (!too_far(d, reach_of(d)) && flops_of(d) < wanted_flops_) {
        low = width + 1;
      } else {
        high = width;
      }
    }
    return low;
  }

  /// Query heads, a multiple of `step`, for which heads x size keeps the base's ratio to the width.
  [[nodiscard]] constexpr std::int64_t wanted_heads(std::int64_t width, int head_dim,
                                                    std::int64_t step) const noexcept {
    return nearest_multiple(base_.heads * value_dim(base_.head_dim) * width, base_.width * value_dim(head_dim), step);
  }

  /// Stored experts that recover the parameters, given the rest of them; the base's when they may not vary.
  [[nodiscard]] constexpr int solved_experts(const affine_budget& p, std::int64_t outside,
                                             std::int64_t hidden) const noexcept {
    const std::int64_t each = p.experts + p.expert_body * hidden;
    if (!options_.vary.experts || !routed_ || each <= 0) return base_.experts;
    const std::int64_t step = options_.experts_multiple;
    const std::int64_t rest = wanted_params_ - outside - p.hidden * hidden;
    const std::int64_t exact = rest <= 0 ? step : (rest + each * step / 2) / (each * step) * step;
    return static_cast<int>(exact < least_experts_ ? least_experts_ : exact > most_experts_ ? most_experts_ : exact);
  }
  /// Hidden widths to try, at most ten of them.
  struct hidden_choices {
    std::int64_t items[10] = {};
    int count = 0;

    constexpr void add(std::int64_t hidden) noexcept {
      if (hidden > INT32_MAX) return;
      for (int i = 0; i < count; ++i)
        if (items[i] == hidden) return;
      items[count++] = hidden;
    }
  };
  /// Adds the two multiples around top / bottom, as far as the caller's rule allows them at `width`.
  constexpr void add_hidden(hidden_choices& h, std::int64_t width, std::int64_t top,
                            std::int64_t bottom) const noexcept {
    const std::int64_t step = options_.hidden_multiple;
    const std::int64_t off = options_.vary.hidden == hidden_rule::free ? 1'000'000 : same_shape;
    if (top <= 0 || bottom <= 0 || top / bottom > std::int64_t{8} * base_.hidden) return;
    const std::int64_t below = top / bottom / step * step;
    for (std::int64_t hidden = below; hidden <= below + step; hidden += step)
      if (hidden > 0 && ratio_distance(hidden, width, base_.hidden, base_.width) <= off) h.add(hidden);
  }

  constexpr void try_width(std::int64_t width, const kv_choice& kv) noexcept {
    if (width < 1 || (options_.vary.width && !inside(width, options_.width))) return;
    // Beyond this what depends on nothing but the width, or its square, could overflow by itself.
    if (width > INT32_MAX || width / base_.width >= (flops_.square + params_.square == 0 ? 32 : 5)) return;
    const std::int64_t kv_shape = excess(kv.shape_distance);
    if (!rank_.outside && kv_shape / 10'000 > rank_.shape) return;
    size_set d = base_;
    d.width = static_cast<int>(width);
    d.kv_heads = kv.kv_heads;
    d.head_dim = kv.head_dim;
    d.shared_hidden = scaled_hidden(base_.shared_hidden, width);
    d.dense_hidden = scaled_hidden(base_.dense_hidden, width);
    const affine_budget f = flops_.at(width);
    const affine_budget p = params_.at(width);
    if (!options_.vary.heads) {
      if (base_.heads % kv.kv_heads == 0) try_heads(d, kv, kv_shape, f, p);
      return;
    }
    // Latent attention shares one key among all heads; its number of KV heads only follows.
    const int group = base_.heads / base_.kv_heads;
    const int step = value_dim_ > 0 ? group : kv.kv_heads;
    const std::int64_t heads = wanted_heads(width, kv.head_dim, step);
    for (std::int64_t i = -heads_steps; i <= heads_steps; ++i) {
      const std::int64_t n = heads + i * step;
      if (n < 1 || n > INT32_MAX) continue;
      d.heads = static_cast<int>(n);
      if (value_dim_ > 0) d.kv_heads = d.heads / group;
      try_heads(d, kv, kv_shape, f, p);
    }
  }

  /// Tries the hidden widths, with the experts that go with each, for everything else given in `d`.
  constexpr void try_heads(size_set d, const kv_choice& kv, std::int64_t kv_shape, const affine_budget& f,
                           const affine_budget& p) noexcept {
    const std::int64_t attention_shape =
        kv_shape + excess(ratio_distance(d.heads * value_dim(d.head_dim), d.width,
                                         base_.heads * value_dim(base_.head_dim), base_.width));
    if (!rank_.outside && attention_shape / 10'000 > rank_.shape) return;
    const std::int64_t reach = reach_of(d);
    if (too_far(d, reach)) return;
    const std::int64_t flops = outside_experts(f, d);
    const std::int64_t params = outside_experts(p, d);
    hidden_choices hidden;
    if (!routed_ || options_.vary.hidden == hidden_rule::held) {
      hidden.add(base_.hidden);
    } else {
      // The multiples around the base's ratio; around what the FLOPs ask for; and, since experts come whole, around
      // what the parameters ask for with the number of experts that this ratio gives, one fewer and one more.
      const std::int64_t step = options_.hidden_multiple;
      const std::int64_t at_ratio = base_.hidden * std::int64_t{d.width} / base_.width;
      const std::int64_t below = at_ratio / step * step;
      if (below > 0) hidden.add(below);
      hidden.add(below + step);
      const std::int64_t experts = solved_experts(p, params, at_ratio);
      add_hidden(hidden, d.width, wanted_flops_ - flops - f.experts * experts, f.hidden + f.expert_body * experts);
      for (std::int64_t i = -1; i <= 1; ++i) {
        const std::int64_t e = experts + i * options_.experts_multiple;
        add_hidden(hidden, d.width, wanted_params_ - params - p.experts * e, p.hidden + p.expert_body * e);
      }
    }
    for (int i = 0; i < hidden.count; ++i) {
      d.hidden = static_cast<int>(hidden.items[i]);
      d.experts = solved_experts(p, params, d.hidden);
      if (too_far(d, reach)) continue;
      const std::int64_t body = d.hidden * std::int64_t{d.experts};
      consider(d, flops + f.experts * d.experts + f.hidden * d.hidden + f.expert_body * body,
               params + p.experts * d.experts + p.hidden * d.hidden + p.expert_body * body, kv, attention_shape);
    }
  }

  /// Keeps `d` when it is better than the best so far.
  constexpr void consider(const size_set& d, std::int64_t flops, std::int64_t params, const kv_choice& kv,
                          std::int64_t attention_shape) noexcept {
    const std::int64_t flops_off = distance(flops, wanted_flops_);
    const std::int64_t params_off = distance(params, wanted_params_);
    if (flops_off < least_flops_) least_flops_ = flops_off;
    if (params_off < least_params_) least_params_ = params_off;
    match_rank r;
    r.outside = flops_off > allowed_flops_ || params_off > allowed_params_ || kv.difference > allowed_kv_;
    if (r.outside && !rank_.outside) return;
    const std::int64_t hidden_shape =
        routed_ ? excess(ratio_distance(d.hidden, d.width, base_.hidden, base_.width)) : 0;
    r.shape = (attention_shape + hidden_shape) / 10'000;
    const std::int64_t f = share_of_allowed(flops_off, allowed_flops_);
    const std::int64_t p = share_of_allowed(params_off, allowed_params_);
    const std::int64_t k = share_of_allowed(kv.difference, allowed_kv_);
    r.worst = f > p ? (f > k ? f : k) : (p > k ? p : k);
    r.sum = f + p + k;
    if (any_ && !r.better_than(rank_)) return;
    any_ = true;
    rank_ = r;
    best_ = d;
  }

  [[nodiscard]] constexpr match_constraint flops_constraint() const noexcept {
    if (!options_.vary.width) return match_constraint::width_held;
    const std::int64_t step = options_.width_multiple;
    const bool lower = flops_of(best_) > wanted_flops_;
    bool limited = !inside(next(best_.width, step, lower), options_.width);
    if (lower && options_.width.least > 0) {
      // The least width may cost too much although the nearest candidate is not there.
      size_set least = best_;
      least.width = static_cast<int>(clamped(step, step, options_.width));
      limited = limited || flops_of(least) > wanted_flops_;
    }
    return limited ? match_constraint::width_limits : match_constraint::width_multiple;
  }
  [[nodiscard]] constexpr match_constraint params_constraint() const noexcept {
    if (!routed_) return match_constraint::no_experts;
    if (!options_.vary.experts) return match_constraint::experts_held;
    const bool fewer = params_of(best_) > wanted_params_;
    // One multiple is the fewest there are, or all: then it is not the limit that keeps them from another number.
    const bool one_multiple = (fewer || least_experts_ == most_experts_) &&
                              options_.experts_multiple > options_.experts.least &&
                              options_.experts_multiple > most_active(looped_);
    return !one_multiple && (fewer ? best_.experts <= least_experts_ : best_.experts >= most_experts_)
               ? match_constraint::experts_limits
               : match_constraint::experts_multiple;
  }
  [[nodiscard]] constexpr match_constraint kv_constraint() const noexcept {
    if (!options_.vary.head_dim)
      return options_.vary.kv_heads ? match_constraint::head_dim_held : match_constraint::kv_heads_held;
    const bool lower = kv_of(best_.kv_heads, best_.head_dim) > wanted_kv_;
    const int step = options_.head_dim_multiple;
    return inside(next(best_.head_dim, step, lower), options_.head_dim) ? match_constraint::head_dim_multiple
                                                                        : match_constraint::head_dim_limits;
  }

  spec looped_;
  match_options options_;
  size_set base_, best_;
  bool routed_;
  int value_dim_;
  affine_model flops_{}, params_{};  // FLOPs of a training sequence; parameters
  affine_budget kv_{};               // bytes a token; the width plays no part
  std::int64_t wanted_flops_ = 0, wanted_params_ = 0, wanted_kv_ = 0;
  std::int64_t allowed_flops_ = 0, allowed_params_ = 0, allowed_kv_ = 0;
  std::int64_t least_experts_ = 0, most_experts_ = 0;
  // The smallest differences seen, each budget by itself.
  std::int64_t least_flops_ = INT64_MAX, least_params_ = INT64_MAX, least_kv_ = INT64_MAX;
  bool any_ = false;
  match_rank rank_{};
};

}  // namespace smelt::detail
