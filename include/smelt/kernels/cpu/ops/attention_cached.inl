// What do the tokens that go on with a sequence read from it? A softmax-weighted mean of the values kept so far.
//
// Many queries stand in panels as those of a whole sequence do. A few would leave most lanes of a panel empty: they
// walk the keys one head after the other, and all heads that share them while a run of them is in the first-level
// cache.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// Lane i is the sum of all lanes of vector i.
template <int Half = lanes / 2>
[[gnu::always_inline]] inline floats sum_each(floats (&square)[lanes]) noexcept {
#pragma GCC unroll 16
  for (int i = 0; i < Half; ++i) {
    exchange<Half>(square[i], square[i + Half], std::make_integer_sequence<int, lanes>());
    square[i] += square[i + Half];
  }
  if constexpr (Half > 1) return sum_each<Half / 2>(square);
  return square[0];
}

// Query rows of a token against the keys and values [count, d] of a KV head, `stride` floats apart.
struct seen_keys {
  const float* keys;
  const float* values;
  std::int64_t stride;
  std::int64_t count;
  std::int64_t d;
};

// Floats of a row of scores, whole vectors.
[[nodiscard]] inline std::int64_t score_stride(std::int64_t keys) noexcept {
  return (keys + lanes - 1) / lanes * lanes;
}

// scores[heads, count] of the query rows q[heads, d], times `scale`. What stands behind a row is overwritten.
inline void score_keys(const seen_keys& seen, const float* q, std::int64_t heads, float scale, float* scores) noexcept {
  const std::int64_t d = seen.d;
  for (std::int64_t first = 0; first < seen.count; first += lanes) {
    const float* key[lanes];
    for (std::int64_t i = 0; i < lanes; ++i) {
      key[i] = seen.keys + (std::min)(first + i, seen.count - 1) * seen.stride;
    }
    for (std::int64_t h = 0; h < heads; ++h) {
      floats products[lanes] = {};
      for_vectors(d, [&](auto get, auto) {
        const floats query = get(q + h * d);
#pragma GCC unroll 16
        for (std::int64_t i = 0; i < lanes; ++i) products[i] += query * get(key[i]);
      });
      store(scores + h * score_stride(seen.count) + first, sum_each(products) * scale);
    }
  }
}

// Scores of one head, logarithms to the base 2, become weights; returns their sum.
inline float weigh_keys(std::int64_t count, float* scores) noexcept {
  const floats top = broadcast(greatest(scores, count));
  for_vectors(count, [&](auto get, auto put) { put(scores, exp2(get(scores) - top)); });
  return sum(scores, count);
}

// out[Heads, d] = the sums of the values, weighted by [Heads, count], times factors. Keys take turns in two sums, so
// that one need not wait for the other.
template <int Heads>
void mix_values(const seen_keys& seen, const float* weights, const float* factors, float* out) noexcept {
  const std::int64_t row = score_stride(seen.count);
  for_vectors(seen.d, [&](auto get, auto put) {
    floats even[Heads] = {};
    floats odd[Heads] = {};
    std::int64_t j = 0;
    for (; j + 2 <= seen.count; j += 2) {
      const floats value = get(seen.values + j * seen.stride);
      const floats next = get(seen.values + (j + 1) * seen.stride);
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) {
        even[h] += value * weights[h * row + j];
        odd[h] += next * weights[h * row + j + 1];
      }
    }
    if (j < seen.count) {
      const floats value = get(seen.values + j * seen.stride);
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) even[h] += value * weights[h * row + j];
    }
#pragma GCC unroll 4
    for (int h = 0; h < Heads; ++h) put(out + h * seen.d, (even[h] + odd[h]) * factors[h]);
  });
}

