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

// Are the `cols` elements from `col` on, in rows [first, first + count), all finite?
[[nodiscard]] inline bool all_finite(matrix_view<const float> m, std::int64_t first, std::int64_t count,
                                     std::int64_t col, std::int64_t cols) noexcept {
  floats zeros = {};  // x * 0 is NaN for an x that is not finite
  for (std::int64_t r = first; r < first + count; ++r) {
    const float* row = m.data + r * m.cols + col;
    for_vectors(cols, [&](auto get, auto) { zeros += get(row) * 0.0F; });
  }
  return sum_lanes(zeros) == 0.0F;
}

// 2^x for x <= 1, with a relative error below 2e-7: 0 below 2^-125 and for -infinity; a NaN stays one.
[[nodiscard, gnu::always_inline]] inline floats power_of_two(floats x) noexcept {
#if SMELT_VECTOR_BYTES == 64
  const floats f = (floats)_mm512_maskz_reduce_ps(0xFFFF, (__m512)x, 0);  // x minus the nearest integer, 0 for infinity
  const floats n = x - f;
#else
  constexpr float rounder = 12582912.0F;  // adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits
  const floats shifted = x + rounder;
  const floats f = x - (shifted - rounder);
#endif
  // By Remez' exchange: relative error 9.2e-8.
  floats p = f * 1.3264743e-3F + 9.6715180e-3F;
  p = p * f + 5.5507338e-2F;
  p = p * f + 0.24022242F;
  p = p * f + 0.69314698F;
  p = p * f + 1.0F;
#if SMELT_VECTOR_BYTES == 64
  return (floats)_mm512_maskz_scalef_ps(0xFFFF, (__m512)p, (__m512)n);
#else
  ints bits;
  ints exponent;
  __builtin_memcpy(&bits, &p, sizeof bits);
  __builtin_memcpy(&exponent, &shifted, sizeof exponent);
  bits = (bits + (exponent << 23)) & ~(x < -125.0F);
  floats result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
#endif
}

// The natural logarithm of a normal number, with an error below 1e-7 or relative error below 1.5e-7; NaN for a NaN.
[[nodiscard]] inline floats log(floats x) noexcept {
  ints bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const ints exponent = (bits - 0x3F3504F3) >> 23;  // so that the rest lies in [sqrt(1/2), sqrt(2))
  bits -= exponent << 23;
  floats rest;
  __builtin_memcpy(&rest, &bits, sizeof rest);
  const floats z = rest - 1.0F;
  floats p = z * 8.7223567e-2F - 0.14366843F;
  p = p * z + 0.14952266F;
  p = p * z - 0.16562393F;
  p = p * z + 0.19956834F;
  p = p * z - 0.25002072F;
  p = p * z + 0.33334186F;
  p = p * z - 0.49999988F;
  p = p * z + 1.0F;
  const floats n = __builtin_convertvector(exponent, floats);
  return p * z + n * 0.69314718F + (x - x);
}

inline constexpr std::int64_t panel_vectors = panel_width / lanes;
static_assert(panel_vectors == 2);

// One sequence and one KV head, with the query heads that share it. Keys of earlier tokens may stand before its own.
struct kv_group {
  std::int64_t row;       // of the batch, where the sequence begins
  std::int64_t length;    // tokens of the sequence
  std::int64_t head;      // the first query head
  std::int64_t heads;     // how many there are
  std::int64_t head_dim;  // d
  std::int64_t kv_col;    // of the head's keys and values
  std::int64_t before = 0;

  [[nodiscard]] std::int64_t queries() const noexcept { return length * heads; }
  [[nodiscard]] std::int64_t panels() const noexcept { return (queries() + panel_width - 1) / panel_width; }
};

// How the groups of a batch are cut into tasks: where groups are few, each into `parts` that take its panels in turn.
struct attention_tasks {
  attention_shape shape;
  std::int64_t length;
  std::int64_t groups;
  std::int64_t parts = 1;

  attention_tasks(const attention_shape& s, std::int64_t rows, std::int64_t length_)
      : shape(s), length(length_), groups(rows / length_ * s.kv_heads) {
    if (groups == 0) return;
    parts = (std::min)((policy::attention_tasks + groups - 1) / groups, group(0).panels());
  }

