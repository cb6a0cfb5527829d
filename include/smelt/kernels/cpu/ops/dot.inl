// How much of one vector lies along another? The sum of their products.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// The sum of product(i) for i of [0, size), by tasks, then over the tasks in order.
template <class Product>
[[nodiscard]] double sum_of_products(context& c, std::int64_t size, Product product) {
  const std::int64_t tasks = (size + policy::flat_elements - 1) / policy::flat_elements;
  const std::span<double> partial = c.shared().take<double>(tasks);
  c.for_chunks(size, policy::flat_elements, [&](std::int64_t first, std::int64_t last) {
    constexpr std::int64_t width = 16;  // independent sums, which the compiler makes vectors of
    double sums[width] = {};
    std::int64_t i = first;
    for (; i + width <= last; i += width) {
      for (std::int64_t j = 0; j < width; ++j) sums[j] += product(i + j);
    }
    for (; i < last; ++i) sums[0] += product(i);
    double total = 0;
    for (const double s : sums) total += s;
    partial[first / policy::flat_elements] = total;
  });
  double total = 0;
  for (const double p : partial) total += p;
  return total;
}

}  // namespace detail

/// The sum of a[i] b[i], in double.
[[nodiscard]] inline double dot(context& c, std::span<const float> a, std::span<const float> b) {
  const auto size = static_cast<std::int64_t>(a.size());
  check_size("dot", "b", b, size);
  return detail::sum_of_products(c, size, [&](std::int64_t i) { return double(a[i]) * double(b[i]); });
}

}  // namespace smelt::cpu_ops::SMELT_SET
