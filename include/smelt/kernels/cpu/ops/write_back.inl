// What does a token receive of what was done to a latent? The latent's increment, times a coefficient.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// The coefficients that are vectors, [c, H]; null where they are numbers.
[[nodiscard]] inline const float* coefficient_rows(arena& memory, const write_back_shape& s,
                                                   matrix_view<const float> w) {
  if (s.writeback == writeback_kind::scaled) return w.data;
  if (s.writeback != writeback_kind::normalised) return nullptr;
  constexpr auto eps = static_cast<float>(reference_ops::normalised_eps);
  float* rows = memory.take<float>(w.size()).data();
  for (std::int64_t i = 0; i < w.size(); i += w.cols) {
    const float* from = w.data + i;
    const float scale = 1.0F / std::sqrt(dot(from, from, w.cols) / static_cast<float>(w.cols) + eps);
    for_vectors(w.cols, [&](auto get, auto put) { put(rows + i, get(from) * scale); });
  }
  return rows;
}

// What a coefficient is: 1, a number of its own, or a row of its own.
enum class coefficient { one, number, row };

// The gradients of `receivers` rows that follow each other: dd = (or += unless it is `fresh`) the sum of coefficient *
// pull, and the sums of the coefficients' gradients += increment * pull.
template <coefficient Kind>
void pull_receivers(std::int64_t receivers, const float* pull, std::int64_t width, const float* increment,
                    const float* coefficients, bool fresh, float* dd, float* sums) noexcept {
  prefetch_ahead(pull, receivers * width);
  for_few(receivers, [&]<int Rows>(std::integral_constant<int, Rows>, std::int64_t first) {
    const float* from = pull + first * width;
    const float* rows = coefficients + (Kind == coefficient::row ? first * width : std::int64_t{0});
    float* row_sums = sums + (Kind == coefficient::row ? first * width : std::int64_t{0});
    float numbers[Rows] = {};
    floats products[Rows] = {};
    for (int i = 0; Kind == coefficient::number && i < Rows; ++i) numbers[i] = coefficients[first + i];
    for_vectors(width, [&](auto get, auto put) {
      floats total = fresh && first == 0 ? floats{} : get(dd);
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) {
        const floats gradient = get(from + i * width);
        if constexpr (Kind == coefficient::row) {
          total += get(rows + i * width) * gradient;
          put(row_sums + i * width, get(row_sums + i * width) + get(increment) * gradient);
        } else if constexpr (Kind == coefficient::number) {
          total += numbers[i] * gradient;
          products[i] += get(increment) * gradient;
        } else {
          total += gradient;
        }
      }
      put(dd, total);
    });
    for (int i = 0; Kind == coefficient::number && i < Rows; ++i) sums[first + i] += sum_lanes(products[i]);
  });
}

}  // namespace detail

/// out[S * length, H] = h plus what the rows receive; `out` may be h. Counted from 0 in its sequence, row
/// c (j + 1) - 1 + i (0 <= i < c = factor) receives d[j], which stands for rows cj to c (j + 1) - 1, times coefficient
/// i, unless it does not see the last of these, because first[row] lies behind it (an empty `first`: it does). direct:
/// the coefficient is 1 and w empty; scaled: w[i] of w[c,H]; scalar: w[i] of w[1,c]; normalised: w[i] of w[c,H] divided
/// by sqrt(mean(w[i]^2) + 1e-12). The first row of each sequence has position `begin` in the whole sequence, from whose
/// start d[S * ((begin + length) / c), H] counts. Throws as attention does, and for a `first` where begin > 0.
template <ShapeOf<write_back_shape> Shape>
void write_back(context& c, Shape shape, matrix_view<const float> h, matrix_view<const float> d,
                matrix_view<const float> w, std::span<const std::int32_t> first, std::int64_t begin,
                std::int64_t length, matrix_view<float> out) {
  const write_back_shape s = shape;
  const std::int64_t width = s.width;
  reference_ops::detail::check_write_back<float>("write_back", s, h, "h", d, w, first, begin, length);
  check_shape("write_back", "out", out, h.rows, width);
  const float* rows = detail::coefficient_rows(c.shared(), s, w);
  c.for_chunks(
      h.rows, (std::max)(policy::row_elements / width, std::int64_t{1}),
      [&](std::int64_t chunk_first, std::int64_t chunk_last) {
        for (std::int64_t t = chunk_first; t < chunk_last; ++t) {
          const float* before = h.data + t * width;
          float* to = out.data + t * width;
          const auto received = reference_ops::detail::received_by(t, s.factor, begin, length, first);
          if (!received) {
            if (to != before) std::copy_n(before, width, to);
            continue;
          }
          const float* increment = d.data + received->latent * width;
          if (rows != nullptr) {
            const float* coefficient = rows + received->receiver * width;
            for_vectors(width, [&](auto get, auto put) { put(to, get(before) + get(coefficient) * get(increment)); });
          } else {
            const float coefficient = s.writeback == writeback_kind::scalar ? w.data[received->receiver] : 1.0F;
            for_vectors(width, [&](auto get, auto put) { put(to, get(before) + coefficient * get(increment)); });
          }
        }
      });
}

