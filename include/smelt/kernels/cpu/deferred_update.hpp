// What is left of an update of weights? Pieces in the order of the buffer, each done once: in the shadow of other ops,
// or before somebody needs what it touches.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/policy/cpu_tasks.hpp>
#include <span>
#include <vector>

namespace smelt::cpu_ops {

/// An AdamW step, ready for any of its elements.
struct adamw_update {
  std::span<const parameter_range> ranges;
  std::array<std::span<float>, 4> arrays;  ///< gradient, weight, first and second moment, of the same size
  float scale = 1, beta1 = 0, beta2 = 0, rest1 = 1, rest2 = 1;
  float first_correction = 1, second_correction = 1;
  float eps = 0, rate = 0, decay = 0;
};

/// An update cut into pieces. A piece reads and writes its own elements of the arrays and nothing else.
class deferred_update {
 public:
  using piece_function = void (*)(const adamw_update&, std::int64_t first, std::int64_t last);

  /// Precondition: nothing waits, and there is a range.
  void start(const adamw_update& update, piece_function piece) {
    update_ = update;
    piece_ = piece;
    begin_ = update.ranges.front().first;
    end_ = update.ranges.back().first + update.ranges.back().size;
    waiting_ = (end_ - begin_ + size - 1) / size;
    next_ = 0;
    done_.assign(static_cast<std::size_t>(waiting_), 0);
  }

  [[nodiscard]] bool is_waiting() const noexcept { return waiting_ > 0; }

  /// Does the first piece that waits; false if there is none. For one thread at a time.
  bool advance() {
    if (waiting_ == 0) return false;
    while (done_[next_] != 0) ++next_;
    run(next_);
    --waiting_;
    return true;
  }

  /// Does the pieces that touch some of these bytes, each by a task of for_each(n, task).
  template <class ForEach>
  void settle(const void* address, std::size_t bytes, ForEach for_each) {
    for (const std::span<float>& array : update_.arrays) {
      if (waiting_ == 0 || bytes == 0) return;
      const auto* const from = static_cast<const float*>(address);
      const auto* const to = reinterpret_cast<const float*>(static_cast<const std::byte*>(address) + bytes);
      const float* const first = (std::max)(from, static_cast<const float*>(array.data()) + begin_, std::less<>());
      const float* const last = (std::min)(to, static_cast<const float*>(array.data()) + end_, std::less<>());
      if (!std::less<>()(first, last)) continue;
      settle_pieces((first - array.data() - begin_) / size, (last - 1 - array.data() - begin_) / size + 1, for_each);
    }
  }

  /// Does all pieces.
  template <class ForEach>
  void settle(ForEach for_each) {
    if (waiting_ > 0) settle_pieces(0, static_cast<std::int64_t>(done_.size()), for_each);
  }

 private:
  static constexpr std::int64_t size = policy::update_elements;

  void run(std::int64_t piece) {
    piece_(update_, begin_ + piece * size, (std::min)(begin_ + (piece + 1) * size, end_));
    done_[piece] = 1;
  }

  template <class ForEach>
  void settle_pieces(std::int64_t first, std::int64_t last, ForEach for_each) {
    const std::int64_t count = std::count(done_.begin() + first, done_.begin() + last, 0);
    if (count == 0) return;
    for_each(last - first, [&](std::int64_t i) {
      if (done_[first + i] == 0) run(first + i);
    });
    waiting_ -= count;
  }

  adamw_update update_;
  piece_function piece_ = nullptr;
  std::int64_t begin_ = 0, end_ = 0;  // elements
  std::vector<std::uint8_t> done_;    // by piece
  std::int64_t next_ = 0;             // no piece before it waits
  std::int64_t waiting_ = 0;          // pieces
};

}  // namespace smelt::cpu_ops
