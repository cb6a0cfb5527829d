// What does a CPU op work with? An executor, memory for the whole op, and memory for each task that runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <smelt/kernels/cpu/arena.hpp>
#include <smelt/kernels/cpu/deferred_update.hpp>
#include <smelt/kernels/cpu/rotary_table.hpp>
#include <smelt/kernels/cpu/weight_panels.hpp>
#include <smelt/kernels/policy/cpu_tasks.hpp>
#include <thread>
#include <type_traits>
#include <utility>

namespace smelt::cpu_ops {

namespace detail {

struct alignas(64) arena_slot {
  arena memory;
  std::atomic_flag taken;
};

// The largest of the arenas that tasks borrow.
struct arena_level {
  std::atomic<std::size_t> bytes{0};

  void raise(std::size_t to) noexcept {
    std::size_t now = bytes.load(std::memory_order_relaxed);
    while (now < to && !bytes.compare_exchange_weak(now, to, std::memory_order_relaxed)) {
    }
  }
};

}  // namespace detail

/// An arena lent to a task while it runs, reset. Which one is chance, so a task reads nothing from it that it has not
/// written.
class arena_loan {
 public:
  arena_loan(detail::arena_slot& slot, detail::arena_level& level) : slot_(slot), level_(level) {
    slot_.memory.reset();
  }
  ~arena_loan() {
    level_.raise(slot_.memory.capacity());
    slot_.taken.clear(std::memory_order_release);
  }
  arena_loan(const arena_loan&) = delete;
  arena_loan& operator=(const arena_loan&) = delete;
  [[nodiscard]] arena* operator->() const noexcept { return &slot_.memory; }
  [[nodiscard]] arena& operator*() const noexcept { return slot_.memory; }

 private:
  detail::arena_slot& slot_;
  detail::arena_level& level_;
};

/// An executor whose type is forgotten, so that an op is compiled once for all of them.
class any_executor {
 public:
  template <class Executor>
  explicit any_executor(Executor executor)
      : executor_(std::make_shared<Executor>(std::move(executor))),
        run_([](void* self, std::int64_t n, task_function task, void* body) {
          static_cast<Executor*>(self)->for_each(n, [task, body](std::int64_t i) { task(body, i); });
        }),
        threads_(static_cast<Executor*>(executor_.get())->threads()) {}

  using task_function = void (*)(void*, std::int64_t);

  void run(std::int64_t n, task_function task, void* body) { run_(executor_.get(), n, task, body); }

  [[nodiscard]] int threads() const noexcept { return threads_; }

 private:
  std::shared_ptr<void> executor_;
  void (*run_)(void*, std::int64_t, task_function, void*);
  int threads_;
};

/// One op at a time works with a context.
class context {
 public:
  explicit context(any_executor executor)
      : executor_(std::move(executor)),
        slot_count_(executor_.threads()),
        slots_(std::make_unique<detail::arena_slot[]>(static_cast<std::size_t>(slot_count_))) {}

  /// Runs f(i) once for every i of [0, n). Where there is an update to get done, one thread works on that meanwhile.
  template <class F>
  void for_each(std::int64_t n, F&& f) {
    if (n > 0 && update_.is_waiting())
      run_beside_update(n, task_of<F>, address_of(f));
    else
      run_alone(n, f);
    level_arenas();
  }

  /// Runs f(first, last) for consecutive chunks of [0, n) of `chunk` elements, the last one shorter.
  template <class F>
  void for_chunks(std::int64_t n, std::int64_t chunk, F&& f) {
    for_each((n + chunk - 1) / chunk, [&](std::int64_t i) { f(i * chunk, (i + 1) * chunk < n ? (i + 1) * chunk : n); });
  }

  /// The op's own memory, reset: what an earlier op took from it is gone.
  [[nodiscard]] arena& shared() {
    shared_.reset();
    return shared_;
  }

  /// An arena for the calling task. There is one for each task that can run at once.
  [[nodiscard]] arena_loan lend() {
    for (;;) {
      for (int i = 0; i < slot_count_; ++i) {
        if (!slots_[i].taken.test_and_set(std::memory_order_acquire)) return arena_loan(slots_[i], *level_);
      }
      std::this_thread::yield();
    }
  }

