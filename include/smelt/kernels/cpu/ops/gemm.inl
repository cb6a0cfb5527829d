// How is a matrix product computed? The right operand packed in panels, the left one read by rows or by columns, and a
// tile of sums held in registers, handed to an epilogue when they are complete. Every element is one sum over the depth
// in order, so it depends neither on the other rows and columns nor on who computes them. An operand's element is a
// float, or a bf16 whose products are summed in float; all of them are read as words of 32 bits, a float or two bf16
// that follow each other along the depth.

// A function of a product, which is much to compile. g++ would make more of it, for arguments that it knows.
#if defined(__clang__)
#define SMELT_ONCE [[gnu::noinline]]
#else
#define SMELT_ONCE [[gnu::noinline, gnu::noclone]]
#endif

namespace smelt::cpu_ops::SMELT_SET {

/// Elements along the depth in a word.
template <class Element>
inline constexpr std::int64_t word_depth = 4 / std::int64_t{sizeof(Element)};

/// Words along a depth of so many elements.
template <class Element>
[[nodiscard]] constexpr std::int64_t words(std::int64_t depth) noexcept {
  return (depth + word_depth<Element> - 1) / word_depth<Element>;
}

inline constexpr policy::register_tile gemm_tile = policy::gemm_tile(SMELT_VECTOR_REGISTERS);

/// Vectors and columns of a panel of the right operand.
inline constexpr int panel_vectors = 2;
inline constexpr std::int64_t panel_width = panel_vectors * lanes;

/// A left operand whose rows are contiguous: word k of row i at data + (i * stride + k) words.
template <class Element>
struct row_operand {
  using element = Element;
  const Element* data = nullptr;
  std::int64_t stride = 0;  ///< in words
};

/// A left operand whose columns are contiguous: word k of row i at data + (k * stride + i) words.
template <class Element>
struct column_operand {
  using element = Element;
  const Element* data = nullptr;
  std::int64_t stride = 0;  ///< in words
};

/// The right operand: a packed matrix of `depth` elements, read from element `first` on (a whole number of words).
template <class Element>
struct packed_operand {
  using element = Element;
  const Element* data = nullptr;
  std::int64_t depth = 0;
  std::int64_t first = 0;
};

/// A right operand that is read where it is: row k of the depth at data + k * stride. Its columns are whole panels.
struct stored_operand {
  using element = float;
  const float* data = nullptr;
  std::int64_t stride = 0;
};

/// Elements of a packed [depth, cols] right operand: panels of [words][panel_width] words, the last one narrower when
/// its columns fit in fewer vectors, and padded with zeros to whole vectors and whole words.
template <class Element>
[[nodiscard]] constexpr std::int64_t packed_size(std::int64_t depth, std::int64_t cols) noexcept {
  return words<Element>(depth) * word_depth<Element> * ((cols + lanes - 1) / lanes * lanes);
}

/// Whether the leading `part` of something that is packed in steps ends where a step of `whole` does.
[[nodiscard]] constexpr bool ends_with_step(std::int64_t part, std::int64_t whole, std::int64_t step) noexcept {
  return part == whole || part % step == 0;
}

/// What to pack of a weight for products with its leading `part`: all of it, so that products with the weight and with
/// its parts share one copy, if somebody `keeps` it and the part ends with words and panels that are there in both.
template <class Element>
[[nodiscard]] constexpr panel_extents packed_extents(panel_extents part, panel_extents whole, bool keeps) noexcept {
  return keeps && ends_with_step(part.depth, whole.depth, word_depth<Element>) &&
                 ends_with_step(part.cols, whole.cols, panel_width)
             ? whole
             : part;
}

/// Number of panels of an operand with so many columns.
[[nodiscard]] constexpr std::int64_t panel_count(std::int64_t cols) noexcept {
  return (cols + panel_width - 1) / panel_width;
}

namespace detail {

// Width of the panel that starts at column `first`.
[[nodiscard]] constexpr std::int64_t width_of_panel(std::int64_t first, std::int64_t cols) noexcept {
  return (std::min)(panel_width, (cols - first + lanes - 1) / lanes * lanes);
}

template <class Element>
[[nodiscard]] inline float word_at(const Element* data, std::int64_t index) noexcept {
  float word;
  __builtin_memcpy(&word, reinterpret_cast<const char*>(data) + index * 4, 4);
  return word;
}

template <class Element>
[[nodiscard]] inline floats words_at(const Element* data, std::int64_t index) noexcept {
  floats value;
  __builtin_memcpy(&value, reinterpret_cast<const char*>(data) + index * 4, sizeof value);
  return value;
}

template <class Element>
inline void put_words(Element* data, std::int64_t index, floats value) noexcept {
  __builtin_memcpy(reinterpret_cast<char*>(data) + index * 4, &value, sizeof value);
}

// One word in all lanes.
[[nodiscard]] inline floats broadcast_word(float word) noexcept {
  return word - floats{};
}

// sums + left * right, word by word.
template <class Element>
[[nodiscard, gnu::always_inline]] inline floats multiply_add(floats sums, float left, floats right) noexcept {
#if SMELT_BF16
  if constexpr (std::is_same_v<Element, bf16>) {
    return (floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)(__m512)broadcast_word(left), (__m512bh)(__m512)right);
  } else {
    return fused(broadcast_word(left), right, sums);
  }
#else
  static_assert(std::is_same_v<Element, float>);
  return fused(broadcast_word(left), right, sums);
#endif
}

// A vector of words whose elements along the depth are those of `first` and, for two elements in a word, of `second`.
template <class Element>
[[nodiscard]] inline floats make_words(floats first, [[maybe_unused]] floats second) noexcept {
#if SMELT_BF16
  if constexpr (std::is_same_v<Element, bf16>) {
    using halves = std::int16_t __attribute__((vector_size(lanes * 4)));
    constexpr halves alternate = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                  8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    return (floats)_mm512_maskz_permutexvar_epi16(0xFFFFFFFF, (__m512i)alternate, both);
  } else {
    return first;
  }
#else
  static_assert(std::is_same_v<Element, float>);
  return first;
#endif
}

}  // namespace detail

