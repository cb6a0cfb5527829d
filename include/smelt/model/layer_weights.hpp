// Which weights does an executed layer use? Those of its physical layer; the attention and the sizes are its visit's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <smelt/core/carver.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/attention_input.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/model/weights.hpp>
#include <smelt/spec/schedule.hpp>
#include <span>

namespace smelt {

/// The weights of one executed layer, or their gradients; empty where it has none.
template <class T>
struct layer_weights {
  attention_input_weights<T> attention_input{};
  matrix_view<T> output{};
  std::span<T> ffn_norm{};
  matrix_view<T> router{};
  std::span<T> balance_bias{};
  matrix_view<T> expert_gate{}, expert_up{}, expert_down{};
  matrix_view<T> shared_gate{}, shared_up{}, shared_down{};
  matrix_view<T> dense_gate{}, dense_up{}, dense_down{};
};

/// The weights of executed layer `e` at full size. `T` is the element of `w`, const for constant ones.
template <class T, class Weights>
[[nodiscard]] layer_weights<T> weights_of(Weights& w, const executed_layer& e) noexcept {
  return {.attention_input = {w.vector(weight::attention_norm, e.layer), w(weight::query, e.attention),
                              w(weight::key, e.attention), w(weight::value, e.attention),
                              w.vector(weight::query_norm, e.attention), w.vector(weight::key_norm, e.attention)},
          .output = w(weight::output, e.attention),
          .ffn_norm = w.vector(weight::ffn_norm, e.layer),
          .router = w(weight::router, e.layer),
          .balance_bias = w.vector(weight::balance_bias, e.layer),
          .expert_gate = w(weight::expert_gate, e.layer),
          .expert_up = w(weight::expert_up, e.layer),
          .expert_down = w(weight::expert_down, e.layer),
          .shared_gate = w(weight::shared_gate, e.layer),
          .shared_up = w(weight::shared_up, e.layer),
          .shared_down = w(weight::shared_down, e.layer),
          .dense_gate = w(weight::dense_gate, e.layer),
          .dense_up = w(weight::dense_up, e.layer),
          .dense_down = w(weight::dense_down, e.layer)};
}

/// An executed layer with what it computes by.
template <class Scalar>
struct layer_run {
  executed_layer step{};
  double coefficient = 1;  ///< of both sublayers' writes; not 0 where it is learned
  layer_weights<const Scalar> weights{};
};

/// The coefficient of the writes of executed layer `e`. A learned one whose magnitude is below 2^-40 counts as that:
/// what flows back through a write carries the coefficient, and its gradient is found by dividing by it.
template <class Scalar>
[[nodiscard]] double coefficient_of(const weight_buffer<Scalar>& w, const executed_layer& e) noexcept {
  if (!e.plan.learned) return e.plan.residual.as<double>();
  constexpr double least = 0x1p-40;
  const auto value = static_cast<double>(w(weight::coefficient, e.visit).data[0]);
  return value > -least && value < least ? (value < 0 ? -least : least) : value;
}

/// Whether the layers of a visit by `plan` have the sizes of the others.
[[nodiscard]] constexpr bool is_whole(const visit_plan& plan) noexcept {
  return !is_narrow(plan) && plan.expert_hidden.num == plan.expert_hidden.den && plan.active == 0;
}
/// Whether all visits' layers have the sizes of the others.
[[nodiscard]] constexpr bool is_whole(const spec& s) noexcept {
  for (int i = 0; i < s.loop.visits.runs(); ++i)
    if (!is_whole(visit_list::plan_of(s.loop.visits, i))) return false;
  return true;
}

/// Where the gradients of an executed layer go.
template <class Scalar>
struct layer_gradients {
  layer_weights<Scalar> weights{};
  double* coefficient = nullptr;  ///< added to; null where it is not learned
};

/// Whether a visit by `plan` runs on leading parts of the weights, which are copied for the kernels.
[[nodiscard]] constexpr bool uses_parts(const visit_plan& plan) noexcept {
  return is_narrow(plan) || plan.expert_hidden.num != plan.expert_hidden.den;
}

/// The leading parts of a layer's weights that a visit runs on, as matrices of their own; or the gradients of those.
template <class Scalar>
class partial_weights {
 public:
  /// Memory for a layer of `s` that a visit runs as one of `part`, which has the layer's experts or is dense.
  partial_weights(const spec& s, const spec& part, int layer, carver& memory)
      : experts_(s.experts.stored), width_(part.width) {
    if (s.width != part.width) {
      query_ = {memory, query_width(s), part.width};
      key_ = {memory, kv_width(s), part.width};
      value_ = {memory, kv_width(s), part.width};
      if (has_experts(s, layer)) {
        router_ = {memory, s.experts.stored, part.width};
        shared_gate_ = {memory, s.experts.shared_hidden, part.width};
        shared_up_ = {memory, s.experts.shared_hidden, part.width};
      } else {
        dense_gate_ = {memory, s.dense_hidden, part.width};
        dense_up_ = {memory, s.dense_hidden, part.width};
      }
    }
    if (has_experts(s, layer)) {
      const std::int64_t hidden = std::int64_t{s.experts.stored} * part.experts.hidden;
      expert_gate_ = {memory, hidden, part.width};
      expert_up_ = {memory, hidden, part.width};
      expert_down_ = {memory, std::int64_t{s.experts.stored} * part.width, part.experts.hidden};
    }
  }

