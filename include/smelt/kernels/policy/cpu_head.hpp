// How is the output head cut into tasks? By the vocabulary, since all logits of a task's tokens exist at once.
// Measured with (width, vocabulary) of (128, 257), (512, 257) and (256, 4096) on one Zen 5 core in November 2026: twice
// the rows, columns or depth below change the time of loss and gradient by less than 2 %, but for gradients of 96
// entries at once at 4,096, which take 4 % more with bf16 products.
#pragma once

#include <cstdint>

namespace smelt::policy {

/// Most tokens of a task of the head. 2,048 tokens are 43 tasks: enough for an even share of two cores.
inline constexpr std::int64_t most_head_rows = 48;

/// Tokens of one task of the head: a multiple of every register tile's rows, and where they are not too many as have
/// 48 Ki logits (192 KiB of a second-level cache of 1 MiB).
[[nodiscard]] constexpr std::int64_t head_rows(std::int64_t vocab) noexcept {
  return vocab > 48 * 1'024 / most_head_rows ? most_head_rows / 2 : most_head_rows;
}

/// Tokens whose gradients of the logits exist at once: as many as have 4 Mi of them, at least 240.
[[nodiscard]] constexpr std::int64_t head_block(std::int64_t vocab) noexcept {
  const std::int64_t tokens = 4 * 1'024 * 1'024 / vocab / 240 * 240;
  return tokens < 240 ? 240 : tokens;
}

/// Vocabulary entries and columns of one task of the table's gradient.
inline constexpr std::int64_t head_gradient_rows = 48;
inline constexpr std::int64_t head_gradient_cols = 64;
/// Tokens that enter it at once: their inputs stay in the first-level cache for all entries of a task.
inline constexpr std::int64_t head_gradient_depth = 240;

}  // namespace smelt::policy
