// Which executed layers cost the same? Budgets multiply by their number instead of walking the schedule.
#pragma once

#include <cstdint>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// Executed layers that cost the same.
struct layer_group {
  std::int64_t layers = 0;  ///< executed layers of the group
  bool experts = false;     ///< routed experts; otherwise the dense feed-forward
  int window = 0;           ///< attended positions at most; 0 is no limit
  int length_divisor = 1;   ///< sequence positions per position of the visit they belong to
};

/// The executed schedule in groups of equal cost: those outside the looped span, then those of each visit. Short for
/// the compiler to evaluate, whatever the depth: a plain model is one group.
class layer_groups {
 public:
  /// Precondition: `s` satisfies the rules of spec/rules.hpp and outlives the groups.
  constexpr explicit layer_groups(const spec& s) noexcept : spec_(s), span_(span_of(s)) {
    add_range(outside_, 0, span_.first);
    add_range(inside_, span_.first, span_.first + span_.count);
    add_range(outside_, span_.first + span_.count, s.layers);
  }

  /// Slots to look at; a slot may hold no layers.
  [[nodiscard]] constexpr int size() const noexcept { return kinds_ * (span_.count == 0 ? 1 : 1 + span_.visits); }

  /// The group of slot `i`, possibly without layers. Precondition: 0 <= i < size().
  [[nodiscard]] constexpr layer_group operator[](int i) const noexcept {
    const int kind = i % kinds_;
    const int visit = i / kinds_ - 1;
    return {.layers = visit < 0 ? outside_[kind] : inside_[kind],
            .experts = kind < first_dense_kind,
            .window = kind % 2 == 0 ? 0 : spec_.attention.window,
            .length_divisor = visit < 0 ? 1 : spec_.loop.visits[visit].compression};
  }

 private:
  // Kinds of layers: with experts unlimited, with experts windowed, dense unlimited, dense windowed.
  static constexpr int first_dense_kind = 2;

  constexpr void add_range(int (&to)[4], int first, int last) noexcept {
    if (first >= last) return;
    const int border = spec_.dense_layers < first ? first : spec_.dense_layers < last ? spec_.dense_layers : last;
    if (border < last) add_kind(to, 0, border, last);
    if (first < border) add_kind(to, first_dense_kind, first, border);
  }

  constexpr void add_kind(int (&to)[4], int kind, int first, int last) noexcept {
    int unlimited = last - first;
    if (spec_.attention.window > 0) {
      const layer_set& global = spec_.attention.global_layers;
      unlimited = global.empty() ? 0 : global.count_below(last) - global.count_below(first);
    }
    to[kind] += unlimited;
    to[kind + 1] += last - first - unlimited;
    const int kinds = last - first > unlimited ? kind + 2 : kind + 1;
    if (kinds > kinds_) kinds_ = kinds;
  }

  const spec& spec_;
  loop_span span_;
  int outside_[4]{};
  int inside_[4]{};
  int kinds_ = 1;
};

}  // namespace smelt
