// What stands for a chunk of tokens? A latent, made of those that its last token sees.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// Latents of one task.
[[nodiscard]] inline std::int64_t task_latents(std::int64_t factor, std::int64_t width) noexcept {
  return (std::max)(policy::row_elements / (factor * width), std::int64_t{1});
}

// Latents of one task with sums of its own, of `latents` in all.
[[nodiscard]] inline std::int64_t summing_latents(std::int64_t factor, std::int64_t width,
                                                  std::int64_t latents) noexcept {
  return (std::max)(task_latents(factor, width), (latents + policy::most_sums - 1) / policy::most_sums);
}

// shares[count]: the softmax of the rows' products with u. They are `width` floats apart.
inline void softmax_shares(const float* x, std::int64_t count, std::int64_t width, const float* u,
                           float* shares) noexcept {
  for (std::int64_t i = 0; i < count; ++i) shares[i] = dot(u, x + i * width, width);
  const float top = greatest(shares, count);
  for_vectors(count, [&](auto get, auto put) { put(shares, exp(get(shares) - top)); });
  const float inverse = 1.0F / sum(shares, count);
  for_vectors(count, [&](auto get, auto put) { put(shares, get(shares) * inverse); });
}

// z = the sum of weigh(get, row) over rows [0, count).
template <class Weigh>
[[gnu::always_inline]] inline void mix_rows(std::int64_t count, std::int64_t width, Weigh weigh, float* z) noexcept {
  for_vectors(width, [&](auto get, auto put) {
    floats sum = weigh(get, std::int64_t{0});
    for (std::int64_t i = 1; i < count; ++i) sum += weigh(get, i);
    put(z, sum);
  });
}

// The gradients of one latent of a softmax: dx += of its rows [count, width], and du +=.
inline void pull_softmax(const float* x, std::int64_t count, std::int64_t width, const float* u, const float* dz,
                         float* shares, float* pulls, float* dx, float* du) noexcept {
  softmax_shares(x, count, width, u, shares);
  float mean = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    pulls[i] = dot(dz, x + i * width, width);
    mean += shares[i] * pulls[i];
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float share = shares[i];
    const float dscore = share * (pulls[i] - mean);
    const float* from = x + i * width;
    float* to = dx + i * width;
    for_vectors(width, [&](auto get, auto put) {
      put(to, get(to) + share * get(dz) + dscore * get(u));
      put(du, get(du) + dscore * get(from));
    });
  }
}

}  // namespace detail

/// z[S * (length / c), H] from x[S * length, H]: a latent for every whole chunk of c = factor rows of a sequence. A row
/// enters it if the chunk's last row sees it: its number is first[last] or greater (an empty `first`: all enter);
/// others are never read. mean: the mean of the rows that enter, w is empty; conv: their sum, each times its row of
/// w[c,H]; softmax: their mean weighted by the softmax of their products with w[1,H]. Throws as attention does.
template <ShapeOf<pool_shape> Shape>
void pool(context& c, Shape shape, matrix_view<const float> x, matrix_view<const float> w,
          std::span<const std::int32_t> first, std::int64_t length, matrix_view<float> z) {
  const pool_shape s = shape;
  const std::int64_t width = s.width;
  reference_ops::detail::check_pool<float>("pool", s, x, w, first, length, z);
  c.for_chunks(z.rows, detail::task_latents(s.factor, width), [&](std::int64_t begin, std::int64_t end) {
    const arena_loan memory = c.lend();
    const std::span<float> shares = memory->take<float>(s.factor);
    for (std::int64_t j = begin; j < end; ++j) {
      const reference_ops::detail::latent_rows rows = reference_ops::detail::rows_of_latent(j, s.factor, length, first);
      const std::int64_t count = rows.end - rows.begin;
      const float* from = x.data + rows.begin * width;
      float* to = z.data + j * width;
      switch (s.encoder) {
        case encoder_kind::conv: {
          const float* weights = w.data + (rows.begin - rows.chunk) * width;
          detail::mix_rows(
              count, width, [&](auto get, std::int64_t i) { return get(weights + i * width) * get(from + i * width); },
              to);
          break;
        }
        case encoder_kind::softmax:
          detail::softmax_shares(from, count, width, w.data, shares.data());
          detail::mix_rows(
              count, width, [&](auto get, std::int64_t i) { return shares[i] * get(from + i * width); }, to);
          break;
        default: {
          const float share = 1.0F / static_cast<float>(count);
          detail::mix_rows(count, width, [&](auto get, std::int64_t i) { return share * get(from + i * width); }, to);
        }
      }
    }
  });
}

/// dx[S * length, H] += and dw += (of w's shape) from dz. The shares of a softmax are computed again. The weights'
/// gradients are summed by task, then over the tasks in order.
template <ShapeOf<pool_shape> Shape>
void pool_backward(context& c, Shape shape, matrix_view<const float> x, matrix_view<const float> w,
                   std::span<const std::int32_t> first, std::int64_t length, matrix_view<const float> dz,
                   matrix_view<float> dx, matrix_view<float> dw) {
  const pool_shape s = shape;
  const std::int64_t width = s.width;
  reference_ops::detail::check_pool<float>("pool_backward", s, x, w, first, length, dz);
  check_shape("pool_backward", "dx", dx, x.rows, width);
  check_shape("pool_backward", "dw", dw, w.rows, w.rows == 0 ? dw.cols : w.cols);
  const std::int64_t latents = detail::summing_latents(s.factor, width, dz.rows);
  const std::int64_t tasks = (dz.rows + latents - 1) / latents;
  const std::int64_t size = w.size();
  const std::span<float> partial = c.shared().take<float>(tasks * size);
  c.for_chunks(dz.rows, latents, [&](std::int64_t begin, std::int64_t end) {
    float* sums = partial.data() + begin / latents * size;
    std::fill_n(sums, size, 0.0F);
    const arena_loan memory = c.lend();
    const std::span<float> shares = memory->take<float>(s.factor);
    const std::span<float> pulls = memory->take<float>(s.factor);
    for (std::int64_t j = begin; j < end; ++j) {
      const reference_ops::detail::latent_rows rows = reference_ops::detail::rows_of_latent(j, s.factor, length, first);
      const std::int64_t count = rows.end - rows.begin;
      const float* pull = dz.data + j * width;
      const float* from = x.data + rows.begin * width;
      float* to = dx.data + rows.begin * width;
      switch (s.encoder) {
        case encoder_kind::conv: {
          const std::int64_t at = (rows.begin - rows.chunk) * width;
          for (std::int64_t i = 0; i < count * width; i += width) {
            for_vectors(width, [&](auto get, auto put) {
              const floats gradient = get(pull);
              put(to + i, get(to + i) + get(w.data + at + i) * gradient);
              put(sums + at + i, get(sums + at + i) + get(from + i) * gradient);
            });
          }
          break;
        }
        case encoder_kind::softmax:
          detail::pull_softmax(from, count, width, w.data, pull, shares.data(), pulls.data(), to, sums);
          break;
        default: {
          const float share = 1.0F / static_cast<float>(count);
          for (std::int64_t i = 0; i < count * width; i += width) {
            for_vectors(width, [&](auto get, auto put) { put(to + i, get(to + i) + share * get(pull)); });
          }
        }
      }
    }
  });
  detail::add_sums(partial.data(), tasks, size, size, dw.data);
}

}  // namespace smelt::cpu_ops::SMELT_SET
