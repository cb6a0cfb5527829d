// By how much do two matrices differ? Element by element.

namespace smelt::cpu_ops::SMELT_SET {

/// out = a - b, all of one shape. `out` may be a or b.
inline void difference(context& c, matrix_view<const float> a, matrix_view<const float> b, matrix_view<float> out) {
  check_shape("difference", "b", b, a.rows, a.cols);
  check_shape("difference", "out", out, a.rows, a.cols);
  c.for_chunks(a.size(), policy::flat_elements, [&](std::int64_t first, std::int64_t last) {
    for_vectors(last - first,
                [&](auto get, auto put) { put(out.data + first, get(a.data + first) - get(b.data + first)); });
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
