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

// Brings near what a walk over rows comes to a little behind the `size` floats that it is at. A processor that sees a
// few rows read in turns does not foresee it.
inline void prefetch_ahead(const float* rows, std::int64_t size) noexcept {
  for (std::int64_t i = 0; i < size; i += 16) __builtin_prefetch(rows + policy::rows_ahead + i, 0, 3);
}

// Latents whose softmax is taken at once, a lane each, so that the latency of one's products hides that of the others'.
inline constexpr std::int64_t latents_together = lanes;

// What a softmax makes of latents [number, number + count), count <= latents_together: the scores of their rows, then
// the rows' shares, [factor, latents_together].
struct softmax_latents {
  reference_ops::detail::latent_rows rows[latents_together];
  float* shares;

  // Scores of the rows that enter with u; -infinity stands for the others.
  softmax_latents(std::int64_t number, std::int64_t count, std::int64_t factor, std::int64_t length,
                  std::span<const std::int32_t> first, matrix_view<const float> x, const float* u, float* memory)
      : shares(memory) {
    std::fill_n(shares, factor * latents_together, -std::numeric_limits<float>::infinity());
    for (std::int64_t j = 0; j < count; ++j) {
      rows[j] = reference_ops::detail::rows_of_latent(number + j, factor, length, first);
      for (std::int64_t t = rows[j].begin; t < rows[j].end; ++t) at(j, t) = dot(u, x.data + t * x.cols, x.cols);
    }
    floats top = load(shares);
    for (std::int64_t i = 1; i < factor; ++i) {
      const floats score = load(shares + i * latents_together);
      top = score > top ? score : top;
    }
    floats total = {};
    for (std::int64_t i = 0; i < factor; ++i) {
      float* share = shares + i * latents_together;
      const floats power = exp(load(share) - top);
      store(share, power);
      total += power;
    }
    for (std::int64_t i = 0; i < factor; ++i) {
      float* share = shares + i * latents_together;
      store(share, load(share) / total);
    }
  }

  // Of row t, which enters the j-th of the latents.
  [[nodiscard]] float& at(std::int64_t j, std::int64_t t) const noexcept {
    return shares[(t - rows[j].chunk) * latents_together + j];
  }
};

// Calls some(rows, first) for runs of 4 of `count` rows, then of 2 and of 1, with a number of rows that the compiler
// knows.
template <class Some>
[[gnu::always_inline]] inline void for_few(std::int64_t count, Some some) noexcept {
  std::int64_t first = 0;
  for (; first + 4 <= count; first += 4) some(std::integral_constant<int, 4>(), first);
  if (first + 2 <= count) {
    some(std::integral_constant<int, 2>(), first);
    first += 2;
  }
  if (first < count) some(std::integral_constant<int, 1>(), first);
}

// z = the sum of weigh(get, row) over rows [0, count).
template <class Weigh>
[[gnu::always_inline]] inline void mix_rows(std::int64_t count, std::int64_t width, Weigh weigh, float* z) noexcept {
  for_few(count, [&]<int Rows>(std::integral_constant<int, Rows>, std::int64_t first) {
    for_vectors(width, [&](auto get, auto put) {
      floats sum = first == 0 ? floats{} : get(z);
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) sum += weigh(get, first + i);
      put(z, sum);
    });
  });
}

