// How is a row brought to unit size? Divided by its root mean square, times a gain.

namespace smelt::cpu_ops::SMELT_SET {

/// y[T,H] = x * inv_rms * gain[H], with inv_rms[T] saved for the backward pass.
template <ShapeOf<norm_shape> Shape>
void rms_norm(context& c, Shape shape, matrix_view<const float> x, std::span<const float> gain,
              matrix_view<float> y, std::span<float> inv_rms) {
  const norm_shape s = shape;
  const std::int64_t width = s.width;
  check_at_least("rms_norm", "width", width, 1);
  check_shape("rms_norm", "x", x, x.rows, width);
  check_size("rms_norm", "gain", gain, width);
  check_shape("rms_norm", "y", y, x.rows, width);
  check_size("rms_norm", "inv_rms", inv_rms, x.rows);
  const std::int64_t rows = (std::max)(policy::row_elements / width, std::int64_t{1});
  c.for_chunks(x.rows, rows, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      const float* from = x.data + t * width;
      float* to = y.data + t * width;
      const float squares = dot(from, from, width);
      const float scale = 1.0F / std::sqrt(squares / static_cast<float>(width) + static_cast<float>(s.eps));
      inv_rms[t] = scale;
      for_vectors(width, [&](auto get, auto put) { put(to, get(from) * scale * get(gain.data())); });
    }
  });
}

/// dx[T,H] += and dgain[H] += from dy[T,H]. The gain's gradient is summed by task, then over the tasks in order.
template <ShapeOf<norm_shape> Shape>
void rms_norm_backward(context& c, Shape shape, matrix_view<const float> x, std::span<const float> gain,
                       std::span<const float> inv_rms, matrix_view<const float> dy, matrix_view<float> dx,
                       std::span<float> dgain) {
  const norm_shape s = shape;
  const std::int64_t width = s.width;
  check_at_least("rms_norm_backward", "width", width, 1);
  check_shape("rms_norm_backward", "x", x, x.rows, width);
  check_size("rms_norm_backward", "gain", gain, width);
  check_size("rms_norm_backward", "inv_rms", inv_rms, x.rows);
  check_shape("rms_norm_backward", "dy", dy, x.rows, width);
  check_shape("rms_norm_backward", "dx", dx, x.rows, width);
  check_size("rms_norm_backward", "dgain", dgain, width);
  const std::int64_t rows = (std::max)(policy::row_elements / width, std::int64_t{1});
  const std::int64_t tasks = (x.rows + rows - 1) / rows;
  const std::span<float> partial = c.shared().take<float>(tasks * width);
  c.for_chunks(x.rows, rows, [&](std::int64_t first, std::int64_t last) {
    float* sums = partial.data() + first / rows * width;
    std::fill_n(sums, width, 0.0F);
    for (std::int64_t t = first; t < last; ++t) {
      const float* xs = x.data + t * width;
      const float* dys = dy.data + t * width;
      float* dxs = dx.data + t * width;
      const float scale = inv_rms[t];
      floats projections = {};
      for_vectors(width, [&](auto get, auto) { projections += get(gain.data()) * get(dys) * get(xs); });
      const float projection = sum_lanes(projections) * scale * scale / static_cast<float>(width);
      for_vectors(width, [&](auto get, auto put) {
        const floats pull = get(dys);
        const floats value = get(xs);
        put(sums, get(sums) + pull * (value * scale));
        put(dxs, get(dxs) + scale * (get(gain.data()) * pull - value * projection));
      });
    }
  });
  for (std::int64_t i = 0; i < tasks; ++i) {
    const float* sums = partial.data() + i * width;
    for_vectors(width, [&](auto get, auto put) { put(dgain.data(), get(dgain.data()) + get(sums)); });
  }
}

}  // namespace smelt::cpu_ops::SMELT_SET
