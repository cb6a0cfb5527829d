// What does a projection compute? A matrix product with weights [out, in], the leading rows and columns of those that
// are stored.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// The leading part of w, [out, in], transposed and packed: the right operand of x w^T.
template <class Element>
[[nodiscard]] packed_operand<Element> transposed_panels(context& c, arena& shared, std::int64_t in, std::int64_t out,
                                                        matrix_view<const float> w) {
  const panel_extents e = packed_extents<Element>({in, out}, {w.cols, w.rows}, c.panels().held());
  const auto pack = [&](Element* to) {
    c.for_each(panel_count(e.cols),
               [&](std::int64_t panel) { pack_columns(w.data, w.cols, e.depth, e.cols, panel, panel + 1, to); });
  };
  const std::int64_t size = packed_size<Element>(e.depth, e.cols);
  return {c.packed_weight<Element>(shared, w.data, weight_form::transposed, e, size, pack), e.depth};
}

// The leading part of w, [out, in], packed: the right operand of dy w.
template <class Element>
[[nodiscard]] packed_operand<Element> stored_panels(context& c, arena& shared, std::int64_t in, std::int64_t out,
                                                    matrix_view<const float> w) {
  const panel_extents e = packed_extents<Element>({out, in}, {w.rows, w.cols}, c.panels().held());
  const auto pack = [&](Element* to) {
    c.for_each(panel_count(e.cols), [&](std::int64_t panel) {
      pack_rows([&](std::int64_t k) { return w.data + k * w.cols; }, e.depth, e.cols, panel, panel + 1, to);
    });
  };
  const std::int64_t size = packed_size<Element>(e.depth, e.cols);
  return {c.packed_weight<Element>(shared, w.data, weight_form::as_stored, e, size, pack), e.depth};
}

// to[rows, cols] = scale * from[rows, depth] right, plus `added` where there is one (which may be `to`). A task is some
// rows, and some columns too where there are few rows.
template <class Element>
void project(context& c, float scale, matrix_view<const float> from, packed_operand<Element> right, const float* added,
             matrix_view<float> to) {
  const std::int64_t depth = from.cols;
  const std::int64_t cols = to.cols;
  if (from.rows == 0 || cols == 0) return;
  const std::int64_t task_rows =
      from.rows <= policy::projection_rows ? from.rows : policy::even_rows(from.rows, policy::projection_rows);
  const std::int64_t down = (from.rows + task_rows - 1) / task_rows;
  std::int64_t task_cols = cols;
  if (down == 1) {
    constexpr std::int64_t whole = gemm_tile.panels * panel_width;
    const std::int64_t weights = (std::min)(policy::projection_weights, policy::projection_task / task_rows);
    task_cols = (weights / depth + whole) / whole * whole;
  }
  const std::int64_t across = (cols + task_cols - 1) / task_cols;
  c.for_each(down * across, [&](std::int64_t task) {
    const std::int64_t row = task / across * task_rows;
    const std::int64_t col = task % across * task_cols;
    const std::int64_t rows = (std::min)(task_rows, from.rows - row);
    const std::int64_t at = row * cols + col;
    const arena_loan memory = c.lend();
    multiply(rows_of<Element>(*memory, from.data + row * depth, depth, rows, depth),
             packed_operand<Element>{right.data + col * words<Element>(right.depth) * word_depth<Element>, right.depth},
             rows, depth, (std::min)(task_cols, cols - col),
             affine{to.data + at, cols, scale, added == nullptr ? nullptr : added + at, cols});
  });
}

}  // namespace detail

/// y[T,out] = x[T,in] w[out,in]^T.
template <class Element, ShapeOf<linear_shape> Shape>
void linear(context& c, Shape shape, matrix_view<const float> x, matrix_view<const float> w, matrix_view<float> y) {
  const linear_shape s = shape;
  check_at_least("linear", "in", s.in, 1);
  check_shape("linear", "x", x, x.rows, s.in);
  check_weights("linear", "w", w, s);
  check_shape("linear", "y", y, x.rows, s.out);
  detail::project(c, 1.0F, x, detail::transposed_panels<Element>(c, c.shared(), s.in, s.out, w), nullptr, y);
}

