// What does attention read? The normed stream projected to queries, keys and values; queries and keys are normed where
// the shape says so, and turned by their positions. All of it happens to a chunk of tokens while it is in the cache.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// The angles of all positions. The positions are checked: none is negative.
[[nodiscard]] inline const rotary_table& angles_of(context& c, const attention_input_shape& s,
                                                   std::span<const std::int32_t> positions) {
  const auto greatest = std::max_element(positions.begin(), positions.end());
  return c.rotary().get({s.heads, s.head_dim, s.rotary_base},
                        greatest == positions.end() ? 0 : std::int64_t{*greatest} + 1);
}

// Row `number` of the three stored weights, one under the other: [heads * d + 2 * kv_heads * d, H].
[[nodiscard]] inline const float* stacked_row(const attention_input_shape& s,
                                              const attention_input_weights<const float>& w, std::int64_t number) {
  const std::int64_t queries = query_width(s);
  const std::int64_t keys = kv_width(s);
  const std::int64_t stride = weight_width(s);
  if (number < queries) return w.query.data + number * stride;
  number -= queries;
  return number < keys ? w.key.data + number * stride : w.value.data + (number - keys) * stride;
}

// The stacked weights packed: the right operand of [dquery dkey dvalue] [w]. The key and value that belong to a query
// weight stay the same while weights are held.
template <class Element>
[[nodiscard]] packed_operand<Element> stacked_panels(context& c, arena& shared, const attention_input_shape& s,
                                                     const attention_input_weights<const float>& w) {
  const std::int64_t depth = query_width(s) + 2 * kv_width(s);
  const panel_extents e = packed_extents<Element>({depth, s.width}, {depth, weight_width(s)}, c.panels().held());
  const auto pack = [&](Element* to) {
    c.for_each(panel_count(e.cols), [&](std::int64_t panel) {
      pack_rows<Element>([&](std::int64_t k) { return stacked_row(s, w, k); }, depth, e.cols, panel, panel + 1, to);
    });
  };
  const std::int64_t size = packed_size<Element>(depth, e.cols);
  return {c.packed_weight<Element>(shared, w.query.data, weight_form::stacked, e, size, pack), depth};
}

// Their transpose packed: the right operand of n [w]^T.
template <class Element>
[[nodiscard]] packed_operand<Element> stacked_transposed_panels(context& c, arena& shared,
                                                                const attention_input_shape& s,
                                                                const attention_input_weights<const float>& w) {
  const std::int64_t out = query_width(s) + 2 * kv_width(s);
  const panel_extents e = packed_extents<Element>({s.width, out}, {weight_width(s), out}, c.panels().held());
  const auto pack = [&](Element* to) {
    c.for_each(panel_count(out), [&](std::int64_t panel) {
      const arena_loan memory = c.lend();
      const std::int64_t first = panel * panel_width;
      const std::int64_t count = (std::min)(panel_width, out - first);
      const std::span<float> rows = memory->take<float>(count * e.depth);
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(stacked_row(s, w, first + i), e.depth, rows.data() + i * e.depth);
      }
      // A panel of its own, as wide as it is among the others.
      pack_columns<Element>(rows.data(), e.depth, e.depth, count, 0, 1,
                            to + first * words<Element>(e.depth) * word_depth<Element>);
    });
  };
  const std::int64_t size = packed_size<Element>(e.depth, out);
  return {c.packed_weight<Element>(shared, w.query.data, weight_form::stacked_transposed, e, size, pack), e.depth};
}

// Packs x * inv_rms * gain of rows [first, last), `first` a whole number of words, into the right operand of all rows.
template <class Element>
void pack_normed(matrix_view<const float> x, std::span<const float> gain, std::span<const float> inv_rms,
                 std::int64_t first, std::int64_t last, Element* packed) {
  constexpr std::int64_t step = word_depth<Element>;
  const std::int64_t depth_words = words<Element>(x.rows);
  for (std::int64_t t = first; t < last; t += step) {
    const float* even = x.data + t * x.cols;
    const float* odd = step == 2 && t + 1 < last ? even + x.cols : nullptr;
    const float even_scale = inv_rms[t];
    const float odd_scale = odd == nullptr ? 0.0F : inv_rms[t + 1];
    for (std::int64_t col = 0; col < x.cols; col += panel_width) {
      const std::int64_t width = width_of_panel(col, x.cols);
      const std::int64_t word = col * depth_words + t / step * width;
      for (std::int64_t i = 0; i < width; i += lanes) {
        const std::int64_t left = x.cols - col - i;
        const auto get = [&](const float* from) {
          return left >= lanes ? load(from + col + i) : left > 0 ? load_partial(from + col + i, left) : floats{};
        };
        const floats g = get(gain.data());
        put_words(
            packed, word + i,
            make_words<Element>(get(even) * even_scale * g, odd == nullptr ? floats{} : get(odd) * odd_scale * g));
      }
    }
  }
}