/// Packs panels [first_panel, last_panel) of the operand whose row k of `cols` floats starts at row_of(k).
template <class Element, class RowOf>
void pack_rows(RowOf row_of, std::int64_t depth, std::int64_t cols, std::int64_t first_panel, std::int64_t last_panel,
               Element* packed) {
  constexpr std::int64_t step = word_depth<Element>;
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
    const std::int64_t first = panel * panel_width;
    const std::int64_t width = detail::width_of_panel(first, cols);
    const std::int64_t count = (std::min)(width, cols - first);
    std::int64_t word = first * words<Element>(depth);
    for (std::int64_t k = 0; k < depth; k += step, word += width) {
      const float* from = row_of(k) + first;
      const float* next = k + 1 < depth ? row_of(k + 1) + first : nullptr;
      for (std::int64_t i = 0; i < width; i += lanes) {
        const std::int64_t left = count - i;
        const auto get = [&](const float* row) {
          return row == nullptr ? floats{} : left >= lanes ? load(row + i) : load_partial(row + i, left);
        };
        detail::put_words(packed, word + i, detail::make_words<Element>(get(from), step == 2 ? get(next) : floats{}));
      }
    }
  }
}

/// Packs panels [first_panel, last_panel) of the operand whose column n of `depth` floats starts at source + n *
/// stride: the transpose of a matrix.
template <class Element>
void pack_columns(const float* source, std::int64_t stride, std::int64_t depth, std::int64_t cols,
                  std::int64_t first_panel, std::int64_t last_panel, Element* packed) {
  constexpr std::int64_t step = word_depth<Element>;
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
    const std::int64_t first = panel * panel_width;
    const std::int64_t width = detail::width_of_panel(first, cols);
    const std::int64_t base = first * words<Element>(depth);
    for (std::int64_t n = 0; n < width; n += lanes) {
      const std::int64_t count = (std::min)(lanes, cols - first - n);
      const float* from = source + (first + n) * stride;
      for (std::int64_t k = 0; k < depth; k += lanes) {
        const std::int64_t most = (std::min)(lanes, depth - k);
        const float* block = from + k;
        std::int64_t block_stride = stride;
        float copy[lanes][lanes];
        if (count < lanes || most < lanes) {
          for (std::int64_t i = 0; i < lanes; ++i) {
            for (std::int64_t j = 0; j < lanes; ++j) copy[i][j] = i < count && j < most ? block[i * stride + j] : 0.0F;
          }
          block = copy[0];
          block_stride = lanes;
        }
        floats square[lanes];
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) square[i] = load(block + i * block_stride);
        transpose(square);
        const std::int64_t word = base + k / step * width + n;
#pragma GCC unroll 16
        for (int i = 0; i < lanes; i += int{step}) {
          if (i >= most) break;
          detail::put_words(packed, word + i / step * width,
                            detail::make_words<Element>(square[i], square[i + step - 1]));
        }
      }
    }
  }
}

