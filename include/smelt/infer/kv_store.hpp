// Where are the keys and values of the tokens so far? In one slot for every visit of a layer, since no two visits
// compute the same ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/core/page_block.hpp>
#include <smelt/core/view.hpp>
#include <smelt/model/kernel_shapes.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>
#include <vector>

namespace smelt {

/// Where one visit of a layer puts the keys and values of a pass, and which rows its tokens attend to.
template <class Scalar>
struct kv_rows {
  matrix_view<Scalar> new_keys, new_values;  ///< [tokens, kv_heads * d], to be written
  matrix_view<const Scalar> keys, values;    ///< [seen, kv_heads * d]; of several new rows, they are the last ones
  std::int64_t window = 0;                   ///< of attention over these rows; 0: every token sees all before it
};

/// The keys and values of one sequence. A layer with a window keeps no more tokens than the window has, so the memory
/// is what kv_cache() says.
template <class Scalar>
class kv_store {
 public:
  /// For sequences of up to `capacity` tokens, up to `longest` of which come in one pass. Precondition: the model can
  /// execute `s`.
  kv_store(const spec& s, std::int64_t capacity, std::int64_t longest) : width_(kv_width(s)), capacity_(capacity) {
    std::int64_t rows = 0;
    std::int64_t widest = 0;
    for (const executed_layer e : schedule(s)) {
      const std::int64_t kept = kv_positions(capacity, e.plan.compression, window_of(s, e.layer));
      const std::int64_t all = executed_positions(e, capacity);
      slots_.push_back({.first = rows, .rows = kept, .has_all = kept == all});
      rows += kept;
      if (kept < all) widest = (std::max)(widest, kept);
    }
    kept_ = page_block(bytes_of(rows));
    if (widest > 0) {
      passing_rows_ = widest - 1 + longest;
      passing_ = page_block(bytes_of(passing_rows_));
    }
  }

  /// Tokens that it has room for.
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }

  /// Bytes of the keys and values that are kept.
  [[nodiscard]] std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(kept_.size()); }

  /// The rows of the `count` tokens (of a compressed visit, latents) behind the first `before` ones, valid until the
  /// store opens others. Precondition: there is room for them.
  [[nodiscard]] kv_rows<Scalar> open(int slot, std::int64_t before, std::int64_t count) {
    const place p = slots_[static_cast<std::size_t>(slot)];
    Scalar* keys = keys_of(p);
    if (p.has_all) return rows_in(keys, p.rows, before, count, before + count, 0);
    // One token takes the row of the one that its window has just lost; in which order it reads the rows is no matter.
    if (count == 1) return rows_in(keys, p.rows, before % p.rows, 1, (std::min)(before + 1, p.rows), 0);
    const std::int64_t earlier = (std::min)(before, p.rows - 1);
    for (std::int64_t i = 0; i < earlier; ++i)
      copy(keys, p.rows, (before - earlier + i) % p.rows, data_of(passing_), passing_rows_, i);
    return rows_in(data_of(passing_), passing_rows_, earlier, count, earlier + count, p.rows);
  }

  /// Keeps what the rows that open() gave for the same tokens now hold.
  void close(int slot, std::int64_t before, std::int64_t count) noexcept {
    const place p = slots_[static_cast<std::size_t>(slot)];
    if (p.has_all || count == 1) return;
    const std::int64_t earlier = (std::min)(before, p.rows - 1);
    for (std::int64_t i = (std::max)(std::int64_t{0}, count - p.rows); i < count; ++i)
      copy(data_of(passing_), passing_rows_, earlier + i, keys_of(p), p.rows, (before + i) % p.rows);
  }

 private:
  /// A slot: `rows` rows of keys, then as many of values, behind those of `first` rows. Where it has not a row for
  /// all, token t has row t % rows.
  struct place {
    std::int64_t first = 0;
    std::int64_t rows = 0;
    bool has_all = true;
  };

  [[nodiscard]] std::size_t bytes_of(std::int64_t rows) const noexcept {
    return static_cast<std::size_t>(2 * rows * width_) * sizeof(Scalar);
  }
  [[nodiscard]] static Scalar* data_of(const page_block& memory) noexcept {
    return reinterpret_cast<Scalar*>(memory.data());
  }
  [[nodiscard]] Scalar* keys_of(const place& p) const noexcept { return data_of(kept_) + 2 * p.first * width_; }

  /// Of `rows` rows of keys and as many of values.
  [[nodiscard]] kv_rows<Scalar> rows_in(Scalar* keys, std::int64_t rows, std::int64_t first_new, std::int64_t count,
                                        std::int64_t seen, std::int64_t window) const noexcept {
    Scalar* values = keys + rows * width_;
    const std::int64_t at = first_new * width_;
    return {.new_keys = {keys + at, count, width_},
            .new_values = {values + at, count, width_},
            .keys = {keys, seen, width_},
            .values = {values, seen, width_},
            .window = window};
  }

  /// Copies a key and its value between two such places.
  void copy(const Scalar* from, std::int64_t from_rows, std::int64_t from_row, Scalar* to, std::int64_t to_rows,
            std::int64_t to_row) const noexcept {
    std::copy_n(from + from_row * width_, width_, to + to_row * width_);
    std::copy_n(from + (from_rows + from_row) * width_, width_, to + (to_rows + to_row) * width_);
  }

  std::int64_t width_;
  std::int64_t capacity_;
  std::vector<place> slots_;
  page_block kept_;
  page_block passing_;  // where a windowed layer sees the tokens before a pass and those of the pass side by side
  std::int64_t passing_rows_ = 0;
};

}  // namespace smelt
