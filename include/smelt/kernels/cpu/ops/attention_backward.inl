// How do gradients pass through attention? The weights are computed again, a panel of queries and a block of keys at a
// time: see attention.inl.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// One row of a panel of weights, as a row of a left operand whose depth are the queries: `words<Element>(panel_width)`
// words.
template <class Element>
[[gnu::always_inline]] inline void put_row(Element* to, std::int64_t row, floats low, floats high) noexcept {
#if SMELT_BF16
  if constexpr (std::is_same_v<Element, bf16>) {
    put_words(to, row * lanes, (floats)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
    return;
  }
#endif
  put_words(to, row * panel_width, low);
  put_words(to, row * panel_width + lanes, high);
}

// The memory of a block's weights and of their gradients: for floats they are where the scores are, and the gradients
// as rows are those as a right operand.
template <class Element>
struct block_gradients {
  float* scores;     // [keys, panel_width], then the weights
  float* dweights;   // [keys, panel_width], then the gradients of the scores
  Element* weights;  // rows of a left operand
  Element* dscores;  // rows of a left operand
  Element* right;    // the same as a right operand
};

template <class Element>
[[nodiscard]] block_gradients<Element> take_block(arena& memory) {
  constexpr std::int64_t size = policy::attention_keys * panel_width;
  float* scores = memory.take<float>(size).data();
  float* dweights = memory.take<float>(size).data();
  if constexpr (std::is_same_v<Element, float>) {
    return {scores, dweights, scores, dweights, dweights};
  } else {
    Element* weights = memory.take<Element>(size).data();
    Element* dscores = memory.take<Element>(size).data();
    return {scores, dweights, weights, dscores, memory.take<Element>(size).data()};
  }
}

// dout . out for one query, with dout rounded as the products round it, so that a query that sees one key gets no
// gradient from it.
template <class Element>
[[nodiscard]] float mean_pull(const float* dout, const float* out, std::int64_t d) noexcept {
  floats sums = {};
  for_vectors(d, [&](auto get, auto) {
    floats pull = get(dout);
    // A bf16 in the upper half of a word is the float of the same value.
    if constexpr (!std::is_same_v<Element, float>) pull = make_words<Element>(floats{}, pull);
    sums += pull * get(out);
  });
  return sum_lanes(sums);
}

// From scores and gradients of the weights to weights 2^(score - log_sum) and gradients of the scores,
// weight * (dweight - mean): zeros where a query does not see a key, whatever was computed there.
template <class Element>
void pull(const query_panel& panel, const key_block& block, const floats (&log_sum)[panel_vectors],
          const floats (&mean)[panel_vectors], const block_gradients<Element>& m) {
  constexpr std::int64_t step = word_depth<Element>;
  for_sights<Element>(panel, block, [&](std::int64_t begin, std::int64_t end, auto masked) {
    for (std::int64_t j = begin; j < end; j += step) {
      floats dscore[step][panel_vectors] = {};
      for (std::int64_t i = 0; i < step && j + i < end; ++i) {
        floats weight[panel_vectors];
        for (std::int64_t v = 0; v < panel_vectors; ++v) {
          const std::int64_t at = ((j + i) * panel_vectors + v) * lanes;
          weight[v] = exp2(load(m.scores + at) - log_sum[v]);
          dscore[i][v] = weight[v] * (load(m.dweights + at) - mean[v]);
          if constexpr (masked) {
            const ints seen = panel.sees(v, block.first + j + i);
            weight[v] = seen ? weight[v] : floats{};
            dscore[i][v] = seen ? dscore[i][v] : floats{};
          }
        }
        put_row(m.weights, j + i, weight[0], weight[1]);
        if constexpr (step == 2) put_row(m.dscores, j + i, dscore[i][0], dscore[i][1]);
      }
      for (std::int64_t v = 0; v < panel_vectors; ++v) {
        put_words(m.right, (j / step * panel_vectors + v) * lanes,
                  make_words<Element>(dscore[0][v], dscore[step - 1][v]));
      }
    }
  });
}

}  // namespace detail

