// What do the chosen experts do to a token? Each a SwiGLU feed-forward, summed with the router's weights.
//
// Of many tokens a task takes a block that follow each other, and goes through the experts with those of the block that
// chose them: what an expert gives is added to the block's rows, which stay in the second-level cache, in the order of
// the experts. Of few, a task takes the tokens of one expert, and what the expert gives for a token waits in a row of
// its own until the token's rows are added in the order of its slots.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// ---- the weights ----

static_assert(panel_vectors == 2, "[smelt] a panel is a vector of gate columns and one of up columns");

// Hidden units with the padding of their last vector.
[[nodiscard]] constexpr std::int64_t padded_hidden(std::int64_t hidden) noexcept {
  return (hidden + lanes - 1) / lanes * lanes;
}

// The weights of one expert: gate and up [f, H], down [H, f].
struct expert_weights {
  const float* gate;
  const float* up;
  const float* down;
  std::int64_t width;
  std::int64_t hidden;
};

// The weights of all experts, one after the other.
struct stacked_weights {
  const float* gate;
  const float* up;
  const float* down;
  std::int64_t experts;
  std::int64_t width;
  std::int64_t hidden;

  [[nodiscard]] expert_weights operator[](std::int64_t e) const noexcept {
    const std::int64_t at = e * width * hidden;
    return {gate + at, up + at, down + at, width, hidden};
  }
};

// The right operand of x [gate up]^T: in every panel a vector of gate columns and the up columns of the same units.
template <class Element>
void pack_gate_up_columns(arena& memory, const expert_weights& w, Element* to) {
  const std::int64_t padded = padded_hidden(w.hidden);
  const std::span<float> mixed = memory.take<float>(2 * padded * w.width);
  for (std::int64_t unit = 0; unit < padded; ++unit) {
    float* gate = mixed.data() + (unit / lanes * panel_width + unit % lanes) * w.width;
    float* up = gate + lanes * w.width;
    if (unit < w.hidden) {
      std::copy_n(w.gate + unit * w.width, w.width, gate);
      std::copy_n(w.up + unit * w.width, w.width, up);
    } else {
      std::fill_n(gate, w.width, 0.0F);
      std::fill_n(up, w.width, 0.0F);
    }
  }
  pack_columns(mixed.data(), w.width, w.width, 2 * padded, 0, panel_count(2 * padded), to);
}

// The right operand of (silu(gate) up) down^T.
template <class Element>
void pack_down_columns(arena&, const expert_weights& w, Element* to) {
  pack_columns(w.down, w.hidden, w.hidden, w.width, 0, panel_count(w.width), to);
}

// The right operand of dy down.
template <class Element>
void pack_down_rows(arena&, const expert_weights& w, Element* to) {
  pack_rows([&](std::int64_t k) { return w.down + k * w.hidden; }, w.width, w.hidden, 0, panel_count(w.hidden), to);
}

// The right operand of [dgate dup] [gate; up], both padded to whole vectors of units.
template <class Element>
void pack_gate_up_rows(arena& memory, const expert_weights& w, Element* to) {
  const std::int64_t padded = padded_hidden(w.hidden);
  const std::span<float> none = memory.take<float>(w.width);
  std::fill(none.begin(), none.end(), 0.0F);
  const auto row_of = [&](std::int64_t k) {
    const std::int64_t unit = k < padded ? k : k - padded;
    return unit < w.hidden ? (k < padded ? w.gate : w.up) + unit * w.width : none.data();
  };
  pack_rows(row_of, 2 * padded, w.width, 0, panel_count(w.width), to);
}

// One packed form of every expert's weights: kept while somebody holds the weights still and there has been at least a
// token for each expert; otherwise a task packs what it needs.
template <class Element>
class expert_panels {
 public:
  using pack_function = void (*)(arena&, const expert_weights&, Element*);

  // An expert's panels have `size` elements. A kept copy goes by the weight's address `name` and the form. `all` of
  // them are packed, into `memory` when nobody holds the weights, or only what is worth keeping.
  expert_panels(context& c, arena& memory, const stacked_weights& weights, bool all, std::int64_t rows,
                const float* name, weight_form form, std::int64_t size, pack_function pack)
      : weights_(weights), size_(size), pack_(pack) {
    if (!all && !c.panels().held()) return;
    if (!all && rows < weights.experts) {
      kept_ = c.panels().find<Element>(name, form);
      return;
    }
    kept_ = c.packed_weight<Element>(memory, name, form, weights.experts * size, [&](Element* to) {
      c.for_each(weights.experts, [&](std::int64_t e) {
        const arena_loan task_memory = c.lend();
        pack(*task_memory, weights[e], to + e * size);
      });
    });
  }

  [[nodiscard]] bool kept() const noexcept { return kept_ != nullptr; }

