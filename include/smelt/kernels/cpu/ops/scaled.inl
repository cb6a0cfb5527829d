// How does a sublayer's output enter the residual stream? Times its visit's coefficient.

namespace smelt::cpu_ops::SMELT_SET {

/// target += scale * source.
inline void add_scaled(context& c, double scale, matrix_view<const float> source, matrix_view<float> target) {
  check_shape("add_scaled", "target", target, source.rows, source.cols);
  const auto factor = static_cast<float>(scale);
  c.for_chunks(source.size(), policy::flat_elements, [&](std::int64_t first, std::int64_t last) {
    const float* from = source.data + first;
    float* to = target.data + first;
    for_vectors(last - first, [&](auto get, auto put) { put(to, get(to) + factor * get(from)); });
  });
}

/// target = scale * source.
inline void copy_scaled(context& c, double scale, matrix_view<const float> source, matrix_view<float> target) {
  check_shape("copy_scaled", "target", target, source.rows, source.cols);
  const auto factor = static_cast<float>(scale);
  c.for_chunks(source.size(), policy::flat_elements, [&](std::int64_t first, std::int64_t last) {
    const float* from = source.data + first;
    float* to = target.data + first;
    for_vectors(last - first, [&](auto get, auto put) { put(to, factor * get(from)); });
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
