// What does a token read from the tokens before it? A softmax-weighted mean of their values.
//
// A task is one sequence and one KV head. The queries of all heads that share it stand side by side in panels: lanes
// are queries, and scores, masks and softmax go down the keys without crossing lanes. Keys come in blocks whose scores
// stay in the first-level cache; those that no query of the panel sees are skipped. With K, V [keys, d] and the panel's
// Q, dO [queries, d] the products are
//   S = K Q^T, O^T += V^T P;   dP = V dO^T, dV += P dO, dK += dS Q, dQ^T += K^T dS   (S, P, dP, dS [keys, queries])
// so that keys and values are read where they lie and only the panel is packed.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// Lanes of two vectors, the greater of each; the second where one is a NaN.
[[nodiscard]] inline floats greater(floats a, floats b) noexcept {
#if SMELT_VECTOR_BYTES == 64
  return (floats)_mm512_maskz_max_ps(0xFFFF, (__m512)a, (__m512)b);
#else
  return a > b ? a : b;
#endif
}

// What a panel has read so far: for every query the greatest score (in powers of 2) and the sum of its weights.
struct running_softmax {
  floats top[panel_vectors];
  floats sum[panel_vectors] = {};
};

// Scores [keys, panel_width] of a block become weights 2^(score - top): the right operand of their product with the
// values. Where an earlier block was summed under another greatest score, its sums [d, panel_width] of values are
// scaled. There is room behind the scores for whole words of keys.
template <class Element>
void weigh(const query_panel& panel, const key_block& block, std::int64_t d, float* scores, Element* weights,
           float* values, running_softmax& state) {
  constexpr std::int64_t step = word_depth<Element>;
  constexpr float hidden = -std::numeric_limits<float>::infinity();
  for_sights<Element>(panel, block, [&](std::int64_t begin, std::int64_t end, auto masked) {
    if constexpr (masked) {
      for (std::int64_t j = begin; j < end; ++j) {
        for (std::int64_t v = 0; v < panel_vectors; ++v) {
          float* at = scores + j * panel_width + v * lanes;
          store(at, panel.sees(v, block.first + j) ? load(at) : broadcast(hidden));
        }
      }
    }
  });
  const std::int64_t keys = (block.count + 1) / 2 * 2;
  if (block.count < keys) std::fill_n(scores + block.count * panel_width, panel_width, hidden);
  floats even[panel_vectors] = {state.top[0], state.top[1]};
  floats odd[panel_vectors] = {state.top[0], state.top[1]};
  for (std::int64_t j = 0; j < keys; j += 2) {
    for (std::int64_t v = 0; v < panel_vectors; ++v) {
      const float* at = scores + j * panel_width + v * lanes;
      even[v] = greater(load(at), even[v]);
      odd[v] = greater(load(at + panel_width), odd[v]);
    }
  }
  const floats top[panel_vectors] = {greater(even[0], odd[0]), greater(even[1], odd[1])};
  if (block.first > panel.low) {
    const floats factor[panel_vectors] = {exp2(state.top[0] - top[0]), exp2(state.top[1] - top[1])};
    for (std::int64_t v = 0; v < panel_vectors; ++v) state.sum[v] *= factor[v];
    for (std::int64_t k = 0; k < d; ++k) {
      for (std::int64_t v = 0; v < panel_vectors; ++v) {
        float* at = values + k * panel_width + v * lanes;
        store(at, load(at) * factor[v]);
      }
    }
  }
  floats sum[panel_vectors] = {state.sum[0], state.sum[1]};
  for (std::int64_t j = 0; j < block.count; j += step) {
    for (std::int64_t v = 0; v < panel_vectors; ++v) {
      const float* at = scores + j * panel_width + v * lanes;
      const floats weight = exp2(load(at) - top[v]);
      const floats next = step == 2 ? exp2(load(at + panel_width) - top[v]) : floats{};
      sum[v] += weight + next;
      put_words(weights, (j / step * panel_vectors + v) * lanes, make_words<Element>(weight, next));
    }
  }
  for (std::int64_t v = 0; v < panel_vectors; ++v) {
    state.top[v] = top[v];
    state.sum[v] = sum[v];
  }
}

inline constexpr float ln_of_2 = 0.69314718F;

// Memory for the weights of a block's scores as a right operand: for floats, where the scores are.
template <class Element>
[[nodiscard]] Element* take_weights(arena& memory, std::span<float> scores) {
  if constexpr (std::is_same_v<Element, float>) {
    return scores.data();
  } else {
    return memory.take<Element>(static_cast<std::int64_t>(scores.size())).data();
  }
}

