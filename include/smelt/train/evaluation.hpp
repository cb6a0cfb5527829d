// How well does a model predict text it did not train on? Cross-entropy alone, in total and by category.
#pragma once

#include <algorithm>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <smelt/model/language_model.hpp>
#include <smelt/train/batches.hpp>
#include <string>
#include <vector>

namespace smelt {

/// Losses over one pass of a validation split.
struct evaluation {
  loss_sum total{};
  std::vector<loss_sum> by_category;  ///< in the order of dataset::categories

  /// Mean loss in nats a token; 0 without targets.
  [[nodiscard]] static double mean(const loss_sum& sum) noexcept {
    return sum.targets == 0 ? 0.0 : sum.nats / static_cast<double>(sum.targets);
  }
  [[nodiscard]] double loss() const noexcept { return mean(total); }
};

/// A view of a filled batch.
[[nodiscard]] inline token_batch view(const batch& b) noexcept {
  return {b.inputs, b.targets, b.first, b.sequences, b.context};
}

/// Gives a short batch `sequences` rows; the added ones have no targets.
inline void pad(batch& b, std::int64_t sequences) {
  const auto used = b.inputs.size();
  b.resize(sequences, b.context);
  std::fill(b.inputs.begin() + static_cast<std::ptrdiff_t>(used), b.inputs.end(), 0);
  std::fill(b.first.begin() + static_cast<std::ptrdiff_t>(used), b.first.end(), 0);
  for (auto* values : {&b.targets, &b.categories})
    std::fill(values->begin() + static_cast<std::ptrdiff_t>(used), values->end(), -1);
}

/// Runs `model` over the validation split, or over its first `most_batches` batches when positive. `plan` must have the
/// model's batch size. `keep_going` is asked before every batch; when it says no, what was read so far is returned.
template <ArchitectureHandle A, Backend B, class KeepGoing>
[[nodiscard]] evaluation evaluate(language_model<A, B>& model, const weight_buffer<typename B::scalar>& weights,
                                  const token_sequence& validation, std::size_t categories, const batch_plan& plan,
                                  std::int64_t most_batches, KeepGoing&& keep_going) {
  evaluation result;
  result.by_category.resize(categories);
  std::int64_t batches = validation_batches(validation, plan);
  if (most_batches > 0) batches = (std::min)(batches, most_batches);
  batch filled;
  for (std::int64_t i = 0; i < batches && keep_going(); ++i) {
    fill_validation_batch(validation, plan, i, filled);
    pad(filled, plan.sequences);
    const loss_sum sum = model.forward(weights, view(filled)).cross_entropy;
    result.total.nats += sum.nats;
    result.total.targets += sum.targets;
    const auto losses = model.token_losses();
    for (std::size_t t = 0; t < losses.size(); ++t) {
      if (filled.targets[t] < 0) continue;
      const auto index = static_cast<std::size_t>(filled.categories[t]);
      if (index >= categories)
        throw error(errc::invalid_argument, "a validation document has category " +
                                                std::to_string(filled.categories[t]) + ", needs 0 to " +
                                                std::to_string(categories) + " - 1");
      loss_sum& category = result.by_category[index];
      category.nats += static_cast<double>(losses[t]);
      ++category.targets;
    }
  }
  return result;
}

}  // namespace smelt
