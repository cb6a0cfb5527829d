// Where does a step's time go? A backend that clocks every op of another one and counts the work the op was asked for.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/op_arrays.hpp>
#include <smelt/kernels/orthogonal.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace smelt {

/// What the calls of one op cost.
struct op_time {
  std::string_view op;  ///< its name in Backend
  std::int64_t calls = 0;
  double seconds = 0;
  double flop = 0;  ///< multiplies and adds of the matrix products its results need; what is computed again is not here
  double bytes = 0;  ///< of the arrays it was given, each counted once
};

namespace detail {

/// What the number of operations depends on besides the shape.
struct op_extent {
  std::int64_t rows = 0;                ///< of the first matrix
  std::span<const std::int32_t> first;  ///< the first list of indices
};

template <class... Arguments>
[[nodiscard]] op_extent extent_of(const Arguments&... arguments) {
  op_extent e;
  bool has_rows = false, has_first = false;
  const auto look = [&](const auto& a) {
    using argument = std::remove_cvref_t<decltype(a)>;
    if constexpr (IsMatrix<argument>) {
      if (!std::exchange(has_rows, true)) e.rows = a.rows;
    } else if constexpr (std::convertible_to<const argument&, std::span<const std::int32_t>>) {
      if (!std::exchange(has_first, true)) e.first = a;
    }
  };
  (look(arguments), ...);
  return e;
}

// Operations of one product over the rows of an op, by its shape; a shape without products has none.
[[nodiscard]] inline double product_flop(const linear_shape& s, const op_extent& e) {
  return 2.0 * static_cast<double>(e.rows) * s.in * s.out;
}
[[nodiscard]] inline double product_flop(const experts_shape& s, const op_extent& e) {
  return 6.0 * static_cast<double>(e.rows) * s.active * s.width * s.hidden;
}
[[nodiscard]] inline double product_flop(const head_shape& s, const op_extent& e) {
  return 2.0 * static_cast<double>(e.rows) * s.width * s.vocab;
}
[[nodiscard]] inline double product_flop(const attention_input_shape& s, const op_extent& e) {
  return 2.0 * static_cast<double>(e.rows) * s.width * (query_width(s) + 2 * kv_width(s));
}
[[nodiscard]] inline double product_flop(const attention_shape& s, const op_extent& e) {
  std::int64_t pairs = 0;
  for (std::size_t t = 0; t < e.first.size(); ++t) pairs += static_cast<std::int64_t>(t) - e.first[t] + 1;
  return 4.0 * static_cast<double>(pairs) * s.heads * s.head_dim;
}

[[nodiscard]] inline double cached_attention_flop(const attention_shape& s, std::int64_t queries, std::int64_t keys,
                                                  std::int64_t window) {
  std::int64_t pairs = 0;
  for (std::int64_t end = keys - queries + 1; end <= keys; ++end) pairs += window > 0 && window < end ? window : end;
  return 4.0 * static_cast<double>(pairs) * s.heads * s.head_dim;
}

template <class Shape, class... Arguments>
[[nodiscard]] double flop_of(const Shape& shape, const Arguments&... arguments) {
  if constexpr (requires { product_flop(shape, op_extent{}); })
    return product_flop(shape, extent_of(arguments...));
  else
    return 0;
}

template <class... Arguments>
[[nodiscard]] double bytes_of(const Arguments&... arguments) {
  std::size_t bytes = 0;
  for_each_array([&](const void*, std::size_t size) { bytes += size; }, arguments...);
  return static_cast<double>(bytes);
}

}  // namespace detail

