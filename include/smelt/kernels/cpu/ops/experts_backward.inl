// What are the gradients of the chosen experts? The inputs' and the hidden layer's come by blocks of tokens or by
// expert, as the forward pass goes; the weights' always by expert, over all of its rows.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// Of dy down: gradients of gate and up as a block of rows, by groups of units, the activation times its factor, and the
// lanes of the dot product of each row with its activation.
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
      dot_lanes = fused(sums[j], active, dot_lanes);
      const floats pulled = sums[j] * factor[row];
      put_units(dgate_up, stride, row, gate_place(unit), pulled * u * fused(silu, 1.0F - sigma, sigma));
      put_units(dgate_up, stride, row, up_place(unit, padded), pulled * silu);
      put_units(activation, block_stride<Element>(hidden), row, unit, active * factor[row]);
    }
    store(dots + row * lanes, dot_lanes);
  }
};

// Adds the weight gradients [gate, up, down] of the pieces that have some of their own, in order.
inline void add_partial(context& c, const experts_shape& s, std::span<const expert_rows> pieces,
                        std::span<float* const> partial, float* dw_gate, float* dw_up, float* dw_down) {
  const auto count = static_cast<std::int64_t>(pieces.size());
  bool any = false;
  for (const expert_rows& piece : pieces) any |= piece.part > 0;
  if (!any) return;
  const std::int64_t matrix = std::int64_t{s.width} * s.hidden;
  const std::int64_t stored_matrix = std::int64_t{weight_width(s)} * weight_hidden(s);
  // The pieces of an expert follow each other: a task adds rows of all of them to one of its matrices.
  const std::int64_t blocks = (matrix + policy::row_elements - 1) / policy::row_elements;
  c.for_each(count * 3 * blocks, [&](std::int64_t task) {
    const std::int64_t i = task / blocks / 3;
    const std::int64_t m = task / blocks % 3;
    if (pieces[i].part != 0) return;
    const std::int64_t rows = m < 2 ? s.hidden : s.width;
    const std::int64_t cols = m < 2 ? s.width : s.hidden;
    const std::int64_t stride = m < 2 ? weight_width(s) : weight_hidden(s);
    float* to = (m == 0 ? dw_gate : m == 1 ? dw_up : dw_down) + pieces[i].expert * stored_matrix;
    const std::int64_t of_block = (rows + blocks - 1) / blocks;
    const std::int64_t first = task % blocks * of_block;
    const std::int64_t last = (std::min)(first + of_block, rows);
    for (std::int64_t j = i + 1; j < count && pieces[j].part > 0; ++j) {
      for (std::int64_t row = first; row < last; ++row) {
        const float* more = partial[j] + m * matrix + row * cols;
        for_vectors(cols, [&](auto get, auto put) { put(to + row * stride, get(to + row * stride) + get(more)); });
      }
    }
  });
}

}  // namespace detail

/// The backward pass of scale * sum over slots of weights * expert: dx[T,H] (added to or overwritten), dw_gate +=,
/// dw_up +=, dw_down += and dweights[T,k] (overwritten) from dy[T,H]. Gradients of experts without tokens, and of what
/// is stored but not used, keep their bits.
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
  const std::int64_t stored_width = weight_width(s);
  const std::int64_t stored_hidden = weight_hidden(s);
  const detail::stacked_weights stacked{w_gate.data, w_up.data, w_down.data,  s.experts,
                                        width,       hidden,    stored_width, stored_hidden};
  const std::int64_t padded = detail::padded_hidden(hidden);
  arena& shared = c.shared();
  const std::int64_t block = policy::expert_block(s.experts, s.active, stacked.size(), x.rows);
  const bool by_block = block > 0;
  const detail::expert_panels<Element> gate_up(c, shared, stacked, by_block, grouping, w_gate.data,
                                               detail::gate_up_rows<Element>);
  const detail::expert_panels<Element> down(c, shared, stacked, by_block, grouping, w_down.data,
                                            detail::down_rows<Element>);
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
               packed_operand<Element>{down_panels, down.width()}, rows, width, hidden,
               detail::activate_backward<Element>{gate.data + first * hidden, up.data + first * hidden, hidden, factors,
                                                  pulled, row_of(activations, hidden, first), dots.data()});
      for (std::int64_t i = 0; i < rows; ++i) {
        dweights.data[grouping.assignment[first + i]] =
            static_cast<float>(scale) * sum_lanes(load(dots.data() + i * lanes));
      }
      multiply(row_operand<Element>{pulled, detail::block_stride<Element>(2 * padded)},
               packed_operand<Element>{gate_up_panels, 2 * detail::padded_hidden(gate_up.hidden())}, rows, 2 * padded,
               width, detail::spread{places, ones, results, from, width});
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
  const std::int64_t stored_matrix = stored_width * stored_hidden;
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
    float* to_gate = in_place ? dw_gate.data + piece.expert * stored_matrix : partial[task];
    float* to_up = in_place ? dw_up.data + piece.expert * stored_matrix : partial[task] + matrix;
    float* to_down = in_place ? dw_down.data + piece.expert * stored_matrix : partial[task] + 2 * matrix;
    const std::int64_t to_width = in_place ? stored_width : width;
    const std::int64_t to_hidden = in_place ? stored_hidden : hidden;
    const std::span<std::int32_t> tokens = memory->take<std::int32_t>(longest);
    for (std::int64_t first = piece.first; first < piece.last; first += longest) {
      const std::int64_t rows = (std::min)(longest, piece.last - first);
      const bool fresh = !in_place && first == piece.first;
      const auto target = [fresh](float* to, std::int64_t stride) {
        return fresh ? overwrite(to, stride) : accumulate(to, stride);
      };
      detail::tokens_of(grouping, s.active, first, rows, tokens.data());
      detail::pack_tokens(inputs, tokens.data(), rows, packed_inputs.data());
      const column_operand<Element> pulled =
          detail::transpose<Element>(row_of(dgate_up, 2 * padded, first), rows, 2 * padded, dgate_up_pairs);
      for (std::int64_t unit = 0; unit < hidden; unit += detail::unit_group) {
        const auto add_units = [&](std::int64_t place, float* to) {
          multiply(column_operand<Element>{pulled.data + place * word_depth<Element>, pulled.stride},
                   packed_operand<Element>{packed_inputs.data(), rows}, (std::min)(detail::unit_group, hidden - unit),
                   rows, width, target(to + unit * to_width, to_width));
        };
        add_units(detail::gate_place(unit), to_gate);
        add_units(detail::up_place(unit, padded), to_up);
      }
      detail::pack_block<Element>(row_of(activations, hidden, first), rows, hidden, packed_activations.data());
      detail::gather(outputs, tokens.data(), rows, block_outputs);
      multiply(detail::transpose<Element>(block_outputs, rows, width, outputs_pairs),
               packed_operand<Element>{packed_activations.data(), rows}, width, rows, hidden,
               target(to_down, to_hidden));
    }
  });
  detail::add_partial(c, s, pieces, partial, dw_gate.data, dw_up.data, dw_down.data);
  if (!to_tokens) {
    detail::combine(c, grouping, s.active, results, nullptr, 1, add ? dx.data : nullptr, dx);
  }
}

}  // namespace smelt::cpu_ops::SMELT_SET
