// What do the chosen experts do to a token? Each a SwiGLU feed-forward, summed with the router's weights.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// Grouped rows [first, last) of one expert.
struct expert_rows {
  std::int64_t expert;
  std::int64_t first;
  std::int64_t last;
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
    for (std::int64_t first = grouping.offsets[e]; first < end; first += most) {
      pieces[count++] = {e, first, (std::min)(first + most, end)};
    }
  }
  return pieces.first(static_cast<std::size_t>(count));
}

// Copies columns [col, col + cols) of the tokens of grouped rows [first, first + rows) next to each other.
inline void gather(matrix_view<const float> from, const grouping_view<>& grouping, std::int64_t active,
                   std::int64_t first, std::int64_t rows, std::int64_t col, std::int64_t cols, float* to,
                   std::int64_t stride) noexcept {
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(from.data + grouping.assignment[first + i] / active * from.cols + col, cols, to + i * stride);
  }
}

// sums[token] = or += the token's `active` grouped rows, in slot order, each times its weight (1 without weights).
inline void combine(context& c, const grouping_view<>& grouping, std::int64_t active, const float* rows,
             const float* weights, matrix_view<float> sums, bool add) {
  const std::int64_t width = sums.cols;
  c.for_chunks(sums.rows, (std::max)(policy::row_elements / width, std::int64_t{1}),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   float* to = sums.data + t * width;
                   const std::int32_t* row = grouping.row.data() + t * active;
                   for_vectors(width, [&](auto get, auto put) {
                     floats sum = add ? get(to) : floats{};
                     for (std::int64_t a = 0; a < active; ++a) {
                       const floats value = get(rows + row[a] * width);
                       sum += weights != nullptr ? value * weights[t * active + a] : value;
                     }
                     put(to, sum);
                   });
                 }
               });
}

}  // namespace detail

/// y[T,H] = sum over slots of weights * down(silu(gate x) * (up x)). Weights of all experts are stacked: w_gate and
/// w_up [E*f, H], w_down [E*H, f]. gate and up [T*k, f] are saved by grouped row. A task is some tokens of one expert.
template <class Element, ShapeOf<experts_shape> Shape>
void experts(context& c, Shape shape, matrix_view<const float> x, matrix_view<const float> w_gate,
             matrix_view<const float> w_up, matrix_view<const float> w_down, grouping_view<> grouping,
             matrix_view<const float> weights, matrix_view<float> gate, matrix_view<float> up, matrix_view<float> y) {
  const experts_shape s = shape;
  const std::int64_t width = s.width;
  const std::int64_t hidden = s.hidden;
  reference_ops::detail::check_experts<float, float>("experts", s, x, w_gate, w_up, w_down, grouping, weights, gate,
                                                     up);
  check_shape("experts", "y", y, x.rows, width);
  arena& shared = c.shared();
  const std::span<float> results = shared.take<float>(gate.rows * width);  // by grouped row
  const std::span<const detail::expert_rows> pieces = detail::cut_by_expert(shared, grouping, policy::expert_task_rows);
  c.for_each(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t task) {
    const detail::expert_rows piece = pieces[task];
    const std::int64_t stride = width + policy::row_padding;
    const arena_loan memory = c.lend();
    const std::span<float> gate_columns = memory->take<float>(packed_size<float>(width, hidden));
    const std::span<float> up_columns = memory->take<float>(packed_size<float>(width, hidden));
    const std::span<float> down_columns = memory->take<float>(packed_size<float>(hidden, width));
    const std::span<float> inputs = memory->take<float>(policy::expert_rows * stride);
    const std::span<float> activations = memory->take<float>(policy::expert_rows * hidden);
    const std::int64_t panels = panel_count(hidden);
    pack_columns(w_gate.data + piece.expert * hidden * width, width, width, hidden, 0, panels, gate_columns.data());
    pack_columns(w_up.data + piece.expert * hidden * width, width, width, hidden, 0, panels, up_columns.data());
    pack_columns(w_down.data + piece.expert * width * hidden, hidden, hidden, width, 0, panel_count(width),
                 down_columns.data());
    for (std::int64_t first = piece.first; first < piece.last; first += policy::expert_rows) {
      const std::int64_t rows = (std::min)(policy::expert_rows, piece.last - first);
      detail::gather(x, grouping, s.active, first, rows, 0, width, inputs.data(), stride);
      float* gates = gate.data + first * hidden;
      float* ups = up.data + first * hidden;
      multiply(row_operand<float>{inputs.data(), stride}, packed_operand<float>{gate_columns.data(), width}, rows, width, hidden, overwrite(gates, hidden));
      multiply(row_operand<float>{inputs.data(), stride}, packed_operand<float>{up_columns.data(), width}, rows, width, hidden, overwrite(ups, hidden));
      for_vectors(rows * hidden, [&](auto get, auto put) {
        const floats g = get(gates);
        put(activations.data(), g * sigmoid(g) * get(ups));
      });
      multiply(row_operand<float>{activations.data(), hidden}, packed_operand<float>{down_columns.data(), hidden}, rows, hidden, width, overwrite(results.data() + first * width, width));
    }
  });
  detail::combine(c, grouping, s.active, results.data(), weights.data, y, false);
}

