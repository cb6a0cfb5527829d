// What does a token read from the tokens before it? A softmax-weighted mean of their values. A task is one sequence and
// one KV head; it walks blocks of query rows and keeps only their scores: rows x length, never length x length.

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

// What a task knows: its sequence's rows, its KV head's columns, and the keys that a block of queries sees. Row and key
// numbers are relative to the sequence.
struct attention_task {
  std::int64_t row;     // of the sequence's first token
  std::int64_t kv_col;  // of the KV head
  std::int64_t stride;  // of a block of scores

  struct block {
    std::int64_t first;   // query
    std::int64_t rows;    // queries
    std::int64_t low;     // first key that any of them sees
    std::int64_t high;    // behind the last one
    std::int64_t packed;  // first key of the panel that holds `low`
    std::int64_t cols;    // keys from `packed` to the end of the panel that holds high - 1
  };

  [[nodiscard]] block at(std::int64_t query, std::int64_t length, std::span<const std::int32_t> first) const {
    block b;
    b.first = query;
    b.rows = (std::min)(policy::attention_rows, length - query);
    b.low = query;
    for (std::int64_t i = 0; i < b.rows; ++i) b.low = (std::min)(b.low, first[row + query + i] - row);
    b.high = query + b.rows;
    b.packed = b.low / panel_width * panel_width;
    b.cols = (std::min)((b.high + panel_width - 1) / panel_width * panel_width, length) - b.packed;
    return b;
  }
};

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
  const std::int64_t group = s.heads / s.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  c.for_each(q.rows / length * s.kv_heads, [&](std::int64_t task) {
    const std::int64_t kv_head = task % s.kv_heads;
    const detail::attention_task at{.row = task / s.kv_heads * length,
                                    .kv_col = kv_head * d,
                                    .stride = (length + lanes - 1) / lanes * lanes + policy::row_padding};
    if (!detail::all_finite(v, at.row, length, at.kv_col, d)) {
      // A weight of 0 times a value that is not finite would be NaN: here masked values must not be touched at all.
      for (std::int64_t t = at.row; t < at.row + length; ++t) {
        for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          reference_ops::detail::attend<float>(s, q, k, v, first[t], t, h, out, lse);
        }
      }
      return;
    }
    const arena_loan memory = c.lend();
    const std::span<float> keys = memory->take<float>(packed_size<float>(d, length));
    const std::span<float> values = memory->take<float>(packed_size<float>(length, d));
    const std::span<float> scores = memory->take<float>(policy::attention_rows * at.stride);
    pack_columns<float>(k.data + at.row * k.cols + at.kv_col, k.cols, d, length, 0, panel_count(length), keys.data());
    pack_rows<float>([&](std::int64_t j) { return v.data + (at.row + j) * v.cols + at.kv_col; }, length, d, 0, panel_count(d),
              values.data());
    for (std::int64_t query = 0; query < length; query += policy::attention_rows) {
      const detail::attention_task::block b = at.at(query, length, first);
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        const std::int64_t offset = (at.row + query) * q.cols + h * d;
        multiply(row_operand<float>{q.data + offset, q.cols}, packed_operand<float>{keys.data() + b.packed * d, d}, b.rows, d, b.cols, overwrite(scores.data(), at.stride));
        float sums[policy::attention_rows];
        for (std::int64_t i = 0; i < b.rows; ++i) {
          const std::int64_t token = at.row + query + i;
          float* row = scores.data() + i * at.stride - b.packed;  // indexed by key
          const std::int64_t low = first[token] - at.row;
          const std::int64_t high = query + i + 1;
          const float top = greatest(row + low, high - low);
          float* seen = row + low;
          for_vectors(high - low, [&](auto get, auto put) { put(seen, exp((get(seen) - top) * scale)); });
          sums[i] = sum(seen, high - low);
          std::fill(row + b.low, row + low, 0.0F);
          std::fill(row + high, row + b.high, 0.0F);
          lse[token * s.heads + h] = top * scale + std::log(sums[i]);
        }
        multiply(row_operand<float>{scores.data() + (b.low - b.packed), at.stride}, packed_operand<float>{values.data(), length, b.low}, b.rows, b.high - b.low, d, overwrite(out.data + offset, out.cols));
        for (std::int64_t i = 0; i < b.rows; ++i) {
          float* row = out.data + offset + i * out.cols;
          const float inverse = 1.0F / sums[i];
          for_vectors(d, [&](auto get, auto put) { put(row, get(row) * inverse); });
        }
      }
    }
  });
}

