// How many multiply-adds can one core do with the vectors that this file is compiled for?
#pragma once

#include <chrono>
#include <cstdint>

namespace smelt::bench {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
inline constexpr int vector_registers = 32;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
inline constexpr int vector_registers = 16;
#elif defined(__aarch64__)
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 32;
#else
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 16;
#endif

/// Flop/s of independent multiply-adds on registers, enough of them to hide their latency: the most this core reaches
/// now. Takes about 70 us, so that it can stand before and after every measured window.
[[nodiscard]] inline double fma_peak() {
  using floats [[gnu::vector_size(vector_bytes)]] = float;
  constexpr int lanes = vector_bytes / 4;
  constexpr int chains = vector_registers == 32 ? 24 : 12;
  constexpr std::int64_t steps = 16'000;
  volatile float source = 0.5F;  // unknown to the compiler, which would otherwise compute the sums itself
  const floats a = source - floats{};
  const floats b = source - floats{};
  floats sums[chains];
  for (int i = 0; i < chains; ++i) sums[i] = (source + static_cast<float>(i)) - floats{};  // no two alike
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (int i = 0; i < chains; ++i) sums[i] = sums[i] * a + b;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  floats total{};
  for (const floats& sum : sums) total += sum;
  asm volatile("" : : "m"(total));
  return 2.0 * chains * lanes * double(steps) / seconds.count();
}

}  // namespace smelt::bench
