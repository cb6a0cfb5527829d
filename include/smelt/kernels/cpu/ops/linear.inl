// What does a projection compute? A matrix product with weights [out, in].

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// Packed w[out,in]^T: the right operand of x w^T.
template <class Element>
[[nodiscard]] const Element* transposed_panels(context& c, arena& shared, matrix_view<const float> w) {
  return c.packed_weight<Element>(
      shared, w.data, weight_form::transposed, packed_size<Element>(w.cols, w.rows), [&](Element* to) {
        c.for_each(panel_count(w.rows), [&](std::int64_t panel) {
          pack_columns(w.data, w.cols, w.cols, w.rows, panel, panel + 1, to);
        });
      });
}

// Packed w[out,in]: the right operand of dy w.
template <class Element>
[[nodiscard]] const Element* stored_panels(context& c, arena& shared, matrix_view<const float> w) {
  return c.packed_weight<Element>(
      shared, w.data, weight_form::as_stored, packed_size<Element>(w.rows, w.cols), [&](Element* to) {
        c.for_each(panel_count(w.cols), [&](std::int64_t panel) {
          pack_rows([&](std::int64_t k) { return w.data + k * w.cols; }, w.rows, w.cols, panel, panel + 1, to);
        });
      });
}

// y = scale * x w^T, plus the residual where there is one.
template <class Element>
void project(context& c, std::int64_t in, std::int64_t out, float scale, const float* residual,
             matrix_view<const float> x, matrix_view<const float> w, matrix_view<float> y) {
  if (x.rows < policy::few_rows) {
    c.for_chunks(out, (std::max)(policy::row_elements / in, std::int64_t{1}),
                 [&](std::int64_t first, std::int64_t last) {
                   for (std::int64_t o = first; o < last; ++o) {
                     for (std::int64_t t = 0; t < x.rows; ++t) {
                       const float value = scale * dot(x.data + t * in, w.data + o * in, in);
                       y.data[t * out + o] = residual == nullptr ? value : residual[t * out + o] + value;
                     }
                   }
                 });
    return;
  }
  const Element* packed = transposed_panels<Element>(c, c.shared(), w);
  c.for_chunks(x.rows, policy::product_rows, [&](std::int64_t first, std::int64_t last) {
    const arena_loan memory = c.lend();
    multiply(rows_of<Element>(*memory, x.data + first * in, in, last - first, in),
             packed_operand<Element>{packed, in}, last - first, in, out,
             affine{y.data + first * out, out, scale, residual == nullptr ? nullptr : residual + first * out, out});
  });
}

}  // namespace detail

/// y[T,out] = x[T,in] w[out,in]^T.
template <class Element, ShapeOf<linear_shape> Shape>
void linear(context& c, Shape shape, matrix_view<const float> x, matrix_view<const float> w, matrix_view<float> y) {
  const linear_shape s = shape;
  check_at_least("linear", "in", s.in, 1);
  check_shape("linear", "x", x, x.rows, s.in);
  check_shape("linear", "w", w, s.out, s.in);
  check_shape("linear", "y", y, x.rows, s.out);
  detail::project<Element>(c, s.in, s.out, 1.0F, nullptr, x, w, y);
}

/// y[T,out] = residual[T,out] + scale * x[T,in] w[out,in]^T. `residual` may be y.
template <class Element, ShapeOf<linear_shape> Shape>
void add_linear(context& c, Shape shape, double scale, matrix_view<const float> residual, matrix_view<const float> x,
                matrix_view<const float> w, matrix_view<float> y) {
  const linear_shape s = shape;
  check_at_least("add_linear", "in", s.in, 1);
  check_shape("add_linear", "residual", residual, x.rows, s.out);
  check_shape("add_linear", "x", x, x.rows, s.in);
  check_shape("add_linear", "w", w, s.out, s.in);
  check_shape("add_linear", "y", y, x.rows, s.out);
  detail::project<Element>(c, s.in, s.out, static_cast<float>(scale), residual.data, x, w, y);
}

/// dx[T,in] = scale * dy[T,out] w, added to dx when `accumulate`.
template <class Element, ShapeOf<linear_shape> Shape>
void linear_backward_input(context& c, Shape shape, double scale, matrix_view<const float> dy,
                           matrix_view<const float> w, matrix_view<float> dx, bool add) {
  const linear_shape s = shape;
  const std::int64_t in = s.in;
  const std::int64_t out = s.out;
  check_at_least("linear_backward_input", "out", out, 1);
  check_shape("linear_backward_input", "dy", dy, dy.rows, out);
  check_shape("linear_backward_input", "w", w, out, in);
  check_shape("linear_backward_input", "dx", dx, dy.rows, in);
  const Element* packed = detail::stored_panels<Element>(c, c.shared(), w);
  c.for_chunks(dy.rows, policy::product_rows, [&](std::int64_t first, std::int64_t last) {
    const arena_loan memory = c.lend();
    float* to = dx.data + first * in;
    multiply(rows_of<Element>(*memory, dy.data + first * out, out, last - first, out),
             packed_operand<Element>{packed, out}, last - first, out, in,
             affine{to, in, static_cast<float>(scale), add ? to : nullptr, in});
  });
}

static_assert(policy::gradient_cols % panel_width == 0, "[smelt] a block of a gradient must be whole panels");

/// dw[out,in] += scale * dy[T,out]^T x[T,in]. A task owns a block of dw and walks all tokens in order.
template <class Element, ShapeOf<linear_shape> Shape>
void linear_backward_weight(context& c, Shape shape, double scale, matrix_view<const float> x,
                            matrix_view<const float> dy, matrix_view<float> dw) {
  const linear_shape s = shape;
  const std::int64_t in = s.in;
  const std::int64_t out = s.out;
  const std::int64_t tokens = x.rows;
  check_shape("linear_backward_weight", "x", x, tokens, in);
  check_shape("linear_backward_weight", "dy", dy, tokens, out);
  check_shape("linear_backward_weight", "dw", dw, out, in);
  const std::span<Element> packed = c.shared().take<Element>(packed_size<Element>(tokens, in));
  c.for_each(panel_count(in), [&](std::int64_t panel) {
    pack_rows([&](std::int64_t t) { return x.data + t * in; }, tokens, in, panel, panel + 1, packed.data());
  });
  for_blocks(c, out, in, [&](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    const arena_loan memory = c.lend();
    float* to = dw.data + row * in + col;
    multiply(columns_of<Element>(*memory, dy.data + row, out, rows, tokens),
             packed_operand<Element>{packed.data() + col * words<Element>(tokens) * word_depth<Element>, tokens}, rows,
             tokens, cols, affine{to, in, static_cast<float>(scale), to, in});
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