/// Words from one row to the next of a copy with so many words in a row, whole vectors: an odd number of cache lines,
/// so that rows do not fall on the same lines of a cache.
[[nodiscard]] constexpr std::int64_t spread_stride(std::int64_t row_words) noexcept {
  constexpr std::int64_t line = 16;
  return ((row_words + line - 1) / line | 1) * line;
}

#if SMELT_BF16
/// Rounds rows [rows, depth] of floats, `stride` apart, to the nearest bf16, in rows of `row_words` words.
inline void convert_rows(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t depth, bf16* to,
                         std::int64_t row_words) noexcept {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < depth; k += 2 * lanes) {
      const auto get = [&](std::int64_t at) {
        const std::int64_t left = depth - at;
        const float* source = from + i * stride + at;
        return left >= lanes ? load(source) : left > 0 ? load_partial(source, left) : floats{};
      };
      const floats low = get(k);
      const floats high = get(k + lanes);
      detail::put_words(to, i * row_words + k / 2, (floats)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
    }
  }
}
#endif

/// The rows [rows, depth] of floats, `stride` apart, as a left operand: in place, or converted into `memory`.
template <class Element>
[[nodiscard]] row_operand<Element> rows_of(arena& memory, const float* from, std::int64_t stride, std::int64_t rows,
                                           std::int64_t depth) {
  if constexpr (std::is_same_v<Element, float>) {
    return {from, stride};
  } else {
    const std::int64_t row_words = spread_stride(words<Element>(depth));
    const std::span<Element> to = memory.take<Element>(rows * row_words * word_depth<Element>);
    convert_rows(from, stride, rows, depth, to.data(), row_words);
    return {to.data(), row_words};
  }
}

/// The transpose of rows [depth, rows] of floats, `stride` apart, as a left operand: in place, or converted into
/// `memory`, or copied there when rows in place would fall on the same lines of a first-level cache.
template <class Element>
[[nodiscard]] column_operand<Element> columns_of(arena& memory, const float* from, std::int64_t stride,
                                                 std::int64_t rows, std::int64_t depth) {
  constexpr std::int64_t step = word_depth<Element>;
  if constexpr (std::is_same_v<Element, float>) {
    if (stride % policy::crowded_stride != 0) return {from, stride};
  }
  const std::int64_t col_words = spread_stride(rows);
  const std::span<Element> to = memory.take<Element>(words<Element>(depth) * col_words * step);
  for (std::int64_t k = 0; k < depth; k += step) {
    const float* first = from + k * stride;
    const float* second = k + 1 < depth ? first + stride : nullptr;
    for (std::int64_t i = 0; i < rows; i += lanes) {
      const std::int64_t left = rows - i;
      const auto get = [&](const float* row) {
        return row == nullptr ? floats{} : left >= lanes ? load(row + i) : load_partial(row + i, left);
      };
      detail::put_words(to.data(), k / step * col_words + i, detail::make_words<Element>(get(first), get(second)));
    }
  }
  return {to.data(), col_words};
}

/// Calls each(sum, get, put) for every vector of a row's sums that holds any of its first `cols` columns: get(from) and
/// put(to, value) read and write the vector's place in arrays that start at the first column.
template <int Vectors, class Each>
[[gnu::always_inline]] inline void each_vector(std::int64_t cols, const floats (&sums)[Vectors], Each each) noexcept {
#pragma GCC unroll 4
  for (int j = 0; j < Vectors; ++j) {
    const std::int64_t at = j * lanes;
    const std::int64_t left = cols - at;
    if (left >= lanes) [[likely]] {
      each(
          sums[j], [at](const float* from) { return load(from + at); },
          [at](float* to, floats value) { store(to + at, value); });
    } else if (left > 0) {
      each(
          sums[j], [at, left](const float* from) { return load_partial(from + at, left); },
          [at, left](float* to, floats value) { store_partial(to + at, value, left); });
    }
  }
}