  [[nodiscard]] std::int64_t size() const noexcept { return groups * parts; }
  [[nodiscard]] std::int64_t part(std::int64_t task) const noexcept { return task % parts; }
  [[nodiscard]] kv_group group(std::int64_t task) const noexcept {
    const std::int64_t kv_head = task / parts % shape.kv_heads;
    const std::int64_t heads = shape.heads / shape.kv_heads;
    return {.row = task / parts / shape.kv_heads * length,
            .length = length,
            .head = kv_head * heads,
            .heads = heads,
            .head_dim = shape.head_dim,
            .kv_col = kv_head * shape.head_dim};
  }
};

// The queries of a panel, and the keys [low, high) of the group that they see. Lanes behind the last query are padding,
// which sees every key.
struct query_panel {
  std::int64_t count = 0;
  std::int64_t low;
  std::int64_t high;
  std::int64_t all_low;  // every query sees [all_low, all_high), which may be empty
  std::int64_t all_high;
  std::int64_t token[panel_width];  // row of the batch
  std::int64_t head[panel_width];
  ints first_key[panel_vectors];
  ints last_key[panel_vectors];

  // `first` counts keys as rows of a batch whose keys all stand with their queries.
  query_panel(const kv_group& g, std::int64_t number, std::span<const std::int32_t> first) {
    std::int32_t firsts[panel_width] = {};
    std::int32_t lasts[panel_width];
    std::fill_n(lasts, panel_width, (std::numeric_limits<std::int32_t>::max)());
    count = (std::min)(panel_width, g.queries() - number * panel_width);
    std::int64_t position = number * panel_width / g.heads;
    std::int64_t of_group = number * panel_width % g.heads;
    low = g.before + position;
    high = low + 1;
    all_low = 0;
    all_high = high;
    for (std::int64_t i = 0; i < count; ++i) {
      token[i] = g.row + position;
      head[i] = g.head + of_group;
      firsts[i] = static_cast<std::int32_t>(first[token[i]] - g.row);
      lasts[i] = static_cast<std::int32_t>(g.before + position);
      low = (std::min)(low, std::int64_t{firsts[i]});
      all_low = (std::max)(all_low, std::int64_t{firsts[i]});
      high = g.before + position + 1;
      if (++of_group == g.heads) {
        of_group = 0;
        ++position;
      }
    }
    __builtin_memcpy(first_key, firsts, sizeof firsts);
    __builtin_memcpy(last_key, lasts, sizeof lasts);
  }

  // Of a row of the panel: its place in a matrix of all heads.
  [[nodiscard]] std::int64_t place(std::int64_t i, std::int64_t cols, std::int64_t head_dim) const noexcept {
    return token[i] * cols + head[i] * head_dim;
  }

  // -1 in the lanes of vector v that see the key.
  [[nodiscard]] ints sees(std::int64_t v, std::int64_t key) const noexcept {
    const auto k = static_cast<std::int32_t>(key);
    return (first_key[v] <= k) & (last_key[v] >= k);
  }
};

// Keys of a block, in whole words: [first, first + count) of the sequence.
struct key_block {
  std::int64_t first;
  std::int64_t count;
};

// Calls each(block) for the blocks of the keys that the panel sees.
template <class Element, class Each>
void for_key_blocks(const query_panel& panel, Each each) {
  static_assert(policy::attention_keys % 2 == 0);
  for (std::int64_t first = panel.low / word_depth<Element> * word_depth<Element>; first < panel.high;
       first += policy::attention_keys) {
    each(key_block{first, (std::min)(policy::attention_keys, panel.high - first)});
  }
}

