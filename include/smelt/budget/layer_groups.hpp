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
  int width = 0;            ///< channels of the residual stream that they run on
  int active = 0;           ///< routed experts that a position visits
  int hidden = 0;           ///< hidden units of one routed expert that run
};

/// The executed schedule in groups of equal cost: those outside the looped span, then those of each run of visits by
/// the same plan. Short for the compiler to evaluate, whatever the depth: a plain model is one group.
class layer_groups {
 public:
  /// Precondition: `s` satisfies the rules of spec/rules.hpp and outlives the groups.
  constexpr explicit layer_groups(const spec& s) noexcept : spec_(s) {
    const loop_span span = span_of(s);
    runs_ = span.count == 0 ? 0 : s.loop.visits.runs();
    add_range(outside_, 0, span.first);
    add_range(inside_, span.first, span.first + span.count);
    add_range(outside_, span.first + span.count, s.layers);
  }

  /// Slots to look at; a slot may hold no layers.
  [[nodiscard]] constexpr int size() const noexcept { return kinds_ * (1 + runs_); }

  /// The group of slot `i`, possibly without layers. Precondition: 0 <= i < size().
  [[nodiscard]] constexpr layer_group operator[](int i) const noexcept {
    const int kind = i % kinds_;
    const int run = i / kinds_ - 1;
    layer_group g{.layers = outside_[kind],
                  .experts = kind < first_dense_kind,
                  .window = kind % 2 == 0 ? 0 : spec_.attention.window,
                  .width = spec_.width,
                  .active = spec_.experts.active,
                  .hidden = spec_.experts.hidden};
    if (run < 0) return g;
    const visit_plan& plan = visit_list::plan_of(spec_.loop.visits, run);
    g.layers = std::int64_t{inside_[kind]} * visit_list::length_of(spec_.loop.visits, run);
    g.length_divisor = plan.compression;
    g.width = width_of(spec_, plan);
    g.active = active_of(spec_, plan);
    g.hidden = hidden_of(spec_, plan);
    return g;
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
  int runs_ = 0;
  int outside_[4]{};
  int inside_[4]{};
  int kinds_ = 1;
};

}  // namespace smelt
