// Which tile of a matrix product stays in registers, and how much of its operands in the first-level cache?
#pragma once

#include <cstdint>

namespace smelt::policy {

/// Rows and vectors of the tile of sums a matrix product holds in registers: rows * vectors sums, `vectors` of the
/// right operand and one broadcast of the left one must fit, and enough sums to hide the latency of a multiply-add.
/// With AVX-512, 8, 12 and 14 rows take the same time for 4,096 rows of 512 -> 512, within 2 % (one Zen 5 core,
/// November 2026); the other targets' tiles follow from their registers and are not measured.
struct register_tile {
  int rows;
  int vectors;
};

#if defined(__AVX512F__)
inline constexpr register_tile gemm_tile{12, 2};  // 32 registers
#elif defined(__AVX__)
inline constexpr register_tile gemm_tile{6, 2};  // 16 registers
#elif defined(__aarch64__)
inline constexpr register_tile gemm_tile{8, 2};  // 32 registers of 4 floats
#else
inline constexpr register_tile gemm_tile{4, 2};  // 16 registers of 4 floats
#endif

/// Depth of a block of a panel: 256 * 32 floats are 32 KiB of a first-level cache of 48. Half of it takes 2 to 4 % more
/// time for the product above and its gradients.
inline constexpr std::int64_t gemm_depth = 256;

}  // namespace smelt::policy