// One token and one KV head: out[heads, d] for q[heads, d], the heads that share it.
inline void attend_few(arena& memory, const seen_keys& seen, const float* q, std::int64_t heads, float scale,
                       float* out) {
  const std::int64_t row = score_stride(seen.count);
  const std::span<float> scores = memory.take<float>(heads * row);
  const std::span<float> factors = memory.take<float>(heads);
  score_keys(seen, q, heads, scale, scores.data());
  for (std::int64_t h = 0; h < heads; ++h) factors[h] = 1.0F / weigh_keys(seen.count, scores.data() + h * row);
  for (std::int64_t h = 0; h < heads;) {
    const auto mix = [&]<int Heads>(std::integral_constant<int, Heads>) {
      mix_values<Heads>(seen, scores.data() + h * row, factors.data() + h, out + h * seen.d);
      h += Heads;
    };
    if (heads - h >= 4) {
      mix(std::integral_constant<int, 4>());
    } else if (heads - h >= 2) {
      mix(std::integral_constant<int, 2>());
    } else {
      mix(std::integral_constant<int, 1>());
    }
  }
}

}  // namespace detail

/// out[T, heads*d] for q[T, heads*d] against k and v [N, kv_heads*d], whose last T rows are the queries' own: query row
/// t attends to key rows up to N - T + t, to the last `window` of them where that is not 0; what other rows hold cannot
/// matter, not even a NaN. Throws mismatch or invalid_argument for arguments that do not fit.
template <class Element, ShapeOf<attention_shape> Shape>
void attention_cached(context& c, Shape shape, matrix_view<const float> q, matrix_view<const float> k,
                      matrix_view<const float> v, std::int64_t window, matrix_view<float> out) {
  const attention_shape s = shape;
  reference_ops::detail::check_attention_cached<float>(s, q, k, v, window, out);
  const std::int64_t d = s.head_dim;
  const std::int64_t heads = s.heads / s.kv_heads;
  const float scale = log2_e / std::sqrt(static_cast<float>(d));
  const auto first_key = [&](std::int64_t t) { return reference_ops::detail::first_cached(k.rows, q.rows, t, window); };

  if (2 * q.rows * heads <= panel_width) {
    // As many pairs of a token and a KV head in a task as read enough keys and values to be worth one.
    const std::int64_t pair = 2 * (k.rows - first_key(0)) * d;
    c.for_chunks(q.rows * s.kv_heads, (std::max)(policy::row_elements / pair, std::int64_t{1}),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t t = i / s.kv_heads;
                     const std::int64_t kv_head = i % s.kv_heads;
                     const std::int64_t first = first_key(t);
                     const std::int64_t at = first * k.cols + kv_head * d;
                     const std::int64_t of_head = t * q.cols + kv_head * heads * d;
                     const arena_loan memory = c.lend();
                     detail::attend_few(*memory, {k.data + at, v.data + at, k.cols, k.rows - q.rows + t + 1 - first, d},
                                        q.data + of_head, heads, scale, out.data + of_head);
                   }
                 });
    return;
  }

  arena& shared = c.shared();
  const std::span<std::int32_t> first = shared.take<std::int32_t>(q.rows);
  for (std::int64_t t = 0; t < q.rows; ++t) first[t] = static_cast<std::int32_t>(first_key(t));
  const std::span<float> lse = shared.take<float>(q.rows * s.heads);  // where masked values are not finite
  const detail::attention_tasks tasks(s, q.rows, q.rows);
  c.for_each(tasks.size(), [&](std::int64_t task) {
    detail::kv_group g = tasks.group(task);
    g.before = k.rows - q.rows;
    const arena_loan memory = c.lend();
    const auto keys = rows_of<Element>(*memory, k.data + g.kv_col, k.cols, k.rows, d);
    const detail::finite_values finite = detail::make_finite(*memory, v, 0, v.rows, g.kv_col, d);
    const auto values = columns_of<Element>(*memory, finite.data, finite.stride, d, v.rows);
    const detail::panel_memory<Element> of_panel = detail::take_panel<Element>(*memory, d);
    for (std::int64_t number = tasks.part(task); number < g.panels(); number += tasks.parts) {
      const detail::query_panel panel(g, number, first);
      detail::attend_panel<Element>(panel, q, keys, values, d, scale, of_panel, out);
      for (std::int64_t i = 0; i < panel.count; ++i) {
        if (!panel.sees_broken(i, finite)) continue;
        const std::int64_t token = panel.token[i];
        reference_ops::detail::attend_cached<float>(s, q, k, v, first[token], g.before, token, panel.head[i], out, lse);
      }
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