/// dq, dk, dv (overwritten) from dout, with the forward pass's inputs, out and lse. The weights are computed again.
template <class Element, ShapeOf<attention_shape> Shape>
void attention_backward(context& c, Shape shape, matrix_view<const float> q, matrix_view<const float> k,
                        matrix_view<const float> v, std::span<const std::int32_t> first, std::int64_t length,
                        matrix_view<const float> out, std::span<const float> lse, matrix_view<const float> dout,
                        matrix_view<float> dq, matrix_view<float> dk, matrix_view<float> dv) {
  const attention_shape s = shape;
  reference_ops::detail::check_attention<float>("attention_backward", s, q, k, v, first, length, out, lse);
  reference_ops::detail::check_attention_gradients<float>("attention_backward", s, q.rows, dout, dq, dk, dv);
  const std::int64_t d = s.head_dim;
  const std::int64_t group = s.heads / s.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  c.for_each(q.rows / length * s.kv_heads, [&](std::int64_t task) {
    const std::int64_t kv_head = task % s.kv_heads;
    const std::int64_t head_col = kv_head * group * d;
    const detail::attention_task at{.row = task / s.kv_heads * length,
                                    .kv_col = kv_head * d,
                                    .stride = (length + lanes - 1) / lanes * lanes + policy::row_padding};
    const auto clear = [&](matrix_view<float> m, std::int64_t col, std::int64_t cols) {
      for (std::int64_t t = at.row; t < at.row + length; ++t) std::fill_n(m.data + t * m.cols + col, cols, 0.0F);
    };
    clear(dk, at.kv_col, d);
    clear(dv, at.kv_col, d);
    if (!detail::all_finite(k, at.row, length, at.kv_col, d) || !detail::all_finite(v, at.row, length, at.kv_col, d) ||
        !detail::all_finite(q, at.row, length, head_col, group * d) ||
        !detail::all_finite(dout, at.row, length, head_col, group * d)) {
      clear(dq, head_col, group * d);
      for (std::int64_t t = at.row; t < at.row + length; ++t) {
        for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          reference_ops::detail::attend_backward<float>(s, q, k, v, first[t], t, h, out, lse, dout, dq, dk, dv);
        }
      }
      return;
    }
    const arena_loan memory = c.lend();
    const std::span<float> key_columns = memory->take<float>(packed_size<float>(d, length));
    const std::span<float> value_columns = memory->take<float>(packed_size<float>(d, length));
    const std::span<float> key_rows = memory->take<float>(packed_size<float>(length, d));
    const std::span<float> query_rows = memory->take<float>(packed_size<float>(policy::attention_rows, d));
    const std::span<float> dout_rows = memory->take<float>(packed_size<float>(policy::attention_rows, d));
    const std::span<float> weights = memory->take<float>(policy::attention_rows * at.stride);
    const std::span<float> dscores = memory->take<float>(policy::attention_rows * at.stride);
    const std::int64_t kv_offset = at.row * k.cols + at.kv_col;
    pack_columns<float>(k.data + kv_offset, k.cols, d, length, 0, panel_count(length), key_columns.data());
    pack_columns<float>(v.data + kv_offset, v.cols, d, length, 0, panel_count(length), value_columns.data());
    pack_rows<float>([&](std::int64_t j) { return k.data + kv_offset + j * k.cols; }, length, d, 0, panel_count(d),
              key_rows.data());
    for (std::int64_t query = 0; query < length; query += policy::attention_rows) {
      const detail::attention_task::block b = at.at(query, length, first);
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        const std::int64_t offset = (at.row + query) * q.cols + h * d;
        multiply(row_operand<float>{q.data + offset, q.cols}, packed_operand<float>{key_columns.data() + b.packed * d, d}, b.rows, d, b.cols, overwrite(weights.data(), at.stride));
        multiply(row_operand<float>{dout.data + offset, q.cols}, packed_operand<float>{value_columns.data() + b.packed * d, d}, b.rows, d, b.cols, overwrite(dscores.data(), at.stride));
        for (std::int64_t i = 0; i < b.rows; ++i) {
          const std::int64_t token = at.row + query + i;
          float* weight = weights.data() + i * at.stride - b.packed;  // indexed by key
          float* dscore = dscores.data() + i * at.stride - b.packed;
          const std::int64_t low = first[token] - at.row;
          const std::int64_t high = query + i + 1;
          // The softmax's pull on every score: the sum of weight * dweight, which equals dout . out.
          const float mean = dot(dout.data + offset + i * q.cols, out.data + offset + i * q.cols, d);
          const float log_sum = lse[token * s.heads + h];
          float* seen = weight + low;
          float* pulled = dscore + low;
          for_vectors(high - low, [&](auto get, auto put) {
            const floats p = exp(get(seen) * scale - log_sum);
            put(seen, p);
            put(pulled, p * (get(pulled) - mean) * scale);
          });
          std::fill(weight + b.low, weight + low, 0.0F);
          std::fill(weight + high, weight + b.high, 0.0F);
          std::fill(dscore + b.low, dscore + low, 0.0F);
          std::fill(dscore + high, dscore + b.high, 0.0F);
        }
        const std::int64_t keys = b.high - b.low;
        const float* weight = weights.data() + (b.low - b.packed);
        const float* dscore = dscores.data() + (b.low - b.packed);
        multiply(row_operand<float>{dscore, at.stride}, packed_operand<float>{key_rows.data(), length, b.low}, b.rows, keys, d, overwrite(dq.data + offset, dq.cols));
        pack_rows<float>([&](std::int64_t i) { return q.data + offset + i * q.cols; }, b.rows, d, 0, panel_count(d),
                  query_rows.data());
        pack_rows<float>([&](std::int64_t i) { return dout.data + offset + i * q.cols; }, b.rows, d, 0, panel_count(d),
                  dout_rows.data());
        multiply(column_operand<float>{dscore, at.stride}, packed_operand<float>{query_rows.data(), b.rows}, keys, b.rows, d, accumulate(dk.data + kv_offset + b.low * k.cols, k.cols));
        multiply(column_operand<float>{weight, at.stride}, packed_operand<float>{dout_rows.data(), b.rows}, keys, b.rows, d, accumulate(dv.data + kv_offset + b.low * v.cols, v.cols));
      }
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
