// What is the vector of a token? A row of the table.

namespace smelt::cpu_ops::SMELT_SET {

/// out[T,H] = table[ids[t]]. Throws invalid_argument for an id outside the table before anything is written.
inline void embed(context& c, matrix_view<const float> table, std::span<const std::int32_t> ids,
                  matrix_view<float> out) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  check_shape("embed", "table", table, table.rows, table.cols);
  check_shape("embed", "out", out, tokens, table.cols);
  check_ids("embed", "ids", ids, 0, table.rows);
  const std::int64_t rows =
      (std::max)(policy::flat_elements / (std::max)(table.cols, std::int64_t{1}), std::int64_t{1});
  c.for_chunks(tokens, rows, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      std::copy_n(table.data + ids[t] * table.cols, table.cols, out.data + t * table.cols);
    }
  });
}

/// dtable[V,H] += rows of dout[T,H]. A task owns some columns of the table and walks all tokens in order.
inline void embed_backward(context& c, matrix_view<const float> dout, std::span<const std::int32_t> ids,
                           matrix_view<float> dtable) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  check_shape("embed_backward", "dtable", dtable, dtable.rows, dtable.cols);
  check_shape("embed_backward", "dout", dout, tokens, dtable.cols);
  check_ids("embed_backward", "ids", ids, 0, dtable.rows);
  c.for_chunks(dtable.cols, policy::gradient_cols, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* from = dout.data + t * dtable.cols + first;
      float* to = dtable.data + ids[t] * dtable.cols + first;
      for_vectors(last - first, [&](auto get, auto put) { put(to, get(to) + get(from)); });
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
