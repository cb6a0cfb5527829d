// What do the two passes of attention share? How the work is cut, the panels of queries, and the keys they see.

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

// The values [keys, d] of a KV head, every row `stride` floats behind the one before. Zeros stand for rows that are not
// finite, so that a weight of 0 hides them; a query that sees one of these must read the values where they lie.
struct finite_values {
  const float* data;
  std::int64_t stride;
  const std::int32_t* broken_before = nullptr;  // for every key, and behind the last; null where all are finite

  // Is any of the keys [first, last] not finite, where not all of them are?
  [[nodiscard]] bool any_broken(std::int64_t first, std::int64_t last) const noexcept {
    return broken_before[first] < broken_before[last + 1];
  }
};

// Of `count` rows of m from `first` on, and `d` columns from `col` on: in place, or copied into `memory`.
[[nodiscard]] inline finite_values make_finite(arena& memory, matrix_view<const float> m, std::int64_t first,
                                               std::int64_t count, std::int64_t col, std::int64_t d) {
  const float* from = m.data + first * m.cols + col;
  if (all_finite(m, first, count, col, d)) return {from, m.cols};
  const std::span<float> copy = memory.take<float>(count * d);
  const std::span<std::int32_t> broken_before = memory.take<std::int32_t>(count + 1);
  broken_before[0] = 0;
  for (std::int64_t r = 0; r < count; ++r) {
    const bool finite = all_finite(m, first + r, 1, col, d);
    broken_before[r + 1] = broken_before[r] + (finite ? 0 : 1);
    for_vectors(d, [&](auto get, auto put) { put(copy.data() + r * d, finite ? get(from + r * m.cols) : floats{}); });
  }
  return {copy.data(), d, broken_before.data()};
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

  // Does row i see a value that is not finite?
  [[nodiscard]] bool sees_broken(std::int64_t i, const finite_values& values) const noexcept {
    if (values.broken_before == nullptr) [[likely]]
      return false;
    return values.any_broken(first_key[i / lanes][i % lanes], last_key[i / lanes][i % lanes]);
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

}  // namespace detail

}  // namespace smelt::cpu_ops::SMELT_SET