// Calls each(begin, end, masked) for runs of a block's keys, counted from its first and cut at whole words: where all
// queries see all keys, and where not.
template <class Element, class Each>
void for_sights(const query_panel& panel, const key_block& block, Each each) {
  constexpr std::int64_t step = word_depth<Element>;
  const std::int64_t low = (std::max)(panel.all_low - block.first + step - 1, std::int64_t{0}) / step * step;
  const std::int64_t high = (std::max)(panel.all_high - block.first, std::int64_t{0}) / step * step;
  const std::int64_t begin = (std::min)(low, block.count);
  const std::int64_t end = (std::max)((std::min)(high, block.count), begin);
  each(std::int64_t{0}, begin, std::true_type());
  each(begin, end, std::false_type());
  each(end, block.count, std::true_type());
}

template <class Element>
[[nodiscard]] row_operand<Element> from_row(row_operand<Element> m, std::int64_t row) noexcept {
  return {m.data + row * m.stride * word_depth<Element>, m.stride};
}

// From depth element `first` on, a whole number of words.
template <class Element>
[[nodiscard]] column_operand<Element> from_depth(column_operand<Element> m, std::int64_t first) noexcept {
  return {m.data + first * m.stride, m.stride};
}

// One of `lanes` steps that transpose a square of vectors: exchanges the lanes that differ in the bit `Step`.
template <std::int64_t Step, std::size_t... Lane>
[[gnu::always_inline]] inline void exchange(floats& low, floats& high, std::index_sequence<Lane...>) noexcept {
  constexpr auto of_low = [](std::size_t lane) { return (lane & Step) == 0 ? lane : lane - Step + lanes; };
  constexpr auto of_high = [](std::size_t lane) { return (lane & Step) == 0 ? lane + Step : lane + lanes; };
  const floats first = low;
  low = __builtin_shufflevector(first, high, of_low(Lane)...);
  high = __builtin_shufflevector(first, high, of_high(Lane)...);
}

// Transposes a square: lane j of vector i becomes lane i of vector j.
template <std::int64_t Step = 1>
[[gnu::always_inline]] inline void transpose_square(floats (&square)[lanes]) noexcept {
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < lanes; ++i) {
    if ((i & Step) == 0) exchange<Step>(square[i], square[i + Step], std::make_index_sequence<lanes>());
  }
  if constexpr (2 * Step < lanes) transpose_square<2 * Step>(square);
}

// The first `lanes` words of a row of `left` > 0 floats, and zeros.
template <class Element>
[[nodiscard, gnu::always_inline]] inline floats row_words(const float* from, std::int64_t left, float scale) noexcept {
  const floats low = (left >= lanes ? load(from) : load_partial(from, left)) * scale;
#if SMELT_BF16
  if constexpr (std::is_same_v<Element, bf16>) {
    floats high = {};
    if (left > lanes) high = left >= 2 * lanes ? load(from + lanes) : load_partial(from + lanes, left - lanes);
    return (floats)_mm512_cvtne2ps_pbh((__m512)(high * scale), (__m512)low);
  }
#endif
  return low;
}

// Packs the panel's rows of q, times `scale`, as the columns of a right operand [d, panel_width], the padding zero.
template <class Element>
void pack_queries(const query_panel& panel, matrix_view<const float> q, std::int64_t d, float scale, Element* packed) {
  const std::int64_t depth_words = words<Element>(d);
  for (std::int64_t first = 0; first < depth_words; first += lanes) {
    const std::int64_t col = first * word_depth<Element>;
    for (std::int64_t v = 0; v < panel_vectors; ++v) {
      floats square[lanes];
      for (std::int64_t i = 0; i < lanes; ++i) {
        const std::int64_t row = v * lanes + i;
        square[i] = row < panel.count ? row_words<Element>(q.data + panel.place(row, q.cols, d) + col, d - col, scale)
                                      : floats{};
      }
      transpose_square(square);
      const std::int64_t count = (std::min)(lanes, depth_words - first);
      for (std::int64_t i = 0; i < count; ++i) put_words(packed, (first + i) * panel_width + v * lanes, square[i]);
    }
  }
}

// Packs the panel's rows of q as a right operand [panel_width, d], the padding zero: `zeros` are d of them.
template <class Element>
void pack_query_rows(const query_panel& panel, matrix_view<const float> q, std::int64_t d, const float* zeros,
                     Element* packed) {
  pack_rows<Element>([&](std::int64_t i) { return i < panel.count ? q.data + panel.place(i, q.cols, d) : zeros; },
                     panel_width, d, 0, panel_count(d), packed);
}

