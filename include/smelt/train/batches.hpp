// In which order does a model see its data? In one that only the seed and the data decide, addressed by position.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <smelt/train/data.hpp>

namespace smelt {

/// Windows of consecutive tokens, side by side; every vector is [sequences, context], row by row.
struct batch {
  std::int64_t sequences = 0;
  std::int64_t context = 0;
  std::vector<std::int32_t> inputs;      ///< token ids
  std::vector<std::int32_t> targets;     ///< the token that follows each input; -1: no loss here
  std::vector<std::int32_t> first;       ///< the first position of the row that each position may attend to
  std::vector<std::int32_t> categories;  ///< the category of each target's document; -1 where the target is

  /// Gives the batch its shape; reuses its memory when that suffices.
  void resize(std::int64_t new_sequences, std::int64_t new_context) {
    sequences = new_sequences;
    context = new_context;
    const auto size = static_cast<std::size_t>(new_sequences * new_context);
    for (auto* values : {&inputs, &targets, &first, &categories}) values->resize(size);
  }
};

/// How a token sequence is cut and ordered.
struct batch_plan {
  std::int64_t context = 0;    ///< tokens a window
  std::int64_t sequences = 0;  ///< windows a batch
  std::uint64_t seed = 0;      ///< decides the order of training windows, nothing else
  /// With masks, a token sees only its own document, and what follows a document's end is nobody's target.
  bool document_masks = true;
};

/// How many windows of `context` inputs `tokens` tokens hold: each target must exist, so floor((tokens - 1) / context).
/// `context` must be positive.
[[nodiscard]] constexpr std::int64_t usable_windows(std::int64_t tokens, std::int64_t context) noexcept {
  return tokens > 0 ? (tokens - 1) / context : 0;
}

/// How many windows the plan cuts `sequence` into. Throws invalid_argument when the plan has no positive context or
/// number of sequences, when its documents are inconsistent, or when the tokens do not fill one window; `name` tells
/// the message which sequence it is.
[[nodiscard]] inline std::int64_t require_windows(const token_sequence& sequence, const batch_plan& plan,
                                                  const std::string& name) {
  const auto positive = [](const char* what, std::int64_t value) {
    if (value > 0) return;
    throw error(errc::invalid_argument,
                std::string("a batch's ") + what + " must be at least 1, found " + std::to_string(value));
  };
  positive("context", plan.context);
  positive("number of sequences", plan.sequences);
  const auto tokens = static_cast<std::int64_t>(sequence.tokens.size());
  const std::size_t documents = sequence.starts.size();
  if (sequence.categories.size() != documents || (tokens > 0 && (documents == 0 || sequence.starts.front() != 0))) {
    throw error(errc::invalid_argument, "the " + name + " text must begin with a document and give each its category");
  }
  const std::int64_t windows = usable_windows(tokens, plan.context);
  if (windows > 0) return windows;
  throw error(errc::invalid_argument, "too little " + name + " text: have " + std::to_string(tokens) +
                                          " tokens, need at least " + std::to_string(plan.context + 1) +
                                          " for one window of context " + std::to_string(plan.context));
}

namespace detail {

// Other users of a seed number their streams from 0; the epochs of the data count from here.
inline constexpr std::uint64_t data_order_stream = 0x6461746100000000u;

// Copies window number `window` into row `row`.
inline void copy_window(const token_sequence& sequence, std::int64_t window, bool document_masks, std::int64_t row,
                        batch& out) {
  const std::int64_t begin = window * out.context;
  // The document that holds the first input: the last one to start at or before it.
  auto document = std::upper_bound(sequence.starts.begin(), sequence.starts.end(), begin) - sequence.starts.begin() - 1;
  const auto documents = static_cast<std::int64_t>(sequence.starts.size());
  const auto start = [&sequence](std::int64_t d) { return sequence.starts[static_cast<std::size_t>(d)]; };
  std::int64_t visible = 0;
  for (std::int64_t i = 0; i < out.context; ++i) {
    const std::int64_t at = begin + i;
    const bool crosses = document + 1 < documents && start(document + 1) == at + 1;
    const auto cell = static_cast<std::size_t>(row * out.context + i);
    const bool no_loss = crosses && document_masks;
    out.inputs[cell] = sequence.tokens[static_cast<std::size_t>(at)];
    out.first[cell] = static_cast<std::int32_t>(visible);
    if (crosses) ++document;
    out.targets[cell] = no_loss ? -1 : sequence.tokens[static_cast<std::size_t>(at + 1)];
    out.categories[cell] = no_loss ? -1 : sequence.categories[static_cast<std::size_t>(document)];
    if (no_loss) visible = i + 1;
  }
}

}  // namespace detail

/// The training window that sample number `sample` of a run is. Each run of `windows` samples, an epoch, visits every
/// window once, in an order of its own; nothing is remembered between calls, so a run resumes from the number alone.
[[nodiscard]] inline std::int64_t training_window(std::int64_t sample, std::int64_t windows, std::uint64_t seed) {
  const auto count = static_cast<std::uint64_t>(windows);
  const auto number = static_cast<std::uint64_t>(sample);
  const random_stream order(seed, detail::data_order_stream + number / count);
  return static_cast<std::int64_t>(permuted(number % count, count, order));
}

/// Fills `out` with samples [first_sample, first_sample + plan.sequences) of a run. Step s of a run without gradient
/// accumulation begins at sample s * plan.sequences; one that accumulates over n batches, at s * n * plan.sequences.
/// Throws as require_windows does, and invalid_argument for a negative sample.
inline void fill_training_batch(const token_sequence& sequence, const batch_plan& plan, std::int64_t first_sample,
                                batch& out) {
  const std::int64_t windows = require_windows(sequence, plan, "training");
  if (first_sample < 0) {
    throw error(errc::invalid_argument,
                "a run's samples are numbered from 0, asked for number " + std::to_string(first_sample));
  }
  out.resize(plan.sequences, plan.context);
  for (std::int64_t row = 0; row < plan.sequences; ++row) {
    detail::copy_window(sequence, training_window(first_sample + row, windows, plan.seed), plan.document_masks, row,
                        out);
  }
}

/// How many batches one pass over all windows of `sequence` takes; the last one may be short. Throws as
/// require_windows.
[[nodiscard]] inline std::int64_t validation_batches(const token_sequence& sequence, const batch_plan& plan) {
  return (require_windows(sequence, plan, "validation") - 1) / plan.sequences + 1;
}

/// Fills `out` with batch number `index` of one pass over all windows in their order, whatever the seed; the last batch
/// has only the windows that are left. Throws as require_windows does, and invalid_argument for an index that is not in
/// [0, validation_batches).
inline void fill_validation_batch(const token_sequence& sequence, const batch_plan& plan, std::int64_t index,
                                  batch& out) {
  const std::int64_t windows = require_windows(sequence, plan, "validation");
  const std::int64_t batches = validation_batches(sequence, plan);
  if (index < 0 || index >= batches) {
    throw error(errc::invalid_argument, "validation batch " + std::to_string(index) + " does not exist; have " +
                                            std::to_string(batches) + ", numbered from 0");
  }
  const std::int64_t begin = index * plan.sequences;
  out.resize((std::min)(plan.sequences, windows - begin), plan.context);
  for (std::int64_t row = 0; row < out.sequences; ++row) {
    detail::copy_window(sequence, begin + row, plan.document_masks, row, out);
  }
}

/// How many targets carry a loss: the weight of the batch among others.
[[nodiscard]] inline std::int64_t target_count(const batch& filled) {
  return std::count_if(filled.targets.begin(), filled.targets.end(), [](std::int32_t target) { return target >= 0; });
}

}  // namespace smelt
