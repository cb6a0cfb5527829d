// How fast can one core multiply and add? The limit that every product is measured against.

namespace smelt::cpu_ops::SMELT_SET {

/// FLOP/s of multiply-adds in registers on the calling thread, over a window of about 0.1 ms: enough independent sums
/// to hide their latency, and no memory.
template <class Element>
[[nodiscard]] double core_peak() {
  constexpr int chains = SMELT_VECTOR_REGISTERS == 32 ? 24 : 12;
  constexpr int steps = 32768;
  volatile float source = 0.5F;
  floats sums[chains];
  for (int i = 0; i < chains; ++i) sums[i] = broadcast(source + static_cast<float>(i));  // no two alike
  const float left = source;
  const floats right = broadcast(source);
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (floats& sum : sums) {
      if constexpr (std::is_same_v<Element, float>) {
        sum = detail::multiply_add<Element>(right, left, sum);  // no product that is the same in every step
      } else {
        sum = detail::multiply_add<Element>(sum, left, right);
      }
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  floats total = {};
  for (const floats& sum : sums) total += sum;
  volatile float sink = sum_lanes(total);
  static_cast<void>(sink);
  return 2.0 * chains * double(lanes * word_depth<Element>) * steps / seconds.count();
}

}  // namespace smelt::cpu_ops::SMELT_SET