/// dx[T,H] +=, dw_gate +=, dw_up +=, dw_down += and dweights[T,k] (overwritten) from dy[T,H]. Gradients of experts
/// without tokens keep their bits.
template <class Element, ShapeOf<experts_shape> Shape>
void experts_backward(context& c, Shape shape, matrix_view<const float> x, matrix_view<const float> w_gate,
                      matrix_view<const float> w_up, matrix_view<const float> w_down, grouping_view<> grouping,
                      matrix_view<const float> weights, matrix_view<const float> gate, matrix_view<const float> up,
                      matrix_view<const float> dy, matrix_view<float> dx, matrix_view<float> dw_gate,
                      matrix_view<float> dw_up, matrix_view<float> dw_down, matrix_view<float> dweights) {
  const experts_shape s = shape;
  const std::int64_t width = s.width;
  const std::int64_t hidden = s.hidden;
  reference_ops::detail::check_experts<float, const float>("experts_backward", s, x, w_gate, w_up, w_down, grouping,
                                                           weights, gate, up);
  reference_ops::detail::check_expert_gradients<float>("experts_backward", s, x.rows, dy, dx, dw_gate, dw_up, dw_down,
                                                       dweights);
  arena& shared = c.shared();
  const std::int64_t assignments = gate.rows;
  const std::span<float> dgate = shared.take<float>(assignments * hidden);
  const std::span<float> dup = shared.take<float>(assignments * hidden);
  const std::span<float> activation = shared.take<float>(assignments * hidden);  // times the router's weight
  const std::span<float> dresults = shared.take<float>(assignments * width);
  const std::span<const detail::expert_rows> pieces = detail::cut_by_expert(shared, grouping, policy::expert_task_rows);

  // Gradients of the hidden layer and of the inputs, by grouped row.
  c.for_each(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t task) {
    const detail::expert_rows piece = pieces[task];
    const std::int64_t stride = width + policy::row_padding;
    const arena_loan memory = c.lend();
    const std::span<float> down_rows = memory->take<float>(packed_size<float>(width, hidden));
    const std::span<float> gate_rows = memory->take<float>(packed_size<float>(hidden, width));
    const std::span<float> up_rows = memory->take<float>(packed_size<float>(hidden, width));
    const std::span<float> outputs = memory->take<float>(policy::expert_rows * stride);
    const std::span<float> pulled = memory->take<float>(policy::expert_rows * hidden);
    const auto rows_of = [](matrix_view<const float> m, std::int64_t first) {
      return [m, first](std::int64_t k) { return m.data + (first + k) * m.cols; };
    };
    pack_rows(rows_of(w_down, piece.expert * width), width, hidden, 0, panel_count(hidden), down_rows.data());
    pack_rows(rows_of(w_gate, piece.expert * hidden), hidden, width, 0, panel_count(width), gate_rows.data());
    pack_rows(rows_of(w_up, piece.expert * hidden), hidden, width, 0, panel_count(width), up_rows.data());
    for (std::int64_t first = piece.first; first < piece.last; first += policy::expert_rows) {
      const std::int64_t rows = (std::min)(policy::expert_rows, piece.last - first);
      detail::gather(dy, grouping, s.active, first, rows, 0, width, outputs.data(), stride);
      multiply(row_operand<float>{outputs.data(), stride}, packed_operand<float>{down_rows.data(), width}, rows, width, hidden, overwrite(pulled.data(), hidden));
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t assignment = grouping.assignment[first + i];
        const float weight = weights.data[assignment];
        const std::int64_t at = (first + i) * hidden;
        const float* pull = pulled.data() + i * hidden;
        floats dweight = {};
        for_vectors(hidden, [&](auto get, auto put) {
          const floats g = get(gate.data + at);
          const floats u = get(up.data + at);
          const floats sigma = sigmoid(g);
          const floats silu = g * sigma;
          const floats active = silu * u;
          const floats p = get(pull);
          dweight += p * active;
          const floats dactive = p * weight;
          put(activation.data() + at, active * weight);
          put(dup.data() + at, dactive * silu);
          put(dgate.data() + at, dactive * u * (sigma * (1.0F + g * (1.0F - sigma))));
        });
        dweights.data[assignment] = sum_lanes(dweight);
      }
      float* dresult = dresults.data() + first * width;
      multiply(row_operand<float>{dgate.data() + first * hidden, hidden}, packed_operand<float>{gate_rows.data(), hidden}, rows, hidden, width, overwrite(dresult, width));
      multiply(row_operand<float>{dup.data() + first * hidden, hidden}, packed_operand<float>{up_rows.data(), hidden}, rows, hidden, width, accumulate(dresult, width));
    }
  });
  detail::combine(c, grouping, s.active, dresults.data(), nullptr, dx, true);

  // Gradients of the weights: a task owns some rows of one expert's matrices and walks the expert's tokens in order.
  const std::int64_t block = policy::expert_gradient_rows;
  const std::int64_t hidden_blocks = (hidden + block - 1) / block;
  const std::int64_t width_blocks = (width + block - 1) / block;
  c.for_each(s.experts * (hidden_blocks + width_blocks), [&](std::int64_t task) {
    const std::int64_t e = task / (hidden_blocks + width_blocks);
    const std::int64_t part = task % (hidden_blocks + width_blocks);
    const arena_loan memory = c.lend();
    for (std::int64_t first = grouping.offsets[e]; first < grouping.offsets[e + 1]; first += policy::gradient_depth) {
      const std::int64_t depth = (std::min)(policy::gradient_depth, grouping.offsets[e + 1] - first);
      memory->reset();
      if (part < hidden_blocks) {
        const std::int64_t j = part * block;
        const std::int64_t rows = (std::min)(block, hidden - j);
        const std::span<float> inputs = memory->take<float>(packed_size<float>(policy::gradient_depth, width));
        pack_rows([&](std::int64_t i) { return x.data + grouping.assignment[first + i] / s.active * width; }, depth,
                  width, 0, panel_count(width), inputs.data());
        const std::int64_t at = first * hidden + j;
        const std::int64_t to = (e * hidden + j) * width;
        multiply(column_operand<float>{dgate.data() + at, hidden}, packed_operand<float>{inputs.data(), depth}, rows, depth, width, accumulate(dw_gate.data + to, width));
        multiply(column_operand<float>{dup.data() + at, hidden}, packed_operand<float>{inputs.data(), depth}, rows, depth, width, accumulate(dw_up.data + to, width));
      } else {
        const std::int64_t h = (part - hidden_blocks) * block;
        const std::int64_t rows = (std::min)(block, width - h);
        const std::int64_t stride = rows + policy::row_padding;
        const std::span<float> outputs = memory->take<float>(policy::gradient_depth * (block + policy::row_padding));
        const std::span<float> inputs = memory->take<float>(packed_size<float>(policy::gradient_depth, hidden));
        detail::gather(dy, grouping, s.active, first, depth, h, rows, outputs.data(), stride);
        pack_rows([&](std::int64_t i) { return activation.data() + (first + i) * hidden; }, depth, hidden, 0,
                  panel_count(hidden), inputs.data());
        multiply(column_operand<float>{outputs.data(), stride}, packed_operand<float>{inputs.data(), depth}, rows, depth, hidden, accumulate(dw_down.data + (e * width + h) * hidden, hidden));
      }
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
