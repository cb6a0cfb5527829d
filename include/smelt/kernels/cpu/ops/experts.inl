// What do the chosen experts do to a token? Each a SwiGLU feed-forward, summed with the router's weights.
//
// A task takes the tokens of one expert, some at a time, so that the expert's weights and what is made of the tokens
// stay in the second-level cache through all of its products. What an expert gives for a token waits in a row of its
// own until the token's rows are added in the order of its slots.

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
    const std::int64_t unit = k % padded;
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

  // An expert's panels have `size` elements. A kept copy goes by the weight's address `name` and the form.
  expert_panels(context& c, const stacked_weights& weights, std::int64_t rows, const float* name, weight_form form,
                std::int64_t size, pack_function pack)
      : weights_(weights), size_(size), pack_(pack) {
    if (!c.panels().held()) return;
    if (rows < weights.experts) {
      kept_ = c.panels().find<Element>(name, form);
      return;
    }
    kept_ = c.packed_weight<Element>(c.shared(), name, form, weights.experts * size, [&](Element* to) {
      c.for_each(weights.experts, [&](std::int64_t e) {
        const arena_loan memory = c.lend();
        pack(*memory, weights[e], to + e * size);
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

// Rows an expert's task takes at once.
template <class Element>
inline constexpr std::int64_t expert_chunk = policy::expert_rows * word_depth<Element>;

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

// Brings near the row of the token `ahead` of the i-th one.
inline void prefetch_row(matrix_view<const float> from, const std::int32_t* tokens, std::int64_t i,
                         std::int64_t rows) noexcept {
  constexpr std::int64_t ahead = 6;
  if (i + ahead >= rows) return;
  const float* row = from.data + tokens[i + ahead] * from.cols;
  for (std::int64_t k = 0; k < from.cols; k += 16) __builtin_prefetch(row + k, 0, 3);
}

// The tokens' rows of `from` as a block of rows.
template <class Element>
void gather(matrix_view<const float> from, const std::int32_t* tokens, std::int64_t rows, Element* to) noexcept {
  const std::int64_t stride = block_stride<Element>(from.cols);
  for (std::int64_t i = 0; i < rows; ++i) {
    prefetch_row(from, tokens, i, rows);
    const float* row = from.data + tokens[i] * from.cols;
#if SMELT_BF16
    if constexpr (std::is_same_v<Element, bf16>) {
      convert_rows(row, from.cols, 1, from.cols, to + i * stride * 2, stride);
    } else {
      for_vectors(from.cols, [&](auto get, auto put) { put(to + i * stride, get(row)); });
    }
#else
    for_vectors(from.cols, [&](auto get, auto put) { put(to + i * stride, get(row)); });
#endif
  }
}

// The tokens' rows of `from` as the right operand of a product over the tokens.
template <class Element>
void pack_tokens(matrix_view<const float> from, const std::int32_t* tokens, std::int64_t rows, Element* to) noexcept {
  constexpr std::int64_t step = word_depth<Element>;
  const std::int64_t depth = words<Element>(rows);
  for (std::int64_t k = 0; k < rows; k += step) {
    for (std::int64_t i = k; i < k + step; ++i) prefetch_row(from, tokens, i, rows);
    const float* row = from.data + tokens[k] * from.cols;
    const float* next = step == 2 && k + 1 < rows ? from.data + tokens[k + 1] * from.cols : nullptr;
    std::int64_t first = 0;
    Element* panel = to + k * panel_width;
    for (; first + panel_width <= from.cols; first += panel_width, panel += depth * panel_width * step) {
      for (std::int64_t i = 0; i < panel_width; i += lanes) {
        const floats other = next == nullptr ? floats{} : load(next + first + i);
        put_words(panel, i, make_words<Element>(load(row + first + i), other));
      }
    }
    if (first < from.cols) {
      const std::int64_t width = width_of_panel(first, from.cols);
      Element* last = to + first * depth * step + k * width;
      for (std::int64_t i = 0; i < width; i += lanes) {
        const std::int64_t left = from.cols - first - i;
        const auto get = [&](const float* at) {
          return at == nullptr ? floats{} : left >= lanes ? load(at + first + i) : load_partial(at + first + i, left);
        };
        put_words(last, i, make_words<Element>(get(row), get(next)));
      }
    }
  }
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
    using halves = std::uint16_t __attribute__((vector_size(lanes * 2)));
    using whole = std::uint32_t __attribute__((vector_size(lanes * 4)));
    const std::int64_t to_stride = pair_stride(depth);
    for (std::int64_t k = 0; k < rows; k += 2) {
      for (std::int64_t i = 0; i < depth; i += lanes) {
        const auto get = [&](std::int64_t row) {
          halves part = {};
          if (row < rows) __builtin_memcpy(&part, block + row * stride * 2 + i, sizeof part);
          return __builtin_convertvector(part, whole);
        };
        put_words(to, k / 2 * to_stride + i, (floats)(get(k) | get(k + 1) << 16));
      }
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
  float* activation;  // [rows, padded hidden]
  float* dots;        // [rows, lanes]

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
      store(activation + row * padded + unit, active * factor[row]);
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
  const detail::expert_panels<Element> gate_up(c, stacked, gate.rows, w_gate.data, weight_form::transposed,
                                               packed_size<Element>(width, 2 * padded),
                                               detail::pack_gate_up_columns<Element>);
  const detail::expert_panels<Element> down(c, stacked, gate.rows, w_down.data, weight_form::transposed,
                                            packed_size<Element>(hidden, width), detail::pack_down_columns<Element>);
  arena& shared = c.shared();
  // A token's only row is its result.
  const bool alone = s.active == 1;
  float* results = alone ? y.data : shared.take<float>(gate.rows * width).data();
  const float* from = alone ? residual.data : nullptr;
  const std::span<const detail::expert_rows> pieces = detail::cut_by_expert(shared, grouping, policy::expert_task_rows);
  c.for_each(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t task) {
    constexpr std::int64_t chunk = detail::expert_chunk<Element>;
    const detail::expert_rows piece = pieces[task];
    const detail::expert_weights w = stacked[piece.expert];
    const arena_loan memory = c.lend();
    std::int32_t tokens[chunk];
    std::int32_t places[chunk];
    float factors[chunk];
    const auto describe = [&](std::int64_t first, std::int64_t rows) {
      detail::tokens_of(grouping, s.active, first, rows, tokens);
      for (std::int64_t i = 0; i < rows; ++i) {
        places[i] = alone ? tokens[i] : static_cast<std::int32_t>(first + i);
        factors[i] = alone ? static_cast<float>(scale) * weights.data[grouping.assignment[first + i]] : 1.0F;
      }
    };
    if (!gate_up.kept() && piece.last - piece.first < policy::few_rows) {
      describe(piece.first, piece.last - piece.first);
      const std::span<float> activation = memory->take<float>(hidden);
      for (std::int64_t i = 0; i < piece.last - piece.first; ++i) {
        const std::int64_t at = (piece.first + i) * hidden;
        detail::expert_row(w, x.data + tokens[i] * width, gate.data + at, up.data + at, activation.data(), factors[i],
                           from == nullptr ? nullptr : from + places[i] * width, results + places[i] * width);
      }
      return;
    }
    const Element* gate_up_panels = gate_up.of(*memory, piece.expert);
    const Element* down_panels = down.of(*memory, piece.expert);
    Element* inputs = detail::take_block<Element>(*memory, chunk, width);
    Element* activations = detail::take_block<Element>(*memory, chunk, hidden);
    for (std::int64_t first = piece.first; first < piece.last; first += chunk) {
      const std::int64_t rows = (std::min)(chunk, piece.last - first);
      describe(first, rows);
      detail::gather(x, tokens, rows, inputs);
      multiply(row_operand<Element>{inputs, detail::block_stride<Element>(width)},
               packed_operand<Element>{gate_up_panels, width}, rows, width, 2 * padded,
               detail::activate<Element>{gate.data + first * hidden, up.data + first * hidden, hidden, activations});
      multiply(row_operand<Element>{activations, detail::block_stride<Element>(hidden)},
               packed_operand<Element>{down_panels, hidden}, rows, hidden, width,
               detail::spread{places, factors, results, from, width});
    }
  });
  if (!alone) {
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
  const detail::expert_panels<Element> gate_up(c, stacked, gate.rows, w_gate.data, weight_form::as_stored,
                                               packed_size<Element>(2 * padded, width),
                                               detail::pack_gate_up_rows<Element>);
  const detail::expert_panels<Element> down(c, stacked, gate.rows, w_down.data, weight_form::as_stored,
                                            packed_size<Element>(width, hidden), detail::pack_down_rows<Element>);
  arena& shared = c.shared();
  const bool alone = s.active == 1;
  float* results = alone ? dx.data : shared.take<float>(gate.rows * width).data();
  const float* from = alone && add ? dx.data : nullptr;

  // An expert that takes a large part of all rows is cut into pieces; all but its first one have weight gradients of
  // their own, which are added afterwards.
  constexpr std::int64_t chunk = detail::expert_chunk<Element>;
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
    const Element* gate_up_panels = gate_up.of(*memory, piece.expert);
    const Element* down_panels = down.of(*memory, piece.expert);
    Element* outputs = detail::take_block<Element>(*memory, chunk, width);
    Element* outputs_pairs = detail::take_transposed<Element>(*memory, chunk, width);
    Element* dgate_up = detail::take_block<Element>(*memory, chunk, 2 * padded);
    Element* dgate_up_pairs = detail::take_transposed<Element>(*memory, chunk, 2 * padded);
    const std::span<float> activations = memory->take<float>(chunk * padded);
    const std::span<float> dots = memory->take<float>(chunk * lanes);
    const std::span<Element> packed_inputs = memory->take<Element>(packed_size<Element>(chunk, width));
    const std::span<Element> packed_activations = memory->take<Element>(packed_size<Element>(chunk, hidden));
    const bool in_place = piece.part == 0;
    float* to_gate = in_place ? dw_gate.data + piece.expert * matrix : partial[task];
    float* to_up = in_place ? dw_up.data + piece.expert * matrix : partial[task] + matrix;
    float* to_down = in_place ? dw_down.data + piece.expert * matrix : partial[task] + 2 * matrix;
    std::int32_t tokens[chunk];
    std::int32_t places[chunk];
    float factors[chunk];
    float ones[chunk];
    std::fill_n(ones, chunk, 1.0F);
    for (std::int64_t first = piece.first; first < piece.last; first += chunk) {
      const std::int64_t rows = (std::min)(chunk, piece.last - first);
      detail::tokens_of(grouping, s.active, first, rows, tokens);
      for (std::int64_t i = 0; i < rows; ++i) {
        places[i] = alone ? tokens[i] : static_cast<std::int32_t>(first + i);
        factors[i] = static_cast<float>(scale) * weights.data[grouping.assignment[first + i]];
      }
      // Of the hidden layer, and of the router's weights.
      detail::gather(dy, tokens, rows, outputs);
      multiply(row_operand<Element>{outputs, detail::block_stride<Element>(width)},
               packed_operand<Element>{down_panels, width}, rows, width, hidden,
               detail::activate_backward<Element>{gate.data + first * hidden, up.data + first * hidden, hidden, factors,
                                                  dgate_up, activations.data(), dots.data()});
      for (std::int64_t i = 0; i < rows; ++i) {
        dweights.data[grouping.assignment[first + i]] =
            static_cast<float>(scale) * sum_lanes(load(dots.data() + i * lanes));
      }
      // Of the inputs.
      multiply(row_operand<Element>{dgate_up, detail::block_stride<Element>(2 * padded)},
               packed_operand<Element>{gate_up_panels, 2 * padded}, rows, 2 * padded, width,
               detail::spread{places, ones, results, from, width});
      // Of the weights.
      const bool fresh = !in_place && first == piece.first;
      const auto target = [fresh](float* to, std::int64_t stride) {
        return fresh ? overwrite(to, stride) : accumulate(to, stride);
      };
      detail::pack_tokens(x, tokens, rows, packed_inputs.data());
      column_operand<Element> pulled = detail::transpose(dgate_up, rows, 2 * padded, dgate_up_pairs);
      multiply(pulled, packed_operand<Element>{packed_inputs.data(), rows}, hidden, rows, width,
               target(to_gate, width));
      pulled.data += padded * word_depth<Element>;
      multiply(pulled, packed_operand<Element>{packed_inputs.data(), rows}, hidden, rows, width, target(to_up, width));
      pack_rows([&](std::int64_t i) { return activations.data() + i * padded; }, rows, hidden, 0, panel_count(hidden),
                packed_activations.data());
      multiply(detail::transpose(outputs, rows, width, outputs_pairs),
               packed_operand<Element>{packed_activations.data(), rows}, width, rows, hidden, target(to_down, hidden));
    }
  });
  detail::add_partial(c, pieces, partial, matrix, dw_gate, dw_up, dw_down);
  if (!alone) {
    detail::combine(c, grouping, s.active, results, nullptr, 1, add ? dx.data : nullptr, dx);
  }
}

}  // namespace smelt::cpu_ops::SMELT_SET
