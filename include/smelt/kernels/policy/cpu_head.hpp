// How is the output head cut into tasks? By the vocabulary, since all logits of a task's tokens exist at once.
#pragma once

#include <cstdint>

namespace smelt::policy {

/// Tokens of one task of the head: a multiple of every register tile's rows, and as many as have 48 Ki logits (192 KiB
/// of a second-level cache of 1 MiB).
[[nodiscard]] constexpr std::int64_t head_rows(std::int64_t vocab) noexcept {
  const std::int64_t rows = 48 * 1'024 / vocab / 24 * 24;
  return rows < 24 ? 24 : rows > 48 ? 48 : rows;
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