// The gradients of one latent of a softmax: dx += of its rows [count, width], whose shares and gradients of scores are
// latents_together apart, and du +=.
inline void pull_softmax(const float* x, std::int64_t count, std::int64_t width, const float* u, const float* dz,
                         const float* shares, const float* dscores, float* dx, float* du) noexcept {
  prefetch_ahead(dx, count * width);
  for_few(count, [&]<int Rows>(std::integral_constant<int, Rows>, std::int64_t first) {
    float share[Rows];
    float dscore[Rows];
    for (int i = 0; i < Rows; ++i) {
      share[i] = shares[(first + i) * latents_together];
      dscore[i] = dscores[(first + i) * latents_together];
    }
    const float* from = x + first * width;
    float* to = dx + first * width;
    for_vectors(width, [&](auto get, auto put) {
      const floats pull = get(dz);
      const floats scorer = get(u);
      floats sum = get(du);
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) {
        put(to + i * width, get(to + i * width) + share[i] * pull + dscore[i] * scorer);
        sum += dscore[i] * get(from + i * width);
      }
      put(du, sum);
    });
  });
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
    if (s.encoder == encoder_kind::softmax) {
      constexpr std::int64_t together = detail::latents_together;
      const arena_loan memory = c.lend();
      const std::span<float> shares = memory->take<float>(s.factor * together);
      for (std::int64_t number = begin; number < end; number += together) {
        const std::int64_t count = (std::min)(together, end - number);
        const detail::softmax_latents latents(number, count, s.factor, length, first, x, w.data, shares.data());
        for (std::int64_t j = 0; j < count; ++j) {
          const std::int64_t t = latents.rows[j].begin;
          const float* share = &latents.at(j, t);
          detail::mix_rows(
              latents.rows[j].end - t, width,
              [&](auto get, std::int64_t i) { return share[i * together] * get(x.data + (t + i) * width); },
              z.data + (number + j) * width);
        }
      }
      return;
    }
    for (std::int64_t j = begin; j < end; ++j) {
      const reference_ops::detail::latent_rows rows = reference_ops::detail::rows_of_latent(j, s.factor, length, first);
      const std::int64_t count = rows.end - rows.begin;
      const float* from = x.data + rows.begin * width;
      float* to = z.data + j * width;
      detail::prefetch_ahead(from, count * width);
      if (s.encoder == encoder_kind::conv) {
        const float* weights = w.data + (rows.begin - rows.chunk) * width;
        detail::mix_rows(
            count, width, [&](auto get, std::int64_t i) { return get(weights + i * width) * get(from + i * width); },
            to);
      } else {
        const float share = 1.0F / static_cast<float>(count);
        detail::mix_rows(count, width, [&](auto get, std::int64_t i) { return share * get(from + i * width); }, to);
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
  const std::int64_t chunk = detail::summing_latents(s.factor, width, dz.rows);
  const std::int64_t tasks = (dz.rows + chunk - 1) / chunk;
  const std::int64_t size = w.size();
  const std::span<float> partial = c.shared().take<float>(tasks * size);
  c.for_chunks(dz.rows, chunk, [&](std::int64_t begin, std::int64_t end) {
    float* sums = partial.data() + begin / chunk * size;
    std::fill_n(sums, size, 0.0F);
    if (s.encoder == encoder_kind::softmax) {
      constexpr std::int64_t together = detail::latents_together;
      const arena_loan memory = c.lend();
      const std::span<float> shares = memory->take<float>(s.factor * together);
      const std::span<float> dscores = memory->take<float>(s.factor * together);
      for (std::int64_t number = begin; number < end; number += together) {
        const std::int64_t count = (std::min)(together, end - number);
        const detail::softmax_latents latents(number, count, s.factor, length, first, x, w.data, shares.data());
        // Gradients of the shares, then of the scores.
        std::fill_n(dscores.data(), s.factor * together, 0.0F);
        for (std::int64_t j = 0; j < count; ++j) {
          const float* pull = dz.data + (number + j) * width;
          for (std::int64_t t = latents.rows[j].begin; t < latents.rows[j].end; ++t)
            dscores[(t - latents.rows[j].chunk) * together + j] = dot(pull, x.data + t * width, width);
        }
        floats mean = {};
        for (std::int64_t i = 0; i < s.factor * together; i += together)
          mean += load(shares.data() + i) * load(dscores.data() + i);
        for (std::int64_t i = 0; i < s.factor * together; i += together)
          store(dscores.data() + i, load(shares.data() + i) * (load(dscores.data() + i) - mean));
        for (std::int64_t j = 0; j < count; ++j) {
          const reference_ops::detail::latent_rows rows = latents.rows[j];
          const std::int64_t at = (rows.begin - rows.chunk) * together + j;
          detail::pull_softmax(x.data + rows.begin * width, rows.end - rows.begin, width, w.data,
                               dz.data + (number + j) * width, shares.data() + at, dscores.data() + at,
                               dx.data + rows.begin * width, sums);
        }
      }
      return;
    }
    for (std::int64_t j = begin; j < end; ++j) {
      const reference_ops::detail::latent_rows rows = reference_ops::detail::rows_of_latent(j, s.factor, length, first);
      const std::int64_t count = rows.end - rows.begin;
      const float* pull = dz.data + j * width;
      const float* from = x.data + rows.begin * width;
      float* to = dx.data + rows.begin * width;
      if (s.encoder == encoder_kind::conv) {
        const std::int64_t at = (rows.begin - rows.chunk) * width;
        for (std::int64_t i = 0; i < count * width; i += width) {
          for_vectors(width, [&](auto get, auto put) {
            const floats gradient = get(pull);
            put(to + i, get(to + i) + get(w.data + at + i) * gradient);
            put(sums + at + i, get(sums + at + i) + get(from + i) * gradient);
          });
        }
      } else {
        const float share = 1.0F / static_cast<float>(count);
        for (std::int64_t i = 0; i < count * width; i += width) {
          for_vectors(width, [&](auto get, auto put) { put(to + i, get(to + i) + share * get(pull)); });
        }
      }
    }
  });
  detail::add_sums(partial.data(), tasks, size, size, dw.data);
}

}  // namespace smelt::cpu_ops::SMELT_SET