  // The panels of one expert, packed into `memory` where they are not kept.
  [[nodiscard]] const Element* of(arena& memory, std::int64_t expert) const {
    if (kept_ != nullptr) return kept_ + expert * size_;
    const std::span<Element> made = memory.take<Element>(size_);
    pack_(memory, weights_[expert], made.data());
    return made.data();
  }

 private:
  stacked_weights weights_;
  const Element* kept_ = nullptr;
  std::int64_t size_;
  pack_function pack_;
};

// ---- the tokens ----

// Grouped rows [first, last) of one expert; the `part`-th piece of its rows.
struct expert_rows {
  std::int64_t expert;
  std::int64_t first;
  std::int64_t last;
  std::int64_t part;
};

// The experts' rows, cut into pieces of at most `most` rows. Experts without tokens have no piece.
[[nodiscard]] inline std::span<const expert_rows> cut_by_expert(arena& memory, const grouping_view<>& grouping,
                                                                std::int64_t most) {
  const auto experts = static_cast<std::int64_t>(grouping.offsets.size()) - 1;
  const auto rows = static_cast<std::int64_t>(grouping.assignment.size());
  const std::span<expert_rows> pieces = memory.take<expert_rows>(rows / most + experts);
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t end = grouping.offsets[e + 1];
    std::int64_t part = 0;
    for (std::int64_t first = grouping.offsets[e]; first < end; first += most) {
      pieces[count++] = {e, first, (std::min)(first + most, end), part++};
    }
  }
  return pieces.first(static_cast<std::size_t>(count));
}

// The grouped rows of an expert whose tokens are in [first, last).
[[nodiscard]] inline expert_rows rows_of_tokens(const grouping_view<>& grouping, std::int64_t active,
                                                std::int64_t expert, std::int64_t first, std::int64_t last) noexcept {
  const std::int32_t* begin = grouping.assignment.data() + grouping.offsets[expert];
  const std::int32_t* end = grouping.assignment.data() + grouping.offsets[expert + 1];
  const std::int32_t* from = std::lower_bound(begin, end, first * active);
  const std::int32_t* to = std::lower_bound(from, end, last * active);
  return {expert, from - grouping.assignment.data(), to - grouping.assignment.data(), 0};
}

// Rows an expert's task takes at once.
template <class Element>
inline constexpr std::int64_t expert_chunk = policy::expert_rows * word_depth<Element>;

// Rows whose outer products enter an expert's weight gradients at once.
template <class Element>
[[nodiscard]] constexpr std::int64_t expert_gradient_rows(std::int64_t width) noexcept {
  return (std::max)(policy::expert_gradient_elements / width, std::int64_t{24}) * word_depth<Element>;
}

// The largest of as few even shares of `all` rows as have at most `most`: a whole number of pairs.
[[nodiscard]] constexpr std::int64_t even_share(std::int64_t all, std::int64_t most) noexcept {
  const std::int64_t shares = (all + most - 1) / most;
  return ((all + shares - 1) / shares + 1) / 2 * 2;
}

// Words between the rows of a block of `depth` elements each.
template <class Element>
[[nodiscard]] constexpr std::int64_t block_stride(std::int64_t depth) noexcept {
  return (words<Element>(depth) + lanes - 1) / lanes * lanes + policy::row_padding;
}

// A block of rows [rows, depth], uninitialised.
template <class Element>
[[nodiscard]] Element* take_block(arena& memory, std::int64_t rows, std::int64_t depth) {
  return memory.take<Element>(rows * block_stride<Element>(depth) * word_depth<Element>).data();
}

// Rows of tokens [T, cols] as words: in place, or converted into a copy, by whoever needs them first.
template <class Element>
class token_rows {
 public:
  token_rows(arena& memory, matrix_view<const float> from) : from_(from), stride_(from.cols) {
    if constexpr (word_depth<Element> > 1) {
      stride_ = spread_stride(words<Element>(from.cols));
      copy_ = memory.take<Element>(from.rows * stride_ * word_depth<Element>).data();
    }
  }

  void convert(std::int64_t first, std::int64_t last) const noexcept {
#if SMELT_BF16
    if constexpr (word_depth<Element> > 1) {
      convert_rows(from_.data + first * from_.cols, from_.cols, last - first, from_.cols,
                   copy_ + first * stride_ * word_depth<Element>, stride_);
      return;
    }
#endif
    static_cast<void>(first);
    static_cast<void>(last);
  }

  void convert_all(context& c) const {
    if constexpr (word_depth<Element> > 1) {
      c.for_chunks(from_.rows, (std::max)(policy::row_elements / from_.cols, std::int64_t{1}),
                   [&](std::int64_t first, std::int64_t last) { convert(first, last); });
    }
  }

  [[nodiscard]] const Element* operator[](std::int64_t token) const noexcept {
    if constexpr (word_depth<Element> > 1) {
      return copy_ + token * stride_ * word_depth<Element>;
    } else {
      return from_.data + token * stride_;
    }
  }
  [[nodiscard]] std::int64_t cols() const noexcept { return from_.cols; }

