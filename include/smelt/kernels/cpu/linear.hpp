// What does a projection compute? A matrix product with weights [out, in].
#pragma once

#include <algorithm>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/cpu/context.hpp>
#include <smelt/kernels/cpu/gemm.hpp>
#include <smelt/kernels/cpu/simd.hpp>
#include <smelt/kernels/policy/cpu_tasks.hpp>
#include <smelt/kernels/shapes.hpp>

namespace smelt::cpu_ops {

/// y[T,out] = x[T,in] w[out,in]^T.
template <class Executor, ShapeOf<linear_shape> Shape>
void linear(context<Executor>& c, Shape shape, matrix_view<const float> x, matrix_view<const float> w,
            matrix_view<float> y) {
  const linear_shape s = shape;
  const std::int64_t in = s.in;
  const std::int64_t out = s.out;
  check_at_least("linear", "in", in, 1);
  check_shape("linear", "x", x, x.rows, in);
  check_shape("linear", "w", w, out, in);
  check_shape("linear", "y", y, x.rows, out);
  if (x.rows < policy::few_rows) {
    c.for_chunks(out, (std::max)(policy::row_elements / in, std::int64_t{1}),
                 [&](std::int64_t first, std::int64_t last) {
                   for (std::int64_t o = first; o < last; ++o) {
                     for (std::int64_t t = 0; t < x.rows; ++t) {
                       y.data[t * out + o] = dot(x.data + t * in, w.data + o * in, in);
                     }
                   }
                 });
    return;
  }
  const std::span<float> packed = c.shared().template take<float>(packed_size(in, out));
  c.for_each(panel_count(out),
             [&](std::int64_t panel) { pack_columns(w.data, in, in, out, panel, panel + 1, packed.data()); });
  c.for_chunks(x.rows, policy::product_rows, [&](std::int64_t first, std::int64_t last) {
    multiply({x.data + first * in, in, 1}, {packed.data(), in}, last - first, in, out, y.data + first * out, out,
             false);
  });
}

/// dx[T,in] = dy[T,out] w, added to dx when `accumulate`.
template <class Executor, ShapeOf<linear_shape> Shape>
void linear_backward_input(context<Executor>& c, Shape shape, matrix_view<const float> dy, matrix_view<const float> w,
                           matrix_view<float> dx, bool accumulate) {
  const linear_shape s = shape;
  const std::int64_t in = s.in;
  const std::int64_t out = s.out;
  check_at_least("linear_backward_input", "out", out, 1);
  check_shape("linear_backward_input", "dy", dy, dy.rows, out);
  check_shape("linear_backward_input", "w", w, out, in);
  check_shape("linear_backward_input", "dx", dx, dy.rows, in);
  const std::span<float> packed = c.shared().template take<float>(packed_size(out, in));
  c.for_each(panel_count(in), [&](std::int64_t panel) {
    pack_rows([&](std::int64_t k) { return w.data + k * in; }, out, in, panel, panel + 1, packed.data());
  });
  c.for_chunks(dy.rows, policy::product_rows, [&](std::int64_t first, std::int64_t last) {
    multiply({dy.data + first * out, out, 1}, {packed.data(), out}, last - first, out, in, dx.data + first * in, in,
             accumulate);
  });
}

static_assert(policy::gradient_cols % panel_width == 0, "[smelt] a block of a gradient must be whole panels");

/// dw[out,in] += dy[T,out]^T x[T,in]. A task owns a block of dw and walks all tokens in order.
template <class Executor, ShapeOf<linear_shape> Shape>
void linear_backward_weight(context<Executor>& c, Shape shape, matrix_view<const float> x, matrix_view<const float> dy,
                            matrix_view<float> dw) {
  const linear_shape s = shape;
  const std::int64_t in = s.in;
  const std::int64_t out = s.out;
  const std::int64_t tokens = x.rows;
  check_shape("linear_backward_weight", "x", x, tokens, in);
  check_shape("linear_backward_weight", "dy", dy, tokens, out);
  check_shape("linear_backward_weight", "dw", dw, out, in);
  const std::span<float> packed = c.shared().template take<float>(packed_size(tokens, in));
  c.for_each(panel_count(in), [&](std::int64_t panel) {
    pack_rows([&](std::int64_t t) { return x.data + t * in; }, tokens, in, panel, panel + 1, packed.data());
  });
  for_blocks(c, out, in, [&](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    multiply({dy.data + row, 1, out}, {packed.data() + col * tokens, tokens}, rows, tokens, cols,
             dw.data + row * in + col, in, true);
  });
}

}  // namespace smelt::cpu_ops