// Rows of floats, `stride` apart, as words whose columns are contiguous: a left operand read by columns, `stride` words
// apart. The stride is a whole number of vectors; what stands behind the columns is converted too.
template <class Element>
void pair_rows(const float* from, std::int64_t rows, std::int64_t stride, Element* to) {
  for (std::int64_t t = 0; t < rows; t += 2) {
    for (std::int64_t i = 0; i < stride; i += lanes) {
      put_words(to, t / 2 * stride + i,
                make_words<Element>(load(from + t * stride + i),
                                    t + 1 < rows ? load(from + (t + 1) * stride + i) : floats{}));
    }
  }
}

}  // namespace detail

/// query, key and value [T, ...] for x[T,H]: n = RMSNorm(x), projected by the three weights; queries and keys are then
/// normed as the shape says and turned by positions[T] (pair i of every head by position * base^(-2i/d)). Throws
/// invalid_argument for an odd head size or a negative position. The angles of every position up to the greatest are
/// kept: 4 * d bytes for each.
template <class Element, ShapeOf<attention_input_shape> Shape>
void attention_input(context& c, Shape shape, matrix_view<const float> x, const attention_input_weights<const float>& w,
                     std::span<const std::int32_t> positions, const attention_input_saved<float>& saved,
                     const query_key_value<float>& out) {
  const attention_input_shape s = shape;
  reference_ops::detail::check_attention_input<float>("attention_input", s, x, w, positions, saved);
  reference_ops::detail::check_query_key_value("attention_input", s, x.rows, out);
  const std::int64_t width = s.width;
  const auto eps = static_cast<float>(s.eps);
  const rotary_table& angles = detail::angles_of(c, s, positions);
  arena& shared = c.shared();
  const packed_operand<Element> panels = detail::stacked_transposed_panels<Element>(c, shared, s, w);
  const std::int64_t queries = query_width(s);
  const std::int64_t keys = kv_width(s);
  const std::int64_t padded = (queries + 2 * keys + lanes - 1) / lanes * lanes;
  const bool normed_heads = s.norm != qk_norm::none;
  const auto norm_rows = [&](std::int64_t first, std::int64_t last, float* to) {
    for (std::int64_t t = first; t < last; ++t, to += width) {
      saved.inv_rms[t] = detail::norm_row(x.data + t * width, w.norm.data(), width, eps, to);
    }
  };
  const auto copy_row = [](const float* from, std::int64_t size, float* to) {
    for_vectors(size, [&](auto get, auto put) { put(to, get(from)); });
  };
  // From projected rows [last - first, ...], `stride` apart.
  const auto finish_rows = [&](std::int64_t first, std::int64_t last, const float* projected, std::int64_t stride) {
    const auto norm_and_turn = [&](const float* from, matrix_view<float> raw, std::span<const float> gain,
                                   std::span<float> inv_rms, matrix_view<float> to) {
      const std::int64_t norm_width = normed_heads ? static_cast<std::int64_t>(gain.size()) : to.cols;
      const std::int64_t norms = to.cols / norm_width;
      for (std::int64_t t = first; t < last; ++t, from += stride) {
        float* row = to.data + t * to.cols;
        if (normed_heads) {
          copy_row(from, to.cols, raw.data + t * to.cols);
          for (std::int64_t n = 0; n < norms; ++n) {
            inv_rms[t * norms + n] =
                detail::norm_row(from + n * norm_width, gain.data(), norm_width, eps, row + n * norm_width);
          }
        }
        detail::rotate_row(normed_heads ? row : from, angles.at(positions[t]), to.cols / s.head_dim, s.head_dim, 1.0F,
                           row);
      }
    };
    norm_and_turn(projected, saved.raw_query, w.query_norm, saved.query_inv_rms, out.query);
    norm_and_turn(projected + queries, saved.raw_key, w.key_norm, saved.key_inv_rms, out.key);
    for (std::int64_t t = first; t < last; ++t, projected += stride) {
      copy_row(projected + queries + keys, keys, out.value.data + t * keys);
    }
  };
  if (x.rows < policy::few_rows) {
    // All there is to share among the cores are the weights.
    const std::span<float> normed = shared.take<float>(x.rows * width);
    const std::span<float> projected = shared.take<float>(x.rows * padded);
    norm_rows(0, x.rows, normed.data());
    detail::project(c, 1.0F, matrix_view<const float>(normed.data(), x.rows, width), panels, nullptr,
                    matrix_view<float>(projected.data(), x.rows, padded));
    finish_rows(0, x.rows, projected.data(), padded);
    return;
  }
  const std::int64_t stride = padded + policy::row_padding;
  const std::int64_t chunk = policy::even_rows(x.rows, policy::attention_input_rows);
  c.for_chunks(x.rows, chunk, [&](std::int64_t first, std::int64_t last) {
    const arena_loan memory = c.lend();
    const std::int64_t rows = last - first;
    const std::span<float> normed = memory->take<float>(rows * width);
    norm_rows(first, last, normed.data());
    const std::span<float> projected = memory->take<float>(rows * stride);
    multiply(rows_of<Element>(*memory, normed.data(), width, rows, width), panels, rows, width, padded,
             overwrite(projected.data(), stride));
    finish_rows(first, last, projected.data(), stride);
  });
}

