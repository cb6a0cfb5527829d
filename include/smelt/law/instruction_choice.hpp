// Which instructions do the sums over rows use? The widest vectors this machine has, chosen once; where the build's
// flags already promise them, there is nothing to choose from and one copy is compiled.
#pragma once

#include <cstddef>

#if defined(__x86_64__) && !(defined(__AVX2__) && defined(__FMA__))
#define SMELT_LAW_AVX2 1
#else
#define SMELT_LAW_AVX2 0
#endif
#if defined(__x86_64__) && !(defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__))
#define SMELT_LAW_AVX512 1
#else
#define SMELT_LAW_AVX512 0
#endif

namespace smelt::law::detail {

/// baseline: what the build's flags allow
enum class vectors : std::size_t { baseline, avx2, avx512 };

[[nodiscard]] inline vectors widest_vectors() noexcept {
#if SMELT_LAW_AVX512
  static const vectors found = [] {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return vectors::baseline;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return vectors::avx512;
    return SMELT_LAW_AVX2 ? vectors::avx2 : vectors::baseline;
  }();
  return found;
#else
  return vectors::baseline;
#endif
}

}  // namespace smelt::law::detail
