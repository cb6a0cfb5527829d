// What can be done with a training run whose architecture and backend are somebody else's business?
#pragma once

#include <cstdint>
#include <functional>
#include <smelt/spec/spec.hpp>
#include <smelt/train/checkpoint.hpp>
#include <smelt/train/evaluation.hpp>
#include <smelt/train/options.hpp>
#include <smelt/train/step_record.hpp>

namespace smelt {

/// A training run whose architecture and backend are somebody else's business.
class training {
 public:
  training() = default;
  training(const training&) = delete;
  training& operator=(const training&) = delete;
  virtual ~training() = default;

  [[nodiscard]] virtual const spec& architecture() const noexcept = 0;
  [[nodiscard]] virtual const train_options& options() const noexcept = 0;

  /// Steps done so far, of options().steps().
  [[nodiscard]] virtual std::int64_t step() const noexcept = 0;
  [[nodiscard]] bool done() const noexcept { return step() >= options().steps(); }

  /// Does the next step. When a gradient or the loss is not finite, no weight and no moment changes, the record says
  /// why; the step that would be the options().largest_skip_run-th such step in a row throws errc::not_finite instead
  /// and leaves the run as it was.
  virtual step_record advance() = 0;

  /// Cross-entropy on the validation split, or on its first `most_batches` batches when positive; `keep_going` is asked
  /// before every batch.
  [[nodiscard]] virtual evaluation evaluate(std::int64_t most_batches, const std::function<bool()>& keep_going) = 0;

  /// Saves weights, moments and place in the data; see save_checkpoint.
  virtual saved_checkpoint save(const run_folder& run, std::int64_t keep_last) const = 0;

  /// Continues from a checkpoint, to the bit. Throws errc::mismatch naming every difference when the checkpoint is of
  /// another architecture, other data, other options or
  /// another type of matrix products, and errc::corrupt when its state makes no sense; then the run
  /// is as it was.
  virtual void resume(const checkpoint& from) = 0;
};

}  // namespace smelt