/// Brings near as many floats as a panel has columns; they need not be there.
[[gnu::always_inline]] inline void prefetch_panel(const float* at) noexcept {
  for (std::int64_t i = 0; i < panel_width; i += 16) __builtin_prefetch(at + i, 0, 3);
}

/// An epilogue: to = scale * sum, plus `from` where there is one. `to` and `from` may be the same.
struct affine {
  float* to = nullptr;
  std::int64_t stride = 0;
  float scale = 1;
  const float* from = nullptr;
  std::int64_t from_stride = 0;

  /// Brings near what is added to.
  [[gnu::always_inline]] void prefetch(std::int64_t row, std::int64_t col) const noexcept {
    if (from != nullptr) prefetch_panel(from + row * from_stride + col);
  }

  /// Columns [col, col + cols) of a row, of which whole vectors of sums are given.
  template <int Vectors>
  [[gnu::always_inline]] void operator()(std::int64_t row, std::int64_t col, std::int64_t cols,
                                         const floats (&sums)[Vectors]) const noexcept {
    float* target = to + row * stride + col;
    if (from == nullptr) {
      each_vector(cols, sums, [&](floats sum, auto, auto put) { put(target, scale * sum); });
    } else {
      const float* source = from + row * from_stride + col;
      each_vector(cols, sums, [&](floats sum, auto get, auto put) {
        put(target, fused(broadcast(scale), sum, get(source)));
      });
    }
  }
};

/// to = sums.
[[nodiscard]] inline affine overwrite(float* to, std::int64_t stride) noexcept {
  return {.to = to, .stride = stride};
}
/// to += sums.
[[nodiscard]] inline affine accumulate(float* to, std::int64_t stride) noexcept {
  return {.to = to, .stride = stride, .scale = 1, .from = to, .from_stride = stride};
}

namespace detail {

// What all tiles of a product share.
template <class Left, class Right, class Epilogue>
struct product {
  using element = typename Left::element;
  static constexpr bool by_rows = std::is_same_v<Left, row_operand<element>>;
  static constexpr bool is_packed = std::is_same_v<Right, packed_operand<element>>;
  Left left;
  Right right;
  std::int64_t panel_words;  // of the right operand, from a whole panel to the next
  std::int64_t depth;        // in words
  Epilogue epilogue;
};

// Hands the sums of a tile to an epilogue. Most of a tile's code, and little of the time of those at the edges.
template <class Epilogue, int Panels, int Vectors>
SMELT_ONCE void finish_edge(const Epilogue& epilogue, std::int64_t row, std::int64_t rows, std::int64_t col,
                            std::int64_t cols, const floats (*sums)[Panels][Vectors]) noexcept {
  for (std::int64_t i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Panels; ++j) {
      epilogue(row + i, col + j * panel_width, Panels > 1 ? panel_width : cols, sums[i][j]);
    }
  }
}