/// dx[T,H] += and the gradients of all weights += from dout, with the forward pass's inputs and what it saved. Gains'
/// gradients are summed by chunk of tokens, then over the chunks in order; a task owns a block of a weight's gradient
/// and walks all tokens in order.
template <class Element, ShapeOf<attention_input_shape> Shape>
void attention_input_backward(context& c, Shape shape, matrix_view<const float> x,
                              const attention_input_weights<const float>& w, std::span<const std::int32_t> positions,
                              const attention_input_saved<const float>& saved, const query_key_value<const float>& dout,
                              matrix_view<float> dx, const attention_input_weights<float>& dw) {
  const attention_input_shape s = shape;
  reference_ops::detail::check_attention_input<float>("attention_input_backward", s, x, w, positions, saved);
  reference_ops::detail::check_query_key_value("attention_input_backward", s, x.rows, dout);
  check_shape("attention_input_backward", "dx", dx, x.rows, s.width);
  reference_ops::detail::check_attention_weights("attention_input_backward", s, dw);
  static_assert(policy::even_rows_step % word_depth<Element> == 0);
  constexpr bool converted = !std::is_same_v<Element, float>;
  const std::int64_t tokens = x.rows;
  const std::int64_t width = s.width;
  const std::int64_t queries = query_width(s);
  const std::int64_t keys = kv_width(s);
  const std::int64_t all = queries + 2 * keys;
  const std::int64_t stride = (all + lanes - 1) / lanes * lanes + policy::row_padding;
  const bool normed_heads = s.norm != qk_norm::none;
  const rotary_table& angles = detail::angles_of(c, s, positions);
  arena& shared = c.shared();
  const packed_operand<Element> panels = detail::stacked_panels<Element>(c, shared, s, w);
  // Gradients of the projections' outputs of all tokens, side by side, as a left operand read by columns; and the
  // projections' input, packed.
  const std::span<Element> pulled = shared.take<Element>(words<Element>(tokens) * stride * word_depth<Element>);
  const std::span<Element> input = shared.take<Element>(packed_size<Element>(tokens, width));
  const std::int64_t chunk = policy::even_rows(tokens, policy::attention_input_rows);
  const std::int64_t chunks = (tokens + chunk - 1) / chunk;
  const std::int64_t query_gains = static_cast<std::int64_t>(dw.query_norm.size());
  const std::int64_t key_gains = static_cast<std::int64_t>(dw.key_norm.size());
  const std::int64_t gains = width + query_gains + key_gains;
  const std::span<float> gain_sums = shared.take<float>(chunks * gains);
  c.for_chunks(tokens, chunk, [&](std::int64_t first, std::int64_t last) {
    const arena_loan memory = c.lend();
    const std::int64_t rows = last - first;
    float* sums = gain_sums.data() + first / chunk * gains;
    std::fill_n(sums, gains, 0.0F);
    Element* words_of_chunk = pulled.data() + first * stride;
    float* gradients;
    if constexpr (converted) {
      gradients = memory->take<float>(rows * stride).data();
    } else {
      gradients = words_of_chunk;
    }
    const auto turn_back = [&](matrix_view<const float> from, matrix_view<const float> raw, std::span<const float> gain,
                               std::span<const float> inv_rms, float* to, float* dgain) {
      const std::int64_t norm_width = normed_heads ? static_cast<std::int64_t>(gain.size()) : from.cols;
      const std::int64_t norms = from.cols / norm_width;
      for (std::int64_t t = first; t < last; ++t, to += stride) {
        detail::rotate_row(from.data + t * from.cols, angles.at(positions[t]), from.cols / s.head_dim, s.head_dim,
                           -1.0F, to);
        for (std::int64_t n = 0; normed_heads && n < norms; ++n) {
          float* part = to + n * norm_width;
          detail::norm_row_backward(raw.data + t * from.cols + n * norm_width, gain.data(), inv_rms[t * norms + n],
                                    norm_width, part, nullptr, part, dgain);
        }
      }
    };
    turn_back(dout.query, saved.raw_query, w.query_norm, saved.query_inv_rms, gradients, sums + width);
    turn_back(dout.key, saved.raw_key, w.key_norm, saved.key_inv_rms, gradients + queries, sums + width + query_gains);
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* from = dout.value.data + (first + i) * keys;
      float* to = gradients + i * stride + queries + keys;
      for_vectors(keys, [&](auto get, auto put) { put(to, get(from)); });
      std::fill_n(to + keys, stride - all, 0.0F);
    }
    if constexpr (converted) detail::pair_rows(gradients, rows, stride, words_of_chunk);
    detail::pack_normed(x, w.norm, saved.inv_rms, first, last, input.data());
    const std::span<float> dnormed = memory->take<float>(rows * width);
    multiply(rows_of<Element>(*memory, gradients, stride, rows, all), panels, rows, all, width,
             overwrite(dnormed.data(), width));
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t t = first + i;
      float* to = dx.data + t * width;
      detail::norm_row_backward(x.data + t * width, w.norm.data(), saved.inv_rms[t], width, dnormed.data() + i * width,
                                to, to, sums);
    }
  });
  detail::add_sums(gain_sums.data(), chunks, gains, width, dw.norm.data());
  detail::add_sums(gain_sums.data() + width, chunks, gains, query_gains, dw.query_norm.data());
  detail::add_sums(gain_sums.data() + width + query_gains, chunks, gains, key_gains, dw.key_norm.data());

  // Blocks of the three gradients: none reaches over two of them.
  struct block_rows {
    float* to;
    std::int64_t col;  // in `pulled`
    std::int64_t count;
  };
  const std::int64_t query_blocks = (queries + policy::gradient_rows - 1) / policy::gradient_rows;
  const std::int64_t key_blocks = (keys + policy::gradient_rows - 1) / policy::gradient_rows;
  const auto rows_of_block = [&](std::int64_t block) -> block_rows {
    const auto part = [](matrix_view<float> to, std::int64_t col, std::int64_t number) -> block_rows {
      const std::int64_t row = number * policy::gradient_rows;
      return {to.data + row * to.cols, col + row, (std::min)(policy::gradient_rows, to.rows - row)};
    };
    if (block < query_blocks) return part(dw.query, 0, block);
    block -= query_blocks;
    return block < key_blocks ? part(dw.key, queries, block) : part(dw.value, queries + keys, block - key_blocks);
  };
  // Blocks of the same columns follow each other: those of values are smaller than those of queries.
  const std::int64_t down = query_blocks + 2 * key_blocks;
  const std::int64_t across = (width + policy::gradient_cols - 1) / policy::gradient_cols;
  c.for_each(down * across, [&](std::int64_t task) {
    const block_rows block = rows_of_block(task % down);
    const std::int64_t col = task / down * policy::gradient_cols;
    const std::int64_t cols = (std::min)(policy::gradient_cols, width - col);
    for (std::int64_t first = 0; first < tokens; first += policy::gradient_depth) {
      multiply(
          column_operand<Element>{pulled.data() + first * stride + block.col * word_depth<Element>, stride},
          packed_operand<Element>{input.data() + col * words<Element>(tokens) * word_depth<Element>, tokens, first},
          block.count, (std::min)(policy::gradient_depth, tokens - first), cols,
          accumulate(block.to + col, weight_width(s)));
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