// What a panel works in on its way forward.
template <class Element>
struct panel_memory {
  Element* queries;  // a right operand [d, panel_width]
  float* scores;     // [keys, panel_width]
  Element* weights;  // a right operand [keys, panel_width]
  float* sums;       // [d, panel_width]
};

template <class Element>
[[nodiscard]] panel_memory<Element> take_panel(arena& memory, std::int64_t d) {
  Element* queries = memory.take<Element>(packed_size<Element>(d, panel_width)).data();
  const std::span<float> scores = memory.take<float>(policy::attention_keys * panel_width);
  Element* weights = take_weights<Element>(memory, scores);
  return {queries, scores.data(), weights, memory.take<float>(d * panel_width).data()};
}

// The panel's rows of `out`: means of the values [d, keys], all of them finite, that its queries see. `scale` makes
// scores logarithms to the base 2.
template <class Element>
running_softmax attend_panel(const query_panel& panel, matrix_view<const float> q, row_operand<Element> keys,
                             column_operand<Element> values, std::int64_t d, float scale,
                             const panel_memory<Element>& m, matrix_view<float> out) {
  pack_queries<Element>(panel, q, d, scale, m.queries);
  running_softmax state;
  for (floats& top : state.top) top = broadcast(std::numeric_limits<float>::lowest());
  for_key_blocks<Element>(panel, [&](const key_block& block) {
    multiply(from_row(keys, block.first), packed_operand<Element>{m.queries, d}, block.count, d, panel_width,
             overwrite(m.scores, panel_width));
    weigh<Element>(panel, block, d, m.scores, m.weights, m.sums, state);
    multiply(from_depth(values, block.first), packed_operand<Element>{m.weights, block.count}, d, block.count,
             panel_width, block.first > panel.low ? accumulate(m.sums, panel_width) : overwrite(m.sums, panel_width));
  });
  const floats inverse[panel_vectors] = {1.0F / state.sum[0], 1.0F / state.sum[1]};
  scatter_columns(panel, m.sums, d, inverse, out);
  return state;
}

}  // namespace detail

/// out[T, heads*d] for q[T, heads*d], k and v [T, kv_heads*d]: query row t attends to key rows first[t] .. t; what
/// other rows hold cannot matter, not even a NaN. lse[T * heads] is the log of the sum of exp(score), token-major. Rows
/// are whole sequences of `length`. Throws invalid_argument for a first[t] outside the sequence or after t.
template <class Element, ShapeOf<attention_shape> Shape>
void attention(context& c, Shape shape, matrix_view<const float> q, matrix_view<const float> k,
               matrix_view<const float> v, std::span<const std::int32_t> first, std::int64_t length,
               matrix_view<float> out, std::span<float> lse) {
  const attention_shape s = shape;
  reference_ops::detail::check_attention<float>("attention", s, q, k, v, first, length, out, lse);
  const std::int64_t d = s.head_dim;
  const detail::attention_tasks tasks(s, q.rows, length);
  const float scale = log2_e / std::sqrt(static_cast<float>(d));
  c.for_each(tasks.size(), [&](std::int64_t task) {
    const detail::kv_group g = tasks.group(task);
    const arena_loan memory = c.lend();
    const auto keys = rows_of<Element>(*memory, k.data + g.row * k.cols + g.kv_col, k.cols, length, d);
    const detail::finite_values finite = detail::make_finite(*memory, v, g.row, length, g.kv_col, d);
    const auto values = columns_of<Element>(*memory, finite.data, finite.stride, d, length);
    const detail::panel_memory<Element> of_panel = detail::take_panel<Element>(*memory, d);
    for (std::int64_t number = tasks.part(task); number < g.panels(); number += tasks.parts) {
      const detail::query_panel panel(g, number, first);
      const detail::running_softmax state =
          detail::attend_panel<Element>(panel, q, keys, values, d, scale, of_panel, out);
      float log_sums[panel_width];
      for (std::int64_t i = 0; i < detail::panel_vectors; ++i) {
        store(log_sums + i * lanes, state.top[i] * detail::ln_of_2 + detail::log(state.sum[i]));
      }
      for (std::int64_t i = 0; i < panel.count; ++i) {
        const std::int64_t token = panel.token[i];
        lse[token * s.heads + panel.head[i]] = log_sums[i];
        if (!panel.sees_broken(i, finite)) continue;
        reference_ops::detail::attend<float>(s, q, k, v, first[token], token, panel.head[i], out, lse);
      }
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