// Sums of `Rows` rows and `Panels` panels of `Vectors` vectors, in registers. The panels' first word is the right
// operand's word `word`; `cols` columns of them are the product's. The last rows of a product are an edge.
template <int Rows, int Panels, int Vectors, bool Edge, class Product>
[[gnu::always_inline]] inline void multiply_tile(const Product& p, std::int64_t row, std::int64_t word,
                                                 std::int64_t col, std::int64_t cols) noexcept {
  using element = typename Product::element;
  constexpr bool by_rows = Product::by_rows;
  floats sums[Rows][Panels][Vectors] = {};
  // Three rows share a base pointer: base, base + stride and base + 2 * stride are all one address computation.
  constexpr int bases = (Rows + 2) / 3;
  const std::int64_t stride = p.left.stride;
  const char* base[bases];
  const auto* start = reinterpret_cast<const char*>(p.left.data);
  for (int i = 0; i < bases; ++i) base[i] = start + (by_rows ? (row + std::int64_t{3} * i) * stride : row) * 4;
  const char* right[Panels];
  for (int j = 0; j < Panels; ++j) {
    right[j] = reinterpret_cast<const char*>(p.right.data) + (word + j * p.panel_words) * 4;
  }
  std::int64_t step = Vectors * lanes;  // of the right operand, from a word of the depth to the next
  if constexpr (!Product::is_packed) step = p.right.stride;
  const std::int64_t depth = p.depth;
  const auto epilogue = p.epilogue;  // a copy of this tile's own, which no store can change
  // What the epilogue will touch comes while the sums are made.
  if constexpr (requires { epilogue.prefetch(row, col); }) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < Panels; ++j) epilogue.prefetch(row + i, col + j * panel_width);
    }
  }
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < depth; ++k) {
    floats b[Panels][Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Panels; ++j) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) b[j][v] = words_at(right[j], k * step + v * lanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const float a = by_rows ? word_at(base[i / 3], (i % 3) * stride + k) : word_at(base[0], k * stride + i);
#pragma GCC unroll 4
      for (int j = 0; j < Panels; ++j) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[i][j][v] = multiply_add<element>(sums[i][j][v], a, b[j][v]);
      }
    }
  }
  // Only the last panel holds fewer columns than its vectors.
  constexpr std::int64_t whole = Vectors * lanes;
  if (Edge || (Panels == 1 && cols < whole)) {
    floats copy[Rows][Panels][Vectors];
    __builtin_memcpy(copy, sums, sizeof copy);
    finish_edge(epilogue, row, Rows, col, cols, copy);
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Panels; ++j) epilogue(row + i, col + j * panel_width, whole, sums[i][j]);
  }
}

// Rows [row, rows) of so many panels: full tiles of `Rows`, then of the greatest power of 2 below, down to a single
// row.
template <int Rows, int Panels, int Vectors, bool Edge = false, class Product>
SMELT_ONCE void multiply_rows(const Product& p, std::int64_t row, std::int64_t rows, std::int64_t word,
                              std::int64_t col, std::int64_t cols) noexcept {
  for (; row + Rows <= rows; row += Rows) multiply_tile<Rows, Panels, Vectors, Edge>(p, row, word, col, cols);
  if constexpr (Rows > 1) {
    constexpr int fewer = int{std::bit_floor(unsigned{Rows - 1})};
    if (row < rows) multiply_rows<fewer, Panels, Vectors, true>(p, row, rows, word, col, cols);
  }
}

}  // namespace detail

/// Sums over `depth` of left[rows, depth] right[depth, cols], each row of a panel handed to epilogue(row, col, cols,
/// sums) once. `cols` is what a packed right operand was packed with, or less by whole panels.
template <class Left, class Right, class Epilogue>
SMELT_ONCE void multiply(Left left, Right right, std::int64_t rows, std::int64_t depth, std::int64_t cols,
                         Epilogue epilogue) noexcept {
  using element = typename Left::element;
  static_assert(std::is_same_v<element, typename Right::element>);
  using product = detail::product<Left, Right, Epilogue>;
  if (rows <= 0) return;
  std::int64_t panel_words = panel_width;
  if constexpr (product::is_packed) panel_words *= words<element>(right.depth);
  const product p{left, right, panel_words, words<element>(depth), epilogue};
  const auto first_word = [&](std::int64_t first, std::int64_t width) {
    if constexpr (product::is_packed) {
      return first * words<element>(right.depth) + right.first / word_depth<element> * width;
    } else {
      return first;
    }
  };
  constexpr std::int64_t step = gemm_tile.panels * panel_width;
  std::int64_t first = 0;
  for (; first + step <= cols; first += step) {
    detail::multiply_rows<gemm_tile.rows, gemm_tile.panels, panel_vectors>(p, 0, rows, first_word(first, panel_width),
                                                                           first, panel_width);
  }
  for (; first < cols; first += panel_width) {
    const std::int64_t width = detail::width_of_panel(first, cols);
    const std::int64_t word = first_word(first, width);
    const std::int64_t count = (std::min)(width, cols - first);
    if (width == panel_width) {
      detail::multiply_rows<gemm_tile.panel_rows, 1, panel_vectors>(p, 0, rows, word, first, count);
    } else if constexpr (product::is_packed) {
      detail::multiply_rows<8, 1, 1>(p, 0, rows, word, first, count);
    }
  }
}

}  // namespace smelt::cpu_ops::SMELT_SET

#undef SMELT_ONCE
