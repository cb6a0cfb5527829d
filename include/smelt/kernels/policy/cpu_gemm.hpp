// Which tile of a matrix product stays in registers?
#pragma once

#include <cstdint>

namespace smelt::policy {

/// Rows and vectors of the tile of sums a matrix product holds in registers: rows * vectors sums, `vectors` of the
/// right operand and one broadcast of the left one must fit, and enough sums to hide the latency of a multiply-add.
struct register_tile {
  int rows;
  int vectors;
};

/// The tile for vectors of so many bytes, on a target with so many vector registers.
/// With AVX-512, 8, 12 and 14 rows take the same time for 4,096 rows of 512 -> 512, within 2 % (one Zen 5 core,
/// November 2026); the other targets' tiles follow from their registers and are not measured.
[[nodiscard]] constexpr register_tile gemm_tile(int vector_bytes, int registers) noexcept {
  if (vector_bytes == 64) return {12, 2};
  if (vector_bytes == 32) return {6, 2};
  return registers == 32 ? register_tile{8, 2} : register_tile{4, 2};
}

}  // namespace smelt::policy