 private:
  matrix_view<const float> from_;
  std::int64_t stride_;  // in words
  Element* copy_ = nullptr;
};

// Brings near the row of the token `ahead` of the i-th one.
template <class Element>
void prefetch_row(const token_rows<Element>& from, const std::int32_t* tokens, std::int64_t i,
                  std::int64_t rows) noexcept {
  constexpr std::int64_t ahead = 6;
  if (i + ahead >= rows) return;
  const auto* row = reinterpret_cast<const char*>(from[tokens[i + ahead]]);
  for (std::int64_t k = 0; k < words<Element>(from.cols()); k += 16) __builtin_prefetch(row + k * 4, 0, 3);
}

// The tokens' rows as a block of rows.
template <class Element>
void gather(const token_rows<Element>& from, const std::int32_t* tokens, std::int64_t rows, Element* to) noexcept {
  const std::int64_t stride = block_stride<Element>(from.cols());
  for (std::int64_t i = 0; i < rows; ++i) {
    prefetch_row(from, tokens, i, rows);
    const Element* row = from[tokens[i]];
    if constexpr (word_depth<Element> == 1) {
      for_vectors(from.cols(), [&](auto get, auto put) { put(to + i * stride, get(row)); });
    } else {
      for (std::int64_t k = 0; k < words<Element>(from.cols()); k += lanes) {
        put_words(to, i * stride + k, words_at(row, k));
      }
    }
  }
}

// Calls put(i, words) for the words of two rows that follow each other along the depth, a vector of `cols` columns at a
// time: those of `first` alone for floats. Without a second row, with zeros. Rows are read in whole vectors of bf16.
template <class Element, class Put>
[[gnu::always_inline]] inline void pair_words(const Element* first, [[maybe_unused]] const Element* second,
                                              std::int64_t cols, Put put) noexcept {
  if constexpr (word_depth<Element> == 1) {
    std::int64_t i = 0;
    for (; i + lanes <= cols; i += lanes) put(i, load(first + i));
    if (i < cols) put(i, load_partial(first + i, cols - i));
  } else {
#if SMELT_BF16
    using halves = std::int16_t __attribute__((vector_size(lanes * 4)));
    constexpr halves low = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                            8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    for (std::int64_t i = 0; i < cols; i += 2 * lanes) {
      const auto a = (__m512i)words_at(first, i / 2);
      const auto b = second == nullptr ? __m512i{} : (__m512i)words_at(second, i / 2);
      put(i, (floats)_mm512_permutex2var_epi16(a, (__m512i)low, b));
      if (i + lanes < cols) put(i + lanes, (floats)_mm512_permutex2var_epi16(a, (__m512i)(low + 16), b));
    }
#endif
  }
}

// The right operand of a product over `rows` rows, of which row_of(i) has `cols` columns.
template <class Element, class RowOf>
[[gnu::always_inline]] inline void pack_pairs(RowOf row_of, std::int64_t rows, std::int64_t cols,
                                              Element* to) noexcept {
  constexpr std::int64_t step = word_depth<Element>;
  const std::int64_t depth = words<Element>(rows);
  for (std::int64_t k = 0; k < rows; k += step) {
    pair_words(row_of(k), k + 1 < rows ? row_of(k + 1) : nullptr, cols, [&](std::int64_t col, floats value) {
      const std::int64_t first = col / panel_width * panel_width;
      put_words(to, first * depth + k / step * width_of_panel(first, cols) + col - first, value);
    });
  }
}

// The tokens' rows as the right operand of a product over the tokens.
template <class Element>
void pack_tokens(const token_rows<Element>& from, const std::int32_t* tokens, std::int64_t rows, Element* to) noexcept {
  pack_pairs<Element>(
      [&](std::int64_t i) {
        prefetch_row(from, tokens, i, rows);
        return from[tokens[i]];
      },
      rows, from.cols(), to);
}

// A block of rows as the right operand of a product over its rows.
template <class Element>
void pack_block(const Element* block, std::int64_t rows, std::int64_t cols, Element* to) noexcept {
  const std::int64_t stride = block_stride<Element>(cols) * word_depth<Element>;
  pack_pairs<Element>([&](std::int64_t i) { return block + i * stride; }, rows, cols, to);
}

// The tokens of grouped rows [first, first + rows).
inline void tokens_of(const grouping_view<>& grouping, std::int64_t active, std::int64_t first, std::int64_t rows,
                      std::int32_t* tokens) noexcept {
  const auto slots = static_cast<std::int32_t>(active);
  for (std::int64_t i = 0; i < rows; ++i) tokens[i] = grouping.assignment[first + i] / slots;
}