/// dq, dk, dv (overwritten) from dout, with the forward pass's inputs, out and lse. The weights are computed again.
/// Parts of a group add to gradients of keys and values of their own, which are then summed in order.
template <class Element, ShapeOf<attention_shape> Shape>
void attention_backward(context& c, Shape shape, matrix_view<const float> q, matrix_view<const float> k,
                        matrix_view<const float> v, std::span<const std::int32_t> first, std::int64_t length,
                        matrix_view<const float> out, std::span<const float> lse, matrix_view<const float> dout,
                        matrix_view<float> dq, matrix_view<float> dk, matrix_view<float> dv) {
  const attention_shape s = shape;
  reference_ops::detail::check_attention<float>("attention_backward", s, q, k, v, first, length, out, lse);
  reference_ops::detail::check_attention_gradients<float>("attention_backward", s, q.rows, dout, dq, dk, dv);
  const std::int64_t d = s.head_dim;
  const detail::attention_tasks tasks(s, q.rows, length);
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  const std::span<float> partial = c.shared().take<float>((tasks.parts - 1) * 2 * dk.size());
  const auto part_of = [&](matrix_view<float> m, std::int64_t part, std::int64_t which) {
    return part == 0 ? m : matrix_view<float>(partial.data() + ((part - 1) * 2 + which) * m.size(), m.rows, m.cols);
  };
  c.for_each(tasks.size(), [&](std::int64_t task) {
    const detail::kv_group g = tasks.group(task);
    const std::int64_t offset = g.row * k.cols + g.kv_col;
    const matrix_view<float> dkeys = part_of(dk, tasks.part(task), 0);
    const matrix_view<float> dvalues = part_of(dv, tasks.part(task), 1);
    if (!detail::all_finite(k, g.row, length, g.kv_col, d) || !detail::all_finite(v, g.row, length, g.kv_col, d) ||
        !detail::all_finite(q, g.row, length, g.head * d, g.heads * d) ||
        !detail::all_finite(dout, g.row, length, g.head * d, g.heads * d)) {
      const auto clear = [&](matrix_view<float> m, std::int64_t col, std::int64_t cols) {
        for (std::int64_t t = g.row; t < g.row + length; ++t) std::fill_n(m.data + t * m.cols + col, cols, 0.0F);
      };
      clear(dkeys, g.kv_col, d);
      clear(dvalues, g.kv_col, d);
      if (tasks.part(task) > 0) return;
      clear(dq, g.head * d, g.heads * d);
      for (std::int64_t t = g.row; t < g.row + length; ++t) {
        for (std::int64_t h = g.head; h < g.head + g.heads; ++h) {
          reference_ops::detail::attend_backward<float>(s, q, k, v, first[t], t, h, out, lse, dout, dq, dkeys, dvalues);
        }
      }
      return;
    }
    const arena_loan memory = c.lend();
    const auto key_rows = rows_of<Element>(*memory, k.data + offset, k.cols, length, d);
    const auto value_rows = rows_of<Element>(*memory, v.data + offset, v.cols, length, d);
    const auto key_columns = columns_of<Element>(*memory, k.data + offset, k.cols, d, length);
    const auto take_packed = [&](std::int64_t depth, std::int64_t cols) {
      return memory->take<Element>(packed_size<Element>(depth, cols)).data();
    };
    Element* query_columns = take_packed(d, panel_width);
    Element* dout_columns = take_packed(d, panel_width);
    Element* query_rows = take_packed(panel_width, d);
    Element* dout_rows = take_packed(panel_width, d);
    const detail::block_gradients<Element> m = detail::take_block<Element>(*memory);
    const std::span<float> sums = memory->take<float>(d * panel_width);
    const std::span<float> zeros = memory->take<float>(d);
    std::fill(zeros.begin(), zeros.end(), 0.0F);
    const std::int64_t row_words = words<Element>(panel_width);
    // Gradients of keys and values in rows of whole vectors, which are added to faster.
    const std::int64_t padded = (d + lanes - 1) / lanes * lanes;
    const std::span<float> key_sums = memory->take<float>(length * padded);
    const std::span<float> value_sums = memory->take<float>(length * padded);
    std::fill(key_sums.begin(), key_sums.end(), 0.0F);
    std::fill(value_sums.begin(), value_sums.end(), 0.0F);
    for (std::int64_t number = tasks.part(task); number < g.panels(); number += tasks.parts) {
      const detail::query_panel panel(g, number, first);
      detail::pack_queries(panel, q, d, scale * log2_e, query_columns);
      detail::pack_queries(panel, dout, d, 1.0F, dout_columns);
      detail::pack_query_rows(panel, q, d, zeros.data(), query_rows);
      detail::pack_query_rows(panel, dout, d, zeros.data(), dout_rows);
      // The softmax's pull on every score: the sum of weight * dweight, which equals dout . out.
      float means[panel_width] = {};
      float log_sums[panel_width] = {};
      for (std::int64_t i = 0; i < panel.count; ++i) {
        const std::int64_t at = panel.place(i, out.cols, d);
        means[i] = detail::mean_pull<Element>(dout.data + at, out.data + at, d);
        log_sums[i] = lse[panel.token[i] * s.heads + panel.head[i]] * log2_e;
      }
      const floats mean[] = {load(means), load(means + lanes)};
      const floats log_sum[] = {load(log_sums), load(log_sums + lanes)};
      detail::for_key_blocks<Element>(panel, [&](const detail::key_block& block) {
        float* key_sum = key_sums.data() + block.first * padded;
        float* value_sum = value_sums.data() + block.first * padded;
        multiply(detail::from_row(key_rows, block.first), packed_operand<Element>{query_columns, d}, block.count, d,
                 panel_width, overwrite(m.scores, panel_width));
        multiply(detail::from_row(value_rows, block.first), packed_operand<Element>{dout_columns, d}, block.count, d,
                 panel_width, overwrite(m.dweights, panel_width));
        detail::pull(panel, block, log_sum, mean, m);
        multiply(row_operand<Element>{m.weights, row_words}, packed_operand<Element>{dout_rows, panel_width},
                 block.count, panel_width, padded, accumulate(value_sum, padded));
        multiply(row_operand<Element>{m.dscores, row_words}, packed_operand<Element>{query_rows, panel_width},
                 block.count, panel_width, padded, accumulate(key_sum, padded));
        multiply(detail::from_depth(key_columns, block.first), packed_operand<Element>{m.right, block.count}, d,
                 block.count, panel_width,
                 block.first > panel.low ? accumulate(sums.data(), panel_width) : overwrite(sums.data(), panel_width));
      });
      const floats factor[] = {broadcast(scale), broadcast(scale)};
      detail::scatter_columns(panel, sums.data(), d, factor, dq);
    }
    for (std::int64_t t = 0; t < length; ++t) {
      const auto write = [&](const float* from, float factor, matrix_view<float> gradient) {
        float* to = gradient.data + (g.row + t) * gradient.cols + g.kv_col;
        for_vectors(d, [&](auto get, auto put) { put(to, get(from) * factor); });
      };
      write(key_sums.data() + t * padded, scale, dkeys);
      write(value_sums.data() + t * padded, 1.0F, dvalues);
    }
  });
  if (tasks.parts == 1) return;
  const std::int64_t chunk = (std::max)(policy::row_elements / dk.cols, std::int64_t{1});
  c.for_chunks(dk.rows, chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = 1; part < tasks.parts; ++part) {
      const auto add = [&](matrix_view<float> m, std::int64_t which) {
        const float* from = part_of(m, part, which).data + begin * m.cols;
        float* to = m.data + begin * m.cols;
        for_vectors((end - begin) * m.cols, [&](auto get, auto put) { put(to, get(to) + get(from)); });
      };
      add(dk, 0);
      add(dv, 1);
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
