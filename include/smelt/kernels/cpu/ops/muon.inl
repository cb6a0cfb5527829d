// How does a gradient move a matrix? Muon: by its smoothed direction, with all singular values brought to 1. A task
// takes a matrix, which is worked on as a tall one: products of floats then read both operands where they are.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// to = factor * from, of whole vectors.
inline void scale(const float* from, float factor, std::int64_t size, float* to) noexcept {
  for (std::int64_t i = 0; i < size; i += lanes) store(to + i, rounded(factor * load(from + i)));
}

// to[cols, rows] = the transpose of from[rows, cols].
inline void transpose_matrix(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols,
                             float* to, std::int64_t to_stride) noexcept {
  for (std::int64_t i = 0; i < rows; i += lanes) {
    const std::int64_t high = (std::min)(lanes, rows - i);
    for (std::int64_t j = 0; j < cols; j += lanes) {
      const std::int64_t wide = (std::min)(lanes, cols - j);
      floats square[lanes];
#pragma GCC unroll 16
      for (std::int64_t k = 0; k < lanes; ++k) {
        const float* row = from + (i + k) * from_stride + j;
        square[k] = k >= high ? floats{} : wide == lanes ? load(row) : load_partial(row, wide);
      }
      SMELT_SET::transpose(square);
#pragma GCC unroll 16
      for (std::int64_t k = 0; k < lanes; ++k) {
        if (k >= wide) break;
        float* row = to + (j + k) * to_stride + i;
        if (high == lanes) {
          store(row, square[k]);
        } else {
          store_partial(row, square[k], high);
        }
      }
    }
  }
}

// The smoothed direction of a matrix, with momentum and gradient moved on; returns its greatest magnitude.
inline float look_ahead(const muon_step& numbers, std::int64_t size, float* gradient, float* momentum,
                        float* ahead) noexcept {
  const auto scale = static_cast<float>(numbers.gradient_scale);
  const auto keep = static_cast<float>(numbers.momentum);
  const auto take = static_cast<float>(1 - numbers.momentum);
  floats largest = {};
  for_vectors(size, [&](auto get, auto put) {
    const floats part = take * (get(gradient) * scale);
    const floats moved = keep * get(momentum) + part;
    const floats there = keep * moved + part;
    put(gradient, floats{});
    put(momentum, moved);
    put(ahead, there);
    const floats magnitude = there < 0.0F ? -there : there;
    largest = magnitude > largest ? magnitude : largest;
  });
  return greatest_lane(largest);
}

// The rows [depth, cols] of floats as a right operand: in place, or packed into `memory`. The columns are whole panels.
template <class Element>
[[nodiscard]] auto right_of(arena& memory, const float* from, std::int64_t depth, std::int64_t cols) {
  if constexpr (std::is_same_v<Element, float>) {
    static_cast<void>(memory);
    static_cast<void>(depth);
    return stored_operand{from, cols};
  } else {
    Element* packed = memory.take<Element>(packed_size<Element>(depth, cols)).data();
    pack_rows([&](std::int64_t k) { return from + k * cols; }, depth, cols, 0, panel_count(cols), packed);
    return packed_operand<Element>{packed, depth};
  }
}