/// y[T,out] = residual[T,out] + scale * x[T,in] w[out,in]^T. `residual` may be y.
template <class Element, ShapeOf<linear_shape> Shape>
void add_linear(context& c, Shape shape, double scale, matrix_view<const float> residual, matrix_view<const float> x,
                matrix_view<const float> w, matrix_view<float> y) {
  const linear_shape s = shape;
  check_at_least("add_linear", "in", s.in, 1);
  check_shape("add_linear", "residual", residual, x.rows, s.out);
  check_shape("add_linear", "x", x, x.rows, s.in);
  check_weights("add_linear", "w", w, s);
  check_shape("add_linear", "y", y, x.rows, s.out);
  detail::project(c, static_cast<float>(scale), x, detail::transposed_panels<Element>(c, c.shared(), s.in, s.out, w),
                  residual.data, y);
}

/// dx[T,in] = scale * dy[T,out] w, added to dx when `accumulate`.
template <class Element, ShapeOf<linear_shape> Shape>
void linear_backward_input(context& c, Shape shape, double scale, matrix_view<const float> dy,
                           matrix_view<const float> w, matrix_view<float> dx, bool add) {
  const linear_shape s = shape;
  check_at_least("linear_backward_input", "out", s.out, 1);
  check_shape("linear_backward_input", "dy", dy, dy.rows, s.out);
  check_weights("linear_backward_input", "w", w, s);
  check_shape("linear_backward_input", "dx", dx, dy.rows, s.in);
  detail::project(c, static_cast<float>(scale), dy, detail::stored_panels<Element>(c, c.shared(), s.in, s.out, w),
                  add ? dx.data : nullptr, dx);
}

static_assert(policy::weight_gradient_cols % panel_width == 0, "[smelt] a block of a gradient must be whole panels");
static_assert(policy::weight_gradient_depth % 2 == 0, "[smelt] a depth of a gradient must be whole words of bf16");

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
  check_weights("linear_backward_weight", "dw", dw, s);
  // x is read where it is if it can be.
  const bool in_place = std::is_same_v<Element, float> && in % panel_width == 0 && in % policy::crowded_stride != 0;
  std::span<Element> packed;
  if (!in_place) {
    packed = c.shared().take<Element>(packed_size<Element>(tokens, in));
    c.for_each(panel_count(in), [&](std::int64_t panel) {
      pack_rows([&](std::int64_t t) { return x.data + t * in; }, tokens, in, panel, panel + 1, packed.data());
    });
  }
  const std::int64_t task_rows = policy::weight_gradient_rows(out);
  constexpr std::int64_t task_cols = policy::weight_gradient_cols;
  const std::int64_t across = (in + task_cols - 1) / task_cols;
  c.for_each((out + task_rows - 1) / task_rows * across, [&](std::int64_t task) {
    const std::int64_t row = task / across * task_rows;
    const std::int64_t col = task % across * task_cols;
    const std::int64_t rows = (std::min)(task_rows, out - row);
    const std::int64_t cols = (std::min)(task_cols, in - col);
    float* to = dw.data + row * dw.cols + col;
    const arena_loan memory = c.lend();
    for (std::int64_t first = 0; first < tokens; first += policy::weight_gradient_depth) {
      const std::int64_t depth = (std::min)(policy::weight_gradient_depth, tokens - first);
      const affine add{to, dw.cols, static_cast<float>(scale), to, dw.cols};
      memory->reset();
      const column_operand<Element> left = columns_of<Element>(*memory, dy.data + first * out + row, out, rows, depth);
      if constexpr (std::is_same_v<Element, float>) {
        if (in_place) {
          multiply(left, stored_operand{x.data + first * in + col, in}, rows, depth, cols, add);
          continue;
        }
      }
      const Element* panels = packed.data() + col * words<Element>(tokens) * word_depth<Element>;
      multiply(left, packed_operand<Element>{panels, tokens, first}, rows, depth, cols, add);
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