// Stores a vector of a block of rows, rounded to its element.
template <class Element>
inline void put_units(Element* block, std::int64_t stride, std::int64_t row, std::int64_t unit, floats value) noexcept {
#if SMELT_BF16
  if constexpr (std::is_same_v<Element, bf16>) {
    const __m256bh half = _mm512_cvtneps_pbh((__m512)value);
    __builtin_memcpy(reinterpret_cast<char*>(block) + (row * stride * 2 + unit) * 2, &half, sizeof half);
  } else {
    store(block + row * stride + unit, value);
  }
#else
  store(block + row * stride + unit, value);
#endif
}

// Words between the rows of a transposed block whose pairs of rows are interleaved.
[[nodiscard]] constexpr std::int64_t pair_stride(std::int64_t depth) noexcept {
  return (depth + lanes - 1) / lanes * lanes + policy::row_padding;
}

// Memory for the transpose of a block of rows [rows, depth]: none for floats, which are read in place.
template <class Element>
[[nodiscard]] Element* take_transposed(arena& memory, std::int64_t rows, std::int64_t depth) {
  if constexpr (word_depth<Element> == 1) {
    return nullptr;
  } else {
    return memory.take<Element>(words<Element>(rows) * pair_stride(depth) * word_depth<Element>).data();
  }
}

// A block of rows as the transposed left operand: in place, or with its pairs of rows interleaved in `to`.
template <class Element>
[[nodiscard]] column_operand<Element> transpose(const Element* block, std::int64_t rows, std::int64_t depth,
                                                Element* to) noexcept {
  const std::int64_t stride = block_stride<Element>(depth);
  if constexpr (word_depth<Element> == 1) {
    static_cast<void>(rows);
    static_cast<void>(to);
    return {block, stride};
  } else {
    const std::int64_t to_stride = pair_stride(depth);
    for (std::int64_t k = 0; k < rows; k += 2) {
      const Element* row = block + k * stride * 2;
      pair_words(row, k + 1 < rows ? row + stride * 2 : nullptr, depth,
                 [&](std::int64_t i, floats value) { put_words(to, k / 2 * to_stride + i, value); });
    }
    return {to, to_stride};
  }
}

// Calls each(get, put) for the vector of a row's units at `unit`: get and put know how many there are.
template <class Each>
[[gnu::always_inline]] inline void with_units(std::int64_t unit, std::int64_t hidden, Each each) noexcept {
  const std::int64_t left = hidden - unit;
  if (left >= lanes) [[likely]] {
    each([unit](const float* row) { return load(row + unit); },
         [unit](float* row, floats value) { store(row + unit, value); });
  } else if (left > 0) {
    each([=](const float* row) { return load_partial(row + unit, left); },
         [=](float* row, floats value) { store_partial(row + unit, value, left); });
  }
}

// ---- the epilogues ----

// Of x [gate up]^T: saves gate and up, and leaves silu(gate) * up as a block of rows.
template <class Element>
struct activate {
  float* gate;
  float* up;
  std::int64_t hidden;
  Element* activation;

  template <int Vectors>
  [[gnu::always_inline]] void operator()(std::int64_t row, std::int64_t col, std::int64_t,
                                         const floats (&sums)[Vectors]) const noexcept {
    if constexpr (Vectors == 2) {
      const std::int64_t unit = col / 2;
      with_units(unit, hidden, [&](auto, auto put) {
        put(gate + row * hidden, sums[0]);
        put(up + row * hidden, sums[1]);
      });
      put_units(activation, block_stride<Element>(hidden), row, unit, sums[0] * sigmoid(sums[0]) * sums[1]);
    }
  }
};

// Of dy down: gradients of gate and up as a block of rows [dgate dup], the activation times its factor, and the lanes
// of the dot product of each row with its activation.
template <class Element>
struct activate_backward {
  const float* gate;
  const float* up;
  std::int64_t hidden;
  const float* factor;  // of every row
  Element* dgate_up;
  Element* activation;
  float* dots;  // [rows, lanes]

  [[gnu::always_inline]] void prefetch(std::int64_t row, std::int64_t col) const noexcept {
    prefetch_panel(gate + row * hidden + col);
    prefetch_panel(up + row * hidden + col);
  }

  template <int Vectors>
  [[gnu::always_inline]] void operator()(std::int64_t row, std::int64_t col, std::int64_t,
                                         const floats (&sums)[Vectors]) const noexcept {
    const std::int64_t padded = padded_hidden(hidden);
    const std::int64_t stride = block_stride<Element>(2 * padded);
    floats dot_lanes = col == 0 ? floats{} : load(dots + row * lanes);
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) {
      const std::int64_t unit = col + j * lanes;
      if (unit >= padded) break;
      floats g = {};
      floats u = {};
      with_units(unit, hidden, [&](auto get, auto) {
        g = get(gate + row * hidden);
        u = get(up + row * hidden);
      });
      const floats sigma = sigmoid(g);
      const floats silu = g * sigma;
      const floats active = silu * u;
      dot_lanes += sums[j] * active;
      const floats pulled = sums[j] * factor[row];
      put_units(dgate_up, stride, row, unit, pulled * u * (sigma + silu * (1.0F - sigma)));
      put_units(dgate_up, stride, row, padded + unit, pulled * silu);
      put_units(activation, block_stride<Element>(hidden), row, unit, active * factor[row]);
    }
    store(dots + row * lanes, dot_lanes);
  }
};

