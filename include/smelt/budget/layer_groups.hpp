// Which executed layers cost the same? Budgets multiply by their number instead of walking the schedule.
#pragma once

#include <cstdint>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// Executed layers that cost the same: a closed-form summary of the schedule.
struct layer_group {
  std::int64_t layers = 0;     ///< executed layers of the group
  bool experts = false;        ///< routed experts; otherwise the dense feed-forward
  int window = 0;              ///< attended positions at most; 0 is no limit
  bool in_loop = false;        ///< inside the looped span
  int visit = 0;               ///< 0-based visit; 0 outside the span
  int length_divisor = 1;      ///< sequence positions per position of this visit
  bool own_attention = false;  ///< uses attention weights of this visit
};

namespace detail {

/// Calls `f` for the groups of physical layers [first, last), which otherwise run as `like` says.
template <class F>
constexpr void for_each_group_of_range(const spec& s, int first, int last, layer_group like, F& f) {
  for (int kind = 0; kind < 2; ++kind) {
    const bool routed = kind == 1;
    const int from = routed && s.dense_layers > first ? s.dense_layers : first;
    const int to = !routed && s.dense_layers < last ? s.dense_layers : last;
    if (from >= to) continue;
    int unlimited = to - from;
    if (s.attention.window > 0) {
      unlimited = 0;
      if (!s.attention.global_layers.empty())
        for (int i = from; i < to; ++i) unlimited += s.attention.global_layers[i];
    }
    like.experts = routed;
    like.window = 0;
    like.layers = unlimited;
    if (like.layers > 0) f(like);
    like.window = s.attention.window;
    like.layers = to - from - unlimited;
    if (like.layers > 0) f(like);
  }
}

}  // namespace detail

/// Calls `f(layer_group)` for the groups of `s`: together they are the executed schedule.
/// Precondition: `s` satisfies the rules of spec/rules.hpp.
template <class F>
constexpr void for_each_layer_group(const spec& s, F f) {
  const loop_span span = span_of(s);
  detail::for_each_group_of_range(s, 0, span.first, {}, f);
  detail::for_each_group_of_range(s, span.first + span.count, s.layers, {}, f);
  if (span.count == 0) return;
  const schedule run(s);
  for (int v = 0; v < span.visits; ++v) {
    const executed_layer e = run[span.first + v * span.count];
    detail::for_each_group_of_range(
        s, span.first, span.first + span.count,
        {.in_loop = true, .visit = e.visit, .length_divisor = e.length_divisor, .own_attention = e.own_attention}, f);
  }
}

}  // namespace smelt