/// dd (overwritten) and dw += (of w's shape) from dout[S * length, H], for begin = 0. The gradient of h is dout. The
/// weights' gradients are summed by task, then over the tasks in order.
template <ShapeOf<write_back_shape> Shape>
void write_back_backward(context& c, Shape shape, matrix_view<const float> d, matrix_view<const float> w,
                         std::span<const std::int32_t> first, std::int64_t length, matrix_view<const float> dout,
                         matrix_view<float> dd, matrix_view<float> dw) {
  const write_back_shape s = shape;
  const std::int64_t width = s.width;
  const std::int64_t factor = s.factor;
  reference_ops::detail::check_write_back<float>("write_back_backward", s, dout, "dout", d, w, first, 0, length);
  check_shape("write_back_backward", "dd", dd, d.rows, width);
  check_shape("write_back_backward", "dw", dw, w.rows, w.rows == 0 ? dw.cols : w.cols);
  arena& shared = c.shared();
  const float* coefficients = detail::coefficient_rows(shared, s, w);
  const std::int64_t latents = detail::summing_latents(factor, width, d.rows);
  const std::int64_t tasks = (d.rows + latents - 1) / latents;
  const std::int64_t size = w.size();
  const std::span<float> partial = shared.take<float>(tasks * size);
  c.for_chunks(d.rows, latents, [&](std::int64_t begin, std::int64_t end) {
    float* sums = partial.data() + begin / latents * size;
    std::fill_n(sums, size, 0.0F);
    for (std::int64_t j = begin; j < end; ++j) {
      const std::int64_t last = reference_ops::detail::rows_of_latent(j, factor, length, {}).end - 1;
      const std::int64_t receivers = (std::min)(factor, length - last % length);
      const float* increment = d.data + j * width;
      float* to = dd.data + j * width;
      // Runs of rows that receive. The first of all is the chunk's own last row, which always does.
      const auto receives = [&](std::int64_t i) { return first.empty() || first[last + i] <= last; };
      for (std::int64_t i = 0; i < receivers; ++i) {
        if (!receives(i)) continue;
        const std::int64_t run = i;
        while (i + 1 < receivers && receives(i + 1)) ++i;
        const float* pull = dout.data + (last + run) * width;
        using detail::coefficient;
        if (coefficients != nullptr) {
          detail::pull_receivers<coefficient::row>(i + 1 - run, pull, width, increment, coefficients + run * width,
                                                   run == 0, to, sums + run * width);
        } else if (s.writeback == writeback_kind::scalar) {
          detail::pull_receivers<coefficient::number>(i + 1 - run, pull, width, increment, w.data + run, run == 0, to,
                                                      sums + run);
        } else {
          detail::pull_receivers<coefficient::one>(i + 1 - run, pull, width, increment, nullptr, run == 0, to, nullptr);
        }
      }
    }
  });
  if (s.writeback != writeback_kind::normalised) {
    detail::add_sums(partial.data(), tasks, size, size, dw.data);
    return;
  }
  // n = w / rms: dw = (dn - n mean(dn n)) / rms.
  float* gradient = shared.take<float>(size).data();
  std::fill_n(gradient, size, 0.0F);
  detail::add_sums(partial.data(), tasks, size, size, gradient);
  constexpr auto eps = static_cast<float>(reference_ops::normalised_eps);
  for (std::int64_t i = 0; i < size; i += width) {
    const float* from = w.data + i;
    const float scale = 1.0F / std::sqrt(dot(from, from, width) / static_cast<float>(width) + eps);
    const float projection = dot(gradient + i, coefficients + i, width) / static_cast<float>(width);
    for_vectors(width, [&](auto get, auto put) {
      put(dw.data + i, get(dw.data + i) + scale * (get(gradient + i) - get(coefficients + i) * projection));
    });
  }
}

}  // namespace smelt::cpu_ops::SMELT_SET