  /// Copies the parts of `whole` and returns them.
  [[nodiscard]] layer_weights<const Scalar> take(const layer_weights<const Scalar>& whole) {
    each_copy(whole, [](const Scalar* from, Scalar* to, std::int64_t count) { std::copy_n(from, count, to); });
    return views<const Scalar>(whole);
  }

  /// Those that were copied last.
  [[nodiscard]] layer_weights<const Scalar> taken(const layer_weights<const Scalar>& whole) {
    return views<const Scalar>(whole);
  }

  /// The parts' gradients, all zero; those that need no copy are in `whole`.
  [[nodiscard]] layer_weights<Scalar> zeros(const layer_weights<Scalar>& whole) {
    each_copy(whole, [](const Scalar*, Scalar* to, std::int64_t count) { std::fill_n(to, count, Scalar(0)); });
    return views<Scalar>(whole);
  }

  /// Adds the parts' gradients to those of `whole`.
  void add_to(const layer_weights<Scalar>& whole) {
    each_copy(whole, [](Scalar* to, const Scalar* from, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
    });
  }

 private:
  /// Calls f(row of the whole, row of the part, columns) for every row of every part that has a copy.
  template <class T, class F>
  void each_copy(const layer_weights<T>& whole, F f) {
    const auto rows = [&](matrix_view<T> from, matrix<Scalar>& to, std::int64_t groups) {
      const matrix_view<Scalar> part = to.view();
      if (part.rows == 0) return;
      const std::int64_t of_group = part.rows / groups;
      for (std::int64_t g = 0; g < groups; ++g)
        for (std::int64_t r = 0; r < of_group; ++r)
          f(from.data + (g * (from.rows / groups) + r) * from.cols, part.data + (g * of_group + r) * part.cols,
            part.cols);
    };
    rows(whole.attention_input.query, query_, 1);
    rows(whole.attention_input.key, key_, 1);
    rows(whole.attention_input.value, value_, 1);
    rows(whole.router, router_, 1);
    rows(whole.expert_gate, expert_gate_, experts_);
    rows(whole.expert_up, expert_up_, experts_);
    rows(whole.expert_down, expert_down_, experts_);
    rows(whole.shared_gate, shared_gate_, 1);
    rows(whole.shared_up, shared_up_, 1);
    rows(whole.dense_gate, dense_gate_, 1);
    rows(whole.dense_up, dense_up_, 1);
  }

  /// The copies, and of what needs none the leading elements or rows.
  template <class T>
  [[nodiscard]] layer_weights<T> views(const layer_weights<T>& whole) {
    const auto copy_or = [](matrix<Scalar>& copy, matrix_view<T> all) {
      return copy.view().rows > 0 ? matrix_view<T>(copy.view()) : all;
    };
    const auto leading = [&](std::span<T> all) {
      return all.first((std::min)(all.size(), static_cast<std::size_t>(width_)));
    };
    const auto leading_rows = [&](matrix_view<T> all) {
      return all.rows > 0 ? matrix_view<T>(all.data, width_, all.cols) : all;
    };
    layer_weights<T> v = whole;
    v.attention_input.norm = leading(whole.attention_input.norm);
    v.attention_input.query = copy_or(query_, whole.attention_input.query);
    v.attention_input.key = copy_or(key_, whole.attention_input.key);
    v.attention_input.value = copy_or(value_, whole.attention_input.value);
    v.output = leading_rows(whole.output);
    v.ffn_norm = leading(whole.ffn_norm);
    v.router = copy_or(router_, whole.router);
    v.expert_gate = copy_or(expert_gate_, whole.expert_gate);
    v.expert_up = copy_or(expert_up_, whole.expert_up);
    v.expert_down = copy_or(expert_down_, whole.expert_down);
    v.shared_gate = copy_or(shared_gate_, whole.shared_gate);
    v.shared_up = copy_or(shared_up_, whole.shared_up);
    v.shared_down = leading_rows(whole.shared_down);
    v.dense_gate = copy_or(dense_gate_, whole.dense_gate);
    v.dense_up = copy_or(dense_up_, whole.dense_up);
    v.dense_down = leading_rows(whole.dense_down);
    return v;
  }

  std::int64_t experts_;
  std::int64_t width_;
  matrix<Scalar> query_, key_, value_, router_;
  matrix<Scalar> expert_gate_, expert_up_, expert_down_;
  matrix<Scalar> shared_gate_, shared_up_;
  matrix<Scalar> dense_gate_, dense_up_;
};

}  // namespace smelt
