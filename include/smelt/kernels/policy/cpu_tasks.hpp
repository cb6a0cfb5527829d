// How much work is one task of a CPU op? Sizes that depend on the problem only, never on the number of threads, so that
// results do not either. Measurements are of bench/ops.cpp on one Zen 5 core with -march=native, November 2026. Sizes
// that name none are not critical: on one thread half and twice of all of them change products by less than 6 % and
// experts, norms and routing by less than the 10 to 15 % by which the shared machine varied.
#pragma once

#include <cstdint>

namespace smelt::policy {

/// Elements of one task of an op that only reads and writes: 64 Ki floats are about 10 us of memory traffic, several
/// times what starting a task costs.
inline constexpr std::int64_t flat_elements = 65'536;
/// Elements of one task of AdamW, of 32 bytes of traffic each.
inline constexpr std::int64_t update_elements = 16'384;
/// Elements of one task of an op over rows (norms, routing, rotary): more arithmetic for each.
inline constexpr std::int64_t row_elements = 16'384;

/// Tasks that sum a gradient of weights over tokens each on its own, in an op over rows: few enough that their sums are
/// small beside what is summed.
inline constexpr std::int64_t most_sums = 32;

/// How many floats ahead an op that works on several rows at once asks for what it will read. Gradients of two rows at
/// once, [32768, 128]: 1,100 us without, 520, 480 and 540 us with 1,024, 2,048 and 4,096; no difference for arrays of
/// 1 MiB.
inline constexpr std::int64_t rows_ahead = 2048;

/// Below this many rows packing a matrix costs more than multiplying by it. 8 rows of 512 -> 512: 65 us unpacked
/// against 93 us packed; 12 rows: 99 against 95 us; 128 -> 128 turns at the same number.
inline constexpr std::int64_t few_rows = 12;
/// Rows and columns of one task of a weight gradient. 48 rows against 24: a 512 -> 512 backward pass takes 21 against
/// 25 ms, and there are still tasks enough for two cores.
inline constexpr std::int64_t gradient_rows = 48;
inline constexpr std::int64_t gradient_cols = 64;

/// Rows of one task, at most `most` and a multiple of `even_rows_step`: as even as can be and an even number of tasks,
/// so that two cores have the same to do and each the same rows in every op. Few rows are one task.
inline constexpr std::int64_t even_rows_step = 4;
[[nodiscard]] constexpr std::int64_t even_rows(std::int64_t rows, std::int64_t most) noexcept {
  if (rows <= 2 * few_rows) return most;
  const std::int64_t tasks = (rows + 2 * most - 1) / (2 * most) * 2;
  return (rows + tasks * even_rows_step - 1) / (tasks * even_rows_step) * even_rows_step;
}

/// Tokens of one task that goes through all experts: an expert has 64 of them on average. Where there are not four such
/// tasks they are shorter, with at least 16 tokens an expert, if the weights of all experts stay in the caches of a
/// core; otherwise, and where there would not even be two, tokens are cut by expert (0).
///
/// % of the peak of a layer forward and backward, 32 experts, fp32, one core | two, tasks of 16 tokens an expert, 64,
/// or by expert, November 2026:
///
/// | width, hidden, active | tokens | 16 | 64 | by expert |
/// |---|---|---|---|---|
/// | 128, 32, 4 (1.5 MiB) | 512 | 68, 57 | 71, 59 | 70, 57 |
/// | 128, 64, 4 (3 MiB) | 512 | 74, 75 | 76, 77 | 74, 75 |
/// | 256, 128, 8 (12 MiB) | 512 | 67, 59 | 73, 70 | 77, 75 |
/// | 256, 128, 8 | 4,096 | 76, 74 | 76, 77 | 75, 74 |
/// | 320, 80, 8 (9 MiB) | 512 | 67, 60 | 70, 67 | 74, 72 |
[[nodiscard]] constexpr std::int64_t expert_block(std::int64_t experts, std::int64_t active, std::int64_t weights,
                                                  std::int64_t tokens) noexcept {
  constexpr std::int64_t near_weights = 1 << 20;
  const std::int64_t least = (16 * experts + active - 1) / active;
  std::int64_t block = 4 * least;
  if (weights <= near_weights) {
    while (block > least && tokens < 4 * block) block /= 2;
    return tokens < 2 * block ? 0 : block;
  }
  return tokens < 4 * block ? 0 : block;
}

/// Tokens of one task of an expert forward, and how many floats' worth of them it takes at once (twice as many bf16) so
/// that they stay in the second-level cache beside the weights. Forward and backward at width 256, hidden 128, top 8 of
/// 32: 48 rows 98, 84 rows 93, 120 rows 92 ms.
inline constexpr std::int64_t expert_task_rows = 480;
inline constexpr std::int64_t expert_rows = 120;
/// Floats of the rows (twice as many bf16) whose outer products enter an expert's weight gradients at once.
inline constexpr std::int64_t expert_gradient_elements = 36'864;
/// Backward, an expert is one task; one with more than a share of 1 / expert_pieces of all rows is cut in such pieces.
inline constexpr std::int64_t expert_pieces = 8;

/// Tokens whose outer products enter a weight gradient at once: with 32 columns of each, 32 KiB of a first-level cache
/// of 48.
inline constexpr std::int64_t gradient_depth = 256;

/// Tokens of one task on the way into attention and back: their normed inputs, projections and gradients stay in the
/// second-level cache. A multiple of every register tile's rows.
inline constexpr std::int64_t attention_input_rows = 96;
/// Keys whose scores for a panel of queries exist at once: with 32 queries, 16 KiB of a first-level cache of 48.
inline constexpr std::int64_t attention_keys = 128;
/// Tasks that a batch with fewer sequences and KV heads is cut into.
inline constexpr std::int64_t attention_tasks = 8;

/// Floats added to the row of a copied block, so that rows do not fall on the same cache sets.
/// Widths up to 512 show no difference without them.
inline constexpr std::int64_t row_padding = 16;

}  // namespace smelt::policy
