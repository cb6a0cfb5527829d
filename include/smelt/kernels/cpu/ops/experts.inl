// What do the chosen experts do to a token? Each a SwiGLU feed-forward, summed with the router's weights.
//
// Of many tokens a task takes a block that follow each other, and goes through the experts with those of the block that
// chose them: what an expert gives is added to the block's rows, which stay in the second-level cache, in the order of
// the experts. Of few, a task takes the tokens of one expert, and what the expert gives for a token waits in a row of
// its own until the token's rows are added in the order of its slots.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

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

}  // namespace detail

/// y[T,H] = residual[T,H] + scale * sum over slots of weights * down(silu(gate x) * (up x)); y may be the residual.
/// Weights of all experts are stacked: w_gate and w_up [E*f, H], w_down [E*H, f], of which the leading hidden units and
/// channels are used. gate and up [T*k, f] are saved by grouped row.
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
  const detail::stacked_weights stacked{w_gate.data, w_up.data, w_down.data,     s.experts,
                                        width,       hidden,    weight_width(s), weight_hidden(s)};
  const std::int64_t padded = detail::padded_hidden(hidden);
  arena& shared = c.shared();
  const std::int64_t block = policy::expert_block(s.experts, s.active, stacked.size(), x.rows);
  const bool by_block = block > 0;
  const detail::expert_panels<Element> gate_up(c, shared, stacked, by_block, grouping, w_gate.data,
                                               detail::gate_up_columns<Element>);
  const detail::expert_panels<Element> down(c, shared, stacked, by_block, grouping, w_down.data,
                                            detail::down_columns<Element>);
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
               packed_operand<Element>{gate_up_panels, gate_up.width()}, rows, width, 2 * padded,
               detail::activate<Element>{gate.data + first * hidden, up.data + first * hidden, hidden, activations});
      multiply(row_operand<Element>{activations, detail::block_stride<Element>(hidden)},
               packed_operand<Element>{down_panels, down.hidden()}, rows, hidden, width,
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

}  // namespace smelt::cpu_ops::SMELT_SET
