// How is a row brought to unit size? Divided by its root mean square, times a gain.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// One row: y = x * inv_rms * gain. Returns inv_rms.
[[gnu::always_inline]] inline float norm_row(const float* x, const float* gain, std::int64_t width, float eps,
                                             float* y) noexcept {
  const float scale = 1.0F / std::sqrt(dot(x, x, width) / static_cast<float>(width) + eps);
  for_vectors(width, [&](auto get, auto put) { put(y, get(x) * scale * get(gain)); });
  return scale;
}

// One row's gradients: dgain += and, from dy, dx, to which `before` is added unless it is null. dx may be dy or before.
[[gnu::always_inline]] inline void norm_row_backward(const float* x, const float* gain, float inv_rms,
                                                     std::int64_t width, const float* dy, const float* before,
                                                     float* dx, float* dgain) noexcept {
  floats projections[2] = {};
  std::int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    for (std::int64_t j = 0; j < 2; ++j) {
      const std::int64_t at = i + j * lanes;
      projections[j] += load(gain + at) * load(dy + at) * load(x + at);
    }
  }
  for_vectors(width - i, [&](auto get, auto) { projections[0] += get(gain + i) * get(dy + i) * get(x + i); });
  const float projection = sum_lanes(projections[0] + projections[1]) * inv_rms * inv_rms / static_cast<float>(width);
  const auto pull_back = [&](auto get, auto put, auto base) {
    const floats pull = get(dy);
    const floats value = get(x);
    put(dgain, get(dgain) + pull * (value * inv_rms));
    put(dx, base(get) + inv_rms * (get(gain) * pull - value * projection));
  };
  if (before != nullptr) {
    for_vectors(width, [&](auto get, auto put) { pull_back(get, put, [&](auto from) { return from(before); }); });
  } else {
    for_vectors(width, [&](auto get, auto put) { pull_back(get, put, [](auto) { return floats{}; }); });
  }
}

// to[size] += the sums of `count` tasks, one after the other.
inline void add_sums(const float* sums, std::int64_t count, std::int64_t stride, std::int64_t size,
                     float* to) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const float* from = sums + i * stride;
    for_vectors(size, [&](auto get, auto put) { put(to, get(to) + get(from)); });
  }
}

}  // namespace detail

/// y[T,H] = x * inv_rms * gain[H], with inv_rms[T] saved for the backward pass.
template <ShapeOf<norm_shape> Shape>
void rms_norm(context& c, Shape shape, matrix_view<const float> x, std::span<const float> gain, matrix_view<float> y,
              std::span<float> inv_rms) {
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
      inv_rms[t] =
          detail::norm_row(x.data + t * width, gain.data(), width, static_cast<float>(s.eps), y.data + t * width);
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
      float* to = dx.data + t * width;
      detail::norm_row_backward(x.data + t * width, gain.data(), inv_rms[t], width, dy.data + t * width, to, to, sums);
    }
  });
  detail::add_sums(partial.data(), tasks, width, width, dgain.data());
}

}  // namespace smelt::cpu_ops::SMELT_SET