// to[place of the row] = factor * sums, plus the same place of `from` where there is one.
struct spread {
  const std::int32_t* place;
  const float* factor;
  float* to;
  const float* from;
  std::int64_t stride;

  [[gnu::always_inline]] void prefetch(std::int64_t row, std::int64_t col) const noexcept {
    if (from != nullptr) prefetch_panel(from + place[row] * stride + col);
  }

  template <int Vectors>
  [[gnu::always_inline]] void operator()(std::int64_t row, std::int64_t col, std::int64_t cols,
                                         const floats (&sums)[Vectors]) const noexcept {
    const std::int64_t at = place[row] * stride;
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) {
      with_units(col + j * lanes, col + cols, [&](auto get, auto put) {
        const floats value = factor[row] * sums[j];
        put(to + at, from == nullptr ? value : get(from + at) + value);
      });
    }
  }
};

// ---- the sums over a token's slots ----

// to[token] = scale * the token's `active` grouped rows, in slot order, each times its weight (1 without weights), plus
// the token's row of `from` where there is one.
inline void combine(context& c, const grouping_view<>& grouping, std::int64_t active, const float* rows,
                    const float* weights, float scale, const float* from, matrix_view<float> to) {
  const std::int64_t width = to.cols;
  c.for_chunks(to.rows, (std::max)(policy::row_elements / width, std::int64_t{1}),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   const std::int32_t* row = grouping.row.data() + t * active;
                   for_vectors(width, [&](auto get, auto put) {
                     floats sum = {};
                     for (std::int64_t a = 0; a < active; ++a) {
                       const floats value = get(rows + row[a] * width);
                       sum += weights != nullptr ? value * weights[t * active + a] : value;
                     }
                     sum *= scale;
                     put(to.data + t * width, from != nullptr ? get(from + t * width) + sum : sum);
                   });
                 }
               });
}

// Adds the weight gradients [gate, up, down] of the pieces that have some of their own, in order.
inline void add_partial(context& c, std::span<const expert_rows> pieces, std::span<float* const> partial,
                        std::int64_t matrix, matrix_view<float> dw_gate, matrix_view<float> dw_up,
                        matrix_view<float> dw_down) {
  // The pieces of an expert follow each other: a task adds a part of all of them to its matrices.
  const std::int64_t blocks = (matrix + policy::row_elements - 1) / policy::row_elements;
  const auto count = static_cast<std::int64_t>(pieces.size());
  bool any = false;
  for (const expert_rows& piece : pieces) any |= piece.part > 0;
  if (!any) return;
  c.for_each(count * blocks, [&](std::int64_t task) {
    const std::int64_t i = task / blocks;
    if (pieces[i].part != 0) return;
    const std::int64_t begin = task % blocks * policy::row_elements;
    const std::int64_t size = (std::min)(policy::row_elements, matrix - begin);
    for (std::int64_t j = i + 1; j < count && pieces[j].part > 0; ++j) {
      const std::int64_t at = pieces[i].expert * matrix + begin;
      float* to[3] = {dw_gate.data + at, dw_up.data + at, dw_down.data + at};
      for (std::int64_t m = 0; m < 3; ++m) {
        const float* more = partial[j] + m * matrix + begin;
        for_vectors(size, [&](auto get, auto put) { put(to[m], get(to[m]) + get(more)); });
      }
    }
  });
}

// One row through an expert whose weights are as they are stored.
inline void expert_row(const expert_weights& w, const float* x, float* gate, float* up, float* activation, float factor,
                       const float* from, float* to) noexcept {
  for (std::int64_t j = 0; j < w.hidden; ++j) {
    gate[j] = dot(x, w.gate + j * w.width, w.width);
    up[j] = dot(x, w.up + j * w.width, w.width);
  }
  for_vectors(w.hidden, [&](auto get, auto put) { put(activation, get(gate) * sigmoid(get(gate)) * get(up)); });
  for (std::int64_t h = 0; h < w.width; ++h) {
    const float value = factor * dot(activation, w.down + h * w.hidden, w.hidden);
    to[h] = from == nullptr ? value : from[h] + value;
  }
}

}  // namespace detail

