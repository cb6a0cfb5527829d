// Which instructions do the sums over rows use? The widest vectors this machine has, chosen once.
#pragma once

namespace smelt::law::detail {

enum class vectors { baseline, avx2, avx512 };

[[nodiscard]] inline vectors widest_vectors() noexcept {
#if defined(__x86_64__)
  static const vectors found = [] {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return vectors::baseline;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? vectors::avx512
               : vectors::avx2;
  }();
  return found;
#else
  return vectors::baseline;
#endif
}

}  // namespace smelt::law::detail
