// What do both passes of the experts do with rows of tokens: cut, gather, pack, transpose, and add up again?

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

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
        const floats by = broadcast(factor[row]);
        put(to + at, from == nullptr ? by * sums[j] : fused(by, sums[j], get(from + at)));
      });
    }
  }
};

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

}  // namespace detail

}  // namespace smelt::cpu_ops::SMELT_SET