/// y[T,H] = residual[T,H] + scale * sum over slots of weights * down(silu(gate x) * (up x)); y may be the residual.
/// Weights of all experts are stacked: w_gate and w_up [E*f, H], w_down [E*H, f]. gate and up [T*k, f] are saved by
/// grouped row.
template <class Element, ShapeOf<experts_shape> Shape>
void experts(context& c, Shape shape, double scale, matrix_view<const float> residual, matrix_view<const float> x,
             matrix_view<const float> w_gate, matrix_view<const float> w_up, matrix_view<const float> w_down,
             grouping_view<> grouping, matrix_view<const float> weights, matrix_view<float> gate, matrix_view<float> up,
             matrix_view<float> y) {
  const experts_shape s = shape;
  const std::int64_t width = s.width;
  const std::int64_t hidden = s.hidden;
  reference_ops::detail::check_experts<float, float>("experts", s, x, w_gate, w_up, w_down, grouping, weights, gate,
                                                     up);
  check_shape("experts", "residual", residual, x.rows, width);
  check_shape("experts", "y", y, x.rows, width);
  const detail::stacked_weights stacked{w_gate.data, w_up.data, w_down.data, s.experts, width, hidden};
  const std::int64_t padded = detail::padded_hidden(hidden);
  arena& shared = c.shared();
  const std::int64_t block = policy::expert_block(s.experts, s.active, x.rows);
  const bool by_block = block > 0;
  const detail::expert_panels<Element> gate_up(c, shared, stacked, by_block, gate.rows, w_gate.data,
                                               weight_form::transposed, packed_size<Element>(width, 2 * padded),
                                               detail::pack_gate_up_columns<Element>);
  const detail::expert_panels<Element> down(c, shared, stacked, by_block, gate.rows, w_down.data,
                                            weight_form::transposed, packed_size<Element>(hidden, width),
                                            detail::pack_down_columns<Element>);
  const detail::token_rows<Element> inputs(shared, x);
  // What an expert gives goes to the token's row, or to a row of its own.
  const bool to_tokens = by_block || s.active == 1;
  float* results = to_tokens ? y.data : shared.take<float>(gate.rows * width).data();
  const float* from = by_block ? y.data : to_tokens ? residual.data : nullptr;

  const auto run = [&](arena& memory, const detail::expert_rows& piece) {
    constexpr std::int64_t chunk = detail::expert_chunk<Element>;
    std::int32_t tokens[chunk];
    std::int32_t places[chunk];
    float factors[chunk];
    const auto describe = [&](std::int64_t first, std::int64_t rows) {
      detail::tokens_of(grouping, s.active, first, rows, tokens);
      for (std::int64_t i = 0; i < rows; ++i) {
        places[i] = to_tokens ? tokens[i] : static_cast<std::int32_t>(first + i);
        factors[i] = to_tokens ? static_cast<float>(scale) * weights.data[grouping.assignment[first + i]] : 1.0F;
      }
    };
    if (!gate_up.kept() && piece.last - piece.first < policy::few_rows) {
      const detail::expert_weights w = stacked[piece.expert];
      describe(piece.first, piece.last - piece.first);
      const std::span<float> activation = memory.take<float>(hidden);
      for (std::int64_t i = 0; i < piece.last - piece.first; ++i) {
        const std::int64_t at = (piece.first + i) * hidden;
        detail::expert_row(w, x.data + tokens[i] * width, gate.data + at, up.data + at, activation.data(), factors[i],
                           from == nullptr ? nullptr : from + places[i] * width, results + places[i] * width);
      }
      return;
    }
    const Element* gate_up_panels = gate_up.of(memory, piece.expert);
    const Element* down_panels = down.of(memory, piece.expert);
    const std::int64_t most = (std::min)(chunk, piece.last - piece.first);
    Element* block_inputs = detail::take_block<Element>(memory, most, width);
    Element* activations = detail::take_block<Element>(memory, most, hidden);
    for (std::int64_t first = piece.first; first < piece.last; first += chunk) {
      const std::int64_t rows = (std::min)(chunk, piece.last - first);
      describe(first, rows);
      detail::gather(inputs, tokens, rows, block_inputs);
      multiply(row_operand<Element>{block_inputs, detail::block_stride<Element>(width)},
               packed_operand<Element>{gate_up_panels, width}, rows, width, 2 * padded,
               detail::activate<Element>{gate.data + first * hidden, up.data + first * hidden, hidden, activations});
      multiply(row_operand<Element>{activations, detail::block_stride<Element>(hidden)},
               packed_operand<Element>{down_panels, hidden}, rows, hidden, width,
               detail::spread{places, factors, results, from, width});
    }
  };
  if (by_block) {
    c.for_chunks(x.rows, block, [&](std::int64_t first, std::int64_t last) {
      inputs.convert(first, last);
      if (residual.data != y.data) {
        std::copy(residual.data + first * width, residual.data + last * width, y.data + first * width);
      }
      for (std::int64_t e = 0; e < s.experts; ++e) {
        const arena_loan memory = c.lend();
        run(*memory, detail::rows_of_tokens(grouping, s.active, e, first, last));
      }
    });
    return;
  }
  inputs.convert_all(c);
  const std::span<const detail::expert_rows> pieces = detail::cut_by_expert(shared, grouping, policy::expert_task_rows);
  c.for_each(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t task) {
    const arena_loan memory = c.lend();
    run(*memory, pieces[task]);
  });
  if (!to_tokens) {
    detail::combine(c, grouping, s.active, results, weights.data, static_cast<float>(scale), residual.data, y);
  }
}