// Writes the panel's rows of `to` from columns [d, panel_width], times the factors of the lanes.
inline void scatter_columns(const query_panel& panel, const float* columns, std::int64_t d,
                            const floats (&factor)[panel_vectors], matrix_view<float> to) {
  for (std::int64_t col = 0; col < d; col += lanes) {
    const std::int64_t left = d - col;
    for (std::int64_t v = 0; v < panel_vectors; ++v) {
      floats square[lanes];
      for (std::int64_t i = 0; i < lanes; ++i) {
        square[i] = i < left ? load(columns + (col + i) * panel_width + v * lanes) * factor[v] : floats{};
      }
      transpose_square(square);
      const std::int64_t count = (std::min)(lanes, panel.count - v * lanes);
      for (std::int64_t i = 0; i < count; ++i) {
        float* at = to.data + panel.place(v * lanes + i, to.cols, d) + col;
        if (left >= lanes) {
          store(at, square[i]);
        } else {
          store_partial(at, square[i], left);
        }
      }
    }
  }
}

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
    const floats factor[panel_vectors] = {power_of_two(state.top[0] - top[0]), power_of_two(state.top[1] - top[1])};
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
      const floats weight = power_of_two(load(at) - top[v]);
      const floats next = step == 2 ? power_of_two(load(at + panel_width) - top[v]) : floats{};
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
          weight[v] = power_of_two(load(m.scores + at) - log_sum[v]);
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
  const float scale = detail::log2_e / std::sqrt(static_cast<float>(d));
  c.for_each(tasks.size(), [&](std::int64_t task) {
    const detail::kv_group g = tasks.group(task);
    const arena_loan memory = c.lend();
    const bool finite = detail::all_finite(v, g.row, length, g.kv_col, d);
    const std::int64_t offset = g.row * k.cols + g.kv_col;
    const auto keys = rows_of<Element>(*memory, k.data + offset, k.cols, length, d);
    const auto values = columns_of<Element>(*memory, v.data + offset, v.cols, d, length);
    const detail::panel_memory<Element> of_panel = detail::take_panel<Element>(*memory, d);
    for (std::int64_t number = tasks.part(task); number < g.panels(); number += tasks.parts) {
      const detail::query_panel panel(g, number, first);
      if (!finite) {
        // A weight of 0 times a value that is not finite would be NaN: here masked values must not be touched at all.
        for (std::int64_t i = 0; i < panel.count; ++i) {
          const std::int64_t token = panel.token[i];
          reference_ops::detail::attend<float>(s, q, k, v, first[token], token, panel.head[i], out, lse);
        }
        continue;
      }
      const detail::running_softmax state =
          detail::attend_panel<Element>(panel, q, keys, values, d, scale, of_panel, out);
      float log_sums[panel_width];
      for (std::int64_t i = 0; i < detail::panel_vectors; ++i) {
        store(log_sums + i * lanes, state.top[i] * detail::ln_of_2 + detail::log(state.sum[i]));
      }
      for (std::int64_t i = 0; i < panel.count; ++i) lse[panel.token[i] * s.heads + panel.head[i]] = log_sums[i];
    }
  });
}

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
      detail::pack_queries(panel, q, d, scale * detail::log2_e, query_columns);
      detail::pack_queries(panel, dout, d, 1.0F, dout_columns);
      detail::pack_query_rows(panel, q, d, zeros.data(), query_rows);
      detail::pack_query_rows(panel, dout, d, zeros.data(), dout_rows);
      // The softmax's pull on every score: the sum of weight * dweight, which equals dout . out.
      float means[panel_width] = {};
      float log_sums[panel_width] = {};
      for (std::int64_t i = 0; i < panel.count; ++i) {
        const std::int64_t at = panel.place(i, out.cols, d);
        means[i] = detail::mean_pull<Element>(dout.data + at, out.data + at, d);
        log_sums[i] = lse[panel.token[i] * s.heads + panel.head[i]] * detail::log2_e;
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