// One op: forwarded as it is, with its time and `products` times the operations of its shape. A call whose arguments do
// not fit the wrapped backend fits this one as little.
#define SMELT_TIMED_OP(op, products)                                                                             \
  template <class... Arguments>                                                                                  \
    requires requires(B& b, Arguments&&... a) { b.op(std::forward<Arguments>(a)...); }                           \
  decltype(auto) op(Arguments&&... arguments) {                                                                  \
    const clock running(*this, #op, (products) * detail::flop_of(arguments...), detail::bytes_of(arguments...)); \
    return inner_.op(std::forward<Arguments>(arguments)...);                                                     \
  }

/// When a timed backend makes an update that it may defer: at once, so that the time of every op is its own, or when
/// the backend inside it does, so that a step takes the time that it takes without clocks.
enum class update_time { at_once, deferred };

/// A backend whose ops are those of `B`, each clocked. Like every backend's, its ops run one at a time. A clock costs
/// two looks at the time, about 0.1 us an op.
template <Backend B>
class timed {
 public:
  using scalar = typename B::scalar;

  /// `inner` must outlive this.
  explicit timed(B& inner, update_time updates = update_time::at_once) noexcept : inner_(inner), updates_(updates) {}

  /// The ops that were called, in the order of their first calls.
  [[nodiscard]] std::span<const op_time> times() const noexcept { return times_; }

  /// Sets every op to no calls.
  void reset() noexcept {
    for (op_time& t : times_) t = {.op = t.op};
  }

  [[nodiscard]] decltype(auto) hold_weights() { return inner_.hold_weights(); }
  void settle(std::span<const scalar> array) { inner_.settle(array); }

  SMELT_TIMED_OP(embed, 0)
  SMELT_TIMED_OP(embed_backward, 0)
  SMELT_TIMED_OP(rms_norm, 0)
  SMELT_TIMED_OP(rms_norm_backward, 0)
  SMELT_TIMED_OP(linear, 1)
  SMELT_TIMED_OP(add_linear, 1)
  SMELT_TIMED_OP(linear_backward_input, 1)
  SMELT_TIMED_OP(linear_backward_weight, 1)
  SMELT_TIMED_OP(attention_input, 1)
  SMELT_TIMED_OP(attention_input_backward, 2)
  SMELT_TIMED_OP(attention, 1)
  SMELT_TIMED_OP(attention_backward, 2)
  SMELT_TIMED_OP(route, 0)
  SMELT_TIMED_OP(route_losses, 0)
  SMELT_TIMED_OP(route_backward, 0)
  SMELT_TIMED_OP(group_by_expert, 0)
  SMELT_TIMED_OP(experts, 1)
  SMELT_TIMED_OP(experts_backward, 2)
  SMELT_TIMED_OP(cross_entropy, 1)
  SMELT_TIMED_OP(cross_entropy_backward, 2)
  SMELT_TIMED_OP(cross_entropy_with_gradient, 3)
  SMELT_TIMED_OP(pool, 0)
  SMELT_TIMED_OP(pool_backward, 0)
  SMELT_TIMED_OP(write_back, 0)
  SMELT_TIMED_OP(write_back_backward, 0)
  SMELT_TIMED_OP(difference, 0)
  SMELT_TIMED_OP(dot, 0)
  SMELT_TIMED_OP(norm, 0)

  /// Written out, since its operations depend on two numbers of rows.
  template <class Shape, class Matrix, class Out>
  void attention_cached(const Shape& shape, const Matrix& q, const Matrix& k, const Matrix& v, std::int64_t window,
                        const Out& out) {
    const clock running(*this, "attention_cached", detail::cached_attention_flop(shape, q.rows, k.rows, window),
                        detail::bytes_of(q, k, v, out));
    inner_.attention_cached(shape, q, k, v, window, out);
  }

  /// Written out, so that its numbers may be given in braces.
  template <class... Arguments>
    requires requires(B& b, const adamw_step& numbers, Arguments&&... a) {
      b.adamw(numbers, std::forward<Arguments>(a)...);
    }
  void adamw(const adamw_step& numbers, Arguments&&... arguments) {
    const clock running(*this, "adamw", 0, detail::bytes_of(arguments...));
    inner_.adamw(numbers, std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
    requires requires(B& b, const adamw_step& numbers, Arguments&&... a) {
      b.adamw_deferred(numbers, std::forward<Arguments>(a)...);
    }
  void adamw_deferred(const adamw_step& numbers, Arguments&&... arguments) {
    if (updates_ == update_time::at_once) return adamw(numbers, std::forward<Arguments>(arguments)...);
    const clock running(*this, "adamw", 0, detail::bytes_of(arguments...));
    inner_.adamw_deferred(numbers, std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
    requires requires(B& b, const muon_step& numbers, std::span<const matrix_range> m, Arguments&&... a) {
      b.muon(numbers, m, std::forward<Arguments>(a)...);
    }
  void muon(const muon_step& numbers, std::span<const matrix_range> matrices, Arguments&&... arguments) {
    double flop = 0;
    double bytes = 0;
    for (const matrix_range& m : matrices) {
      flop += orthogonal_flop(m);
      bytes +=
          3 * static_cast<double>(m.rows * m.cols * std::int64_t{sizeof(scalar)});  // of the arrays' matrices alone
    }
    const clock running(*this, "muon", flop, bytes);
    inner_.muon(numbers, matrices, std::forward<Arguments>(arguments)...);
  }

 private:
  /// Adds the time from its construction to its destruction to an op.
  class clock {
   public:
    clock(timed& of, std::string_view op, double flop, double bytes) : time_(of.time_of(op)) {
      ++time_.calls;
      time_.flop += flop;
      time_.bytes += bytes;
      start_ = std::chrono::steady_clock::now();
    }
    clock(const clock&) = delete;
    clock& operator=(const clock&) = delete;
    ~clock() { time_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

   private:
    op_time& time_;
    std::chrono::steady_clock::time_point start_;
  };

  [[nodiscard]] op_time& time_of(std::string_view op) {
    for (op_time& t : times_)
      if (t.op == op) return t;
    return times_.emplace_back(op_time{.op = op});
  }

  B& inner_;
  update_time updates_;
  std::vector<op_time> times_;
};

#undef SMELT_TIMED_OP

}  // namespace smelt