/// The backward pass of scale * sum over slots of weights * expert: dx[T,H] (added to or overwritten), dw_gate +=,
/// dw_up +=, dw_down += and dweights[T,k] (overwritten) from dy[T,H]. Gradients of experts without tokens keep their
/// bits.
template <class Element, ShapeOf<experts_shape> Shape>
void experts_backward(context& c, Shape shape, double scale, matrix_view<const float> x,
                      matrix_view<const float> w_gate, matrix_view<const float> w_up, matrix_view<const float> w_down,
                      grouping_view<> grouping, matrix_view<const float> weights, matrix_view<const float> gate,
                      matrix_view<const float> up, matrix_view<const float> dy, matrix_view<float> dx, bool add,
                      matrix_view<float> dw_gate, matrix_view<float> dw_up, matrix_view<float> dw_down,
                      matrix_view<float> dweights) {
  const experts_shape s = shape;
  const std::int64_t width = s.width;
  const std::int64_t hidden = s.hidden;
  reference_ops::detail::check_experts<float, const float>("experts_backward", s, x, w_gate, w_up, w_down, grouping,
                                                           weights, gate, up);
  reference_ops::detail::check_expert_gradients<float>("experts_backward", s, x.rows, dy, dx, dw_gate, dw_up, dw_down,
                                                       dweights);
  const detail::stacked_weights stacked{w_gate.data, w_up.data, w_down.data, s.experts, width, hidden};
  const std::int64_t padded = detail::padded_hidden(hidden);
  arena& shared = c.shared();
  const std::int64_t block = policy::expert_block(s.experts, s.active, x.rows);
  const bool by_block = block > 0;
  const detail::expert_panels<Element> gate_up(c, shared, stacked, by_block, gate.rows, w_gate.data,
                                               weight_form::as_stored, packed_size<Element>(2 * padded, width),
                                               detail::pack_gate_up_rows<Element>);
  const detail::expert_panels<Element> down(c, shared, stacked, by_block, gate.rows, w_down.data,
                                            weight_form::as_stored, packed_size<Element>(width, hidden),
                                            detail::pack_down_rows<Element>);
  constexpr std::int64_t chunk = detail::expert_chunk<Element>;
  const detail::token_rows<Element> inputs(shared, x);
  const detail::token_rows<Element> outputs(shared, dy);
  const bool to_tokens = by_block || s.active == 1;
  float* results = to_tokens ? dx.data : shared.take<float>(gate.rows * width).data();
  const float* from = by_block || (to_tokens && add) ? dx.data : nullptr;
  // By grouped row: gradients of gate and up, and the activation times its factor.
  Element* dgate_up = detail::take_block<Element>(shared, gate.rows, 2 * padded);
  Element* activations = detail::take_block<Element>(shared, gate.rows, hidden);
  const auto row_of = [](Element* rows, std::int64_t depth, std::int64_t row) {
    return rows + row * detail::block_stride<Element>(depth) * word_depth<Element>;
  };

  // Of the hidden layer, of the router's weights and of the inputs.
  const auto pull = [&](arena& memory, const detail::expert_rows& piece) {
    const Element* gate_up_panels = gate_up.of(memory, piece.expert);
    const Element* down_panels = down.of(memory, piece.expert);
    const std::int64_t most = (std::min)(chunk, piece.last - piece.first);
    Element* block_outputs = detail::take_block<Element>(memory, most, width);
    const std::span<float> dots = memory.take<float>(most * lanes);
    std::int32_t tokens[chunk];
    std::int32_t places[chunk];
    float factors[chunk];
    float ones[chunk];
    for (std::int64_t first = piece.first; first < piece.last; first += chunk) {
      const std::int64_t rows = (std::min)(chunk, piece.last - first);
      detail::tokens_of(grouping, s.active, first, rows, tokens);
      for (std::int64_t i = 0; i < rows; ++i) {
        places[i] = to_tokens ? tokens[i] : static_cast<std::int32_t>(first + i);
        factors[i] = static_cast<float>(scale) * weights.data[grouping.assignment[first + i]];
        ones[i] = 1.0F;
      }
      Element* pulled = row_of(dgate_up, 2 * padded, first);
      detail::gather(outputs, tokens, rows, block_outputs);
      multiply(row_operand<Element>{block_outputs, detail::block_stride<Element>(width)},
               packed_operand<Element>{down_panels, width}, rows, width, hidden,
               detail::activate_backward<Element>{gate.data + first * hidden, up.data + first * hidden, hidden, factors,
                                                  pulled, row_of(activations, hidden, first), dots.data()});
      for (std::int64_t i = 0; i < rows; ++i) {
        dweights.data[grouping.assignment[first + i]] =
            static_cast<float>(scale) * sum_lanes(load(dots.data() + i * lanes));
      }
      multiply(row_operand<Element>{pulled, detail::block_stride<Element>(2 * padded)},
               packed_operand<Element>{gate_up_panels, 2 * padded}, rows, 2 * padded, width,
               detail::spread{places, ones, results, from, width});
    }
  };
  if (by_block) {
    c.for_chunks(x.rows, block, [&](std::int64_t first, std::int64_t last) {
      inputs.convert(first, last);
      outputs.convert(first, last);
      if (!add) std::fill(dx.data + first * width, dx.data + last * width, 0.0F);
      for (std::int64_t e = 0; e < s.experts; ++e) {
        const arena_loan memory = c.lend();
        pull(*memory, detail::rows_of_tokens(grouping, s.active, e, first, last));
      }
    });
  } else {
    inputs.convert_all(c);
    outputs.convert_all(c);
  }

  // Of the weights. An expert that takes a large part of all rows is cut into pieces; all but its first one have weight
  // gradients of their own, which are added afterwards.
  const std::int64_t share = (gate.rows + policy::expert_pieces - 1) / policy::expert_pieces;
  const std::int64_t most = (std::max)((share + chunk - 1) / chunk, std::int64_t{2}) * chunk;
  const std::span<const detail::expert_rows> pieces = detail::cut_by_expert(shared, grouping, most);
  const std::int64_t matrix = width * hidden;
  const std::span<float*> partial = shared.take<float*>(static_cast<std::int64_t>(pieces.size()));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    partial[i] = pieces[i].part == 0 ? nullptr : shared.take<float>(3 * matrix).data();
  }
  c.for_each(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t task) {
    const detail::expert_rows piece = pieces[task];
    const arena_loan memory = c.lend();
    if (!by_block) pull(*memory, piece);
    // As many rows at once as in the next product, or nearly: the sums of few rows cost as much to add as those of
    // many.
    const std::int64_t all = piece.last - piece.first;
    const std::int64_t at_once = detail::expert_gradient_rows<Element>(width);
    const std::int64_t longest = detail::even_share(all, at_once);
    Element* block_outputs = detail::take_block<Element>(*memory, longest, width);
    Element* outputs_pairs = detail::take_transposed<Element>(*memory, longest, width);
    Element* dgate_up_pairs = detail::take_transposed<Element>(*memory, longest, 2 * padded);
    const std::span<Element> packed_inputs = memory->take<Element>(packed_size<Element>(longest, width));
    const std::span<Element> packed_activations = memory->take<Element>(packed_size<Element>(longest, hidden));
    const bool in_place = piece.part == 0;
    float* to_gate = in_place ? dw_gate.data + piece.expert * matrix : partial[task];
    float* to_up = in_place ? dw_up.data + piece.expert * matrix : partial[task] + matrix;
    float* to_down = in_place ? dw_down.data + piece.expert * matrix : partial[task] + 2 * matrix;
    const std::span<std::int32_t> tokens = memory->take<std::int32_t>(longest);
    for (std::int64_t first = piece.first; first < piece.last; first += longest) {
      const std::int64_t rows = (std::min)(longest, piece.last - first);
      const bool fresh = !in_place && first == piece.first;
      const auto target = [fresh](float* to, std::int64_t stride) {
        return fresh ? overwrite(to, stride) : accumulate(to, stride);
      };
      detail::tokens_of(grouping, s.active, first, rows, tokens.data());
      detail::pack_tokens(inputs, tokens.data(), rows, packed_inputs.data());
      column_operand<Element> pulled =
          detail::transpose<Element>(row_of(dgate_up, 2 * padded, first), rows, 2 * padded, dgate_up_pairs);
      multiply(pulled, packed_operand<Element>{packed_inputs.data(), rows}, hidden, rows, width,
               target(to_gate, width));
      pulled.data += padded * word_depth<Element>;
      multiply(pulled, packed_operand<Element>{packed_inputs.data(), rows}, hidden, rows, width, target(to_up, width));
      detail::pack_block<Element>(row_of(activations, hidden, first), rows, hidden, packed_activations.data());
      detail::gather(outputs, tokens.data(), rows, block_outputs);
      multiply(detail::transpose<Element>(block_outputs, rows, width, outputs_pairs),
               packed_operand<Element>{packed_activations.data(), rows}, width, rows, hidden, target(to_down, hidden));
    }
  });
  detail::add_partial(c, pieces, partial, matrix, dw_gate, dw_up, dw_down);
  if (!to_tokens) {
    detail::combine(c, grouping, s.active, results, nullptr, 1, add ? dx.data : nullptr, dx);
  }
}

}  // namespace smelt::cpu_ops::SMELT_SET
