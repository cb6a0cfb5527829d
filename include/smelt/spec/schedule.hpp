// In which order do the layers run? Everything that walks a looped model asks here and nowhere else.
#pragma once

#include <cstdint>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// The looped span with `middle` and `half` resolved: layers [first, first + count), each run `visits` times.
struct loop_span {
  int first = 0;
  int count = 0;
  int visits = 1;

  friend constexpr bool operator==(const loop_span&, const loop_span&) = default;
};

/// The span of `s`; an unlooped spec has count 0 and one visit.
[[nodiscard]] constexpr loop_span span_of(const spec& s) noexcept {
  const int count = s.loop.count == loop_spec::half ? s.layers / 2 : s.loop.count;
  if (count == 0) return {};
  const int first = s.loop.first == loop_spec::middle ? (s.layers - count) / 2 : s.loop.first;
  return {first, count, s.loop.visits.count};
}

/// One executed layer.
struct executed_layer {
  int index = 0;         ///< position in execution order, 0-based
  int layer = 0;         ///< physical layer whose weights are used
  int visit = 0;         ///< 0-based visit of the loop; 0 outside the span
  bool in_loop = false;  ///< whether the layer belongs to the looped span
  bool enters = false;   ///< the first layer of its visit
  bool leaves = false;   ///< the last layer of its visit
  int attention = 0;  ///< layer whose attention weights are used: its own, or behind the last one a copy of a visit's
  int kv_slot = 0;    ///< KV entries of its own: every (layer, visit) pair has its slot
  visit_plan plan{};  ///< of its visit; outside the span everything at full size with coefficient 1

  friend constexpr bool operator==(const executed_layer&, const executed_layer&) = default;
};

/// Which copy of the span's attention weights visit `v` uses: -1 is the span's own, which the first visit uses when all
/// visits have attention of their own.
[[nodiscard]] constexpr int attention_copy_of(const visit_list& list, int v) noexcept {
  int before = 0;
  int own = 0;
  for (int i = 0; i < list.count; ++i) {
    own += list[i].own_attention;
    if (i < v) before += list[i].own_attention;
  }
  if (!list[v].own_attention) return -1;
  return own == list.count ? before - 1 : before;
}

/// Copies of the span's attention weights beyond the first. The visits that share keep one copy together; every visit
/// with attention of its own keeps another.
[[nodiscard]] constexpr int attention_copies(const spec& s) noexcept {
  if (span_of(s).count == 0) return 0;
  int own = 0;
  for (int i = 0; i < s.loop.visits.runs(); ++i)
    if (visit_list::plan_of(s.loop.visits, i).own_attention) own += visit_list::length_of(s.loop.visits, i);
  return own > 0 && own == s.loop.visits.count ? own - 1 : own;
}

/// A layer that has nothing but the attention that a visit has of its own: that of physical layer `layer`.
struct own_attention {
  int visit = 0;
  int layer = 0;
  friend constexpr bool operator==(const own_attention&, const own_attention&) = default;
};

/// Which attention of its own layer `number` of the weights is. Precondition: it lies behind the physical layers.
[[nodiscard]] constexpr own_attention own_attention_at(const spec& s, int number) noexcept {
  const loop_span span = span_of(s);
  own_attention at{.layer = span.first + (number - s.layers) % span.count};
  while (attention_copy_of(s.loop.visits, at.visit) != (number - s.layers) / span.count) ++at.visit;
  return at;
}

/// The unlooped architecture whose layers a visit by `plan` runs: of its widths and experts.
[[nodiscard]] constexpr spec visited_architecture(const spec& s, const visit_plan& plan) noexcept {
  spec v = s;
  v.width = width_of(s, plan);
  v.experts.active = active_of(s, plan);
  v.experts.hidden = hidden_of(s, plan);
  v.loop = {};
  v.exit_gate = false;
  return v;
}

/// The executed layers of a spec, computed on access: entry layers once, the span visit by visit, exit layers once.
class schedule {
 public:
  /// Precondition: `s` satisfies the rules of spec/rules.hpp.
  constexpr explicit schedule(const spec& s) noexcept : span_(span_of(s)), visits_(s.loop.visits), layers_(s.layers) {}

  /// Executed layers: layers + (visits - 1) * span.
  [[nodiscard]] constexpr int size() const noexcept { return layers_ + (span_.visits - 1) * span_.count; }

  /// Executed layer number `i`. Precondition: 0 <= i < size().
  [[nodiscard]] constexpr executed_layer operator[](int i) const noexcept {
    executed_layer e{.index = i, .layer = i, .attention = i, .kv_slot = i};
    const int looped = span_.count * span_.visits;
    if (i < span_.first || span_.count == 0) return e;
    if (i >= span_.first + looped) {
      e.layer = i - looped + span_.count;
      e.attention = e.layer;
      return e;
    }
    e.in_loop = true;
    e.visit = (i - span_.first) / span_.count;
    e.layer = span_.first + (i - span_.first) % span_.count;
    const int in_span = e.layer - span_.first;
    e.enters = in_span == 0;
    e.leaves = in_span + 1 == span_.count;
    e.plan = visits_[e.visit];
    const int copy = attention_copy_of(visits_, e.visit);
    e.attention = copy < 0 ? e.layer : layers_ + copy * span_.count + in_span;
    return e;
  }

  /// Iteration in execution order.
  class iterator {
   public:
    constexpr iterator(const schedule* of, int i) noexcept : of_(of), i_(i) {}
    [[nodiscard]] constexpr executed_layer operator*() const noexcept { return (*of_)[i_]; }
    constexpr iterator& operator++() noexcept {
      ++i_;
      return *this;
    }
    friend constexpr bool operator==(const iterator& a, const iterator& b) noexcept { return a.i_ == b.i_; }

   private:
    const schedule* of_;
    int i_;
  };
  [[nodiscard]] constexpr iterator begin() const noexcept { return {this, 0}; }
  [[nodiscard]] constexpr iterator end() const noexcept { return {this, size()}; }

 private:
  loop_span span_;
  visit_list visits_;
  int layers_;
};

/// Positions that executed layer `e` works on when the model reads `tokens` tokens: a trailing partial chunk forms no
/// latent position.
[[nodiscard]] constexpr std::int64_t executed_positions(const executed_layer& e, std::int64_t tokens) noexcept {
  return tokens / e.plan.compression;
}

}  // namespace smelt