  /// Takes an update on, whose pieces run in the shadow of what for_each is told to do: the update waits for memory and
  /// an op mostly does not, so that one thread with the update and the others with the op are done before all threads
  /// with one after the other. A single thread does it now.
  void defer(const adamw_update& update, deferred_update::piece_function piece) {
    settle();
    update_.start(update, piece);
    if (threads() == 1) settle();
  }

  /// Does what is left of the update, or of its pieces that touch some of these bytes.
  void settle() {
    update_.settle([this](std::int64_t n, auto&& f) { run_alone(n, f); });
  }
  void settle(const void* address, std::size_t bytes) {
    update_.settle(address, bytes, [this](std::int64_t n, auto&& f) { run_alone(n, f); });
  }
  [[nodiscard]] bool has_update() const noexcept { return update_.is_waiting(); }

  /// Cosines and sines of rotary angles, kept between ops.
  [[nodiscard]] rotary_tables& rotary() noexcept { return rotary_; }

  /// Packed copies of weights, kept between ops while somebody holds the weights still.
  [[nodiscard]] weight_panels& panels() noexcept { return panels_; }

  /// Packed copies of a weight: what is kept of it, or else memory that pack(elements) fills; taken from
  /// `memory` when nobody holds the weights still.
  template <class Element, class Pack>
  [[nodiscard]] const Element* packed_weight(arena& memory, const void* weight, weight_form form,
                                             const panel_extents& extents, std::int64_t size, Pack pack) {
    if (panels_.held()) return panels_.get<Element>(weight, form, extents, size, pack);
    const std::span<Element> copy = memory.take<Element>(size);
    pack(copy.data());
    return copy.data();
  }

  [[nodiscard]] int threads() const noexcept { return executor_.threads(); }

  /// Overwrites all scratch memory, to prove that no result depends on what was left in it.
  void fill_scratch(std::byte value) {
    shared_.reset();
    shared_.fill(value);
    for (int i = 0; i < slot_count_; ++i) {
      slots_[i].memory.reset();
      slots_[i].memory.fill(value);
    }
  }

 private:
  template <class F>
  static void task_of(void* body, std::int64_t i) {
    (*static_cast<std::remove_reference_t<F>*>(body))(i);
  }
  template <class F>
  [[nodiscard]] static void* address_of(F& f) noexcept {
    return const_cast<void*>(static_cast<const void*>(std::addressof(f)));
  }

  template <class F>
  void run_alone(std::int64_t n, F& f) {
    executor_.run(n, task_of<F>, address_of(f));
  }

  /// Task 0, which an executor starts with, is the update's until all others are done or nothing is left of it: a
  /// thread is never idle while another works, and nobody waits for more than a piece.
  void run_beside_update(std::int64_t n, any_executor::task_function task, void* body) {
    std::atomic<std::int64_t> done{0};
    auto both = [&](std::int64_t i) {
      if (i > 0) {
        task(body, i - 1);
        done.fetch_add(1, std::memory_order_relaxed);
      } else {
        while (done.load(std::memory_order_relaxed) < n && update_.advance()) {
        }
      }
    };
    run_alone(n + 1, both);
  }

  /// Which task gets which arena is chance: all of them become as large as the largest, so that none grows later.
  void level_arenas() {
    const std::size_t level = level_->bytes.load(std::memory_order_relaxed);
    if (level == leveled_) return;
    for (int i = 0; i < slot_count_; ++i) {
      if (slots_[i].taken.test_and_set(std::memory_order_acquire)) continue;  // lent to the op itself
      slots_[i].memory.reserve(level);
      slots_[i].taken.clear(std::memory_order_release);
    }
    leveled_ = level;
  }

  any_executor executor_;
  arena shared_;
  int slot_count_;
  std::unique_ptr<detail::arena_slot[]> slots_;
  std::unique_ptr<detail::arena_level> level_ = std::make_unique<detail::arena_level>();  // a context moves
  std::size_t leveled_ = 0;
  rotary_tables rotary_;
  weight_panels panels_;
  deferred_update update_;
};

}  // namespace smelt::cpu_ops