// Brings the singular values of x[rows, cols], rows `stride` apart, to 1; its columns are padded with zeros to whole
// panels. `other` is as large. Returns the one of both that holds the result.
template <class Element>
float* make_orthogonal(arena& memory, float* x, float* other, std::int64_t rows, std::int64_t cols,
                       std::int64_t stride) {
  float* gram = memory.take<float>(cols * stride).data();
  float* factor = memory.take<float>(cols * stride).data();
  float of_gram = 1;
  float of_x = 1;
  for (const odd_quintic& step : orthogonal_steps) {
    multiply(columns_of<Element>(memory, x, stride, cols, rows), right_of<Element>(memory, x, rows, stride), cols, rows,
             stride, affine{.to = gram, .stride = stride});
    if (&step == &orthogonal_steps[0]) {
      // Its norm is at least the square of the greatest singular value, up to the rounding of bf16: a value above 1,
      // which the first step is steep at, would grow.
      constexpr float margin = word_depth<Element> > 1 ? 1.02F : 1.0F;
      const float norm = margin * std::sqrt(dot(gram, gram, cols * stride));
      of_gram = 1 / norm;
      of_x = 1 / std::sqrt(norm);
    }
    scale(gram, static_cast<float>(step.x3) * of_gram, cols * stride, factor);
    multiply(rows_of<Element>(memory, gram, stride, cols, cols), right_of<Element>(memory, gram, cols, stride), cols,
             cols, stride, affine{factor, stride, static_cast<float>(step.x5) * of_gram * of_gram, factor, stride});
    scale(x, static_cast<float>(step.x) * of_x, rows * stride, other);
    multiply(rows_of<Element>(memory, x, stride, rows, cols), right_of<Element>(memory, factor, cols, stride), rows,
             cols, stride, affine{other, stride, of_x, other, stride});
    std::swap(x, other);
    of_gram = 1;
    of_x = 1;
  }
  return x;
}

}  // namespace detail

/// One update of weight and momentum of the matrices, which ascend; their gradients become 0: see the reference. With a
/// learning rate of 0 the weights keep their bits, whatever the decay.
template <class Element>
void muon(context& c, const muon_step& numbers, std::span<const matrix_range> matrices, std::span<float> gradient,
          std::span<float> weight, std::span<float> momentum) {
  reference_ops::detail::check_muon(matrices, gradient, weight, momentum);
  const auto rate = static_cast<float>(numbers.learning_rate);
  const auto decay = static_cast<float>(numbers.weight_decay);
  c.for_each(static_cast<std::int64_t>(matrices.size()), [&](std::int64_t task) {
    const matrix_range& m = matrices[task];
    const arena_loan memory = c.lend();
    const std::int64_t size = m.rows * m.cols;
    float* ahead = memory->take<float>(size).data();
    const float greatest =
        detail::look_ahead(numbers, size, gradient.data() + m.first, momentum.data() + m.first, ahead);
    if (rate == 0) return;
    float* w = weight.data() + m.first;
    if (greatest == 0) {
      for_vectors(size, [&](auto get, auto put) { put(w, get(w) - rate * (decay * get(w))); });
      return;
    }
    // So that no square overflows or vanishes.
    for_vectors(size, [&](auto get, auto put) { put(ahead, get(ahead) / greatest); });
    const bool wide = m.rows < m.cols;
    const std::int64_t rows = (std::max)(m.rows, m.cols);
    const std::int64_t cols = (std::min)(m.rows, m.cols);
    const std::int64_t stride = (cols + panel_width - 1) / panel_width * panel_width;
    const std::span<float> x = memory->take<float>(rows * stride);
    float* other = memory->take<float>(rows * stride).data();
    if (stride > cols) std::fill(x.begin(), x.end(), 0.0F);
    if (wide) {
      detail::transpose_matrix(ahead, m.cols, m.rows, m.cols, x.data(), stride);
    } else {
      for (std::int64_t i = 0; i < rows; ++i) std::copy_n(ahead + i * cols, cols, x.data() + i * stride);
    }
    const float* direction = detail::make_orthogonal<Element>(*memory, x.data(), other, rows, cols, stride);
    std::int64_t direction_stride = stride;
    if (wide) {
      detail::transpose_matrix(direction, stride, rows, cols, ahead, m.cols);
      direction = ahead;
      direction_stride = m.cols;
    }
    const auto scale = static_cast<float>(muon_scale(m));
    for (std::int64_t i = 0; i < m.rows; ++i) {
      const float* by = direction + i * direction_stride;
      float* row = w + i * m.cols;
      for_vectors(m.cols, [&](auto get, auto put) {
        const floats old = get(row);
        put(row, old - rate * (scale * get(by) + decay * old));
      });
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
