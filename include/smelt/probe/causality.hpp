// Does a model see the future? Two batches that are equal up to a prefix must have the same bits there, whatever
// follows.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/language_model.hpp>
#include <smelt/spec/schedule.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace smelt {

/// What the probe found to depend on later tokens.
enum class leaked : int {
  routing,  ///< the experts that a router chose, or their weights
  hidden,   ///< the final normed hidden state
  logits,
};

[[nodiscard]] constexpr std::string_view name_of(leaked what) noexcept {
  return what == leaked::routing ? "routing" : what == leaked::hidden ? "hidden state" : "logits";
}

/// The first place where something depends on later tokens: the least position, and there routing in execution order,
/// then the hidden state, then the logits.
struct causality_leak {
  std::int64_t length = 0;    ///< of the sequences
  std::int64_t prefix = 0;    ///< tokens of this sequence that both batches share
  std::int64_t document = 0;  ///< where the sequence's second document begins in the second batch; 0 is one document
  std::int64_t sequence = 0;  ///< of the batch
  std::int64_t position = 0;  ///< of the token, or of the last token of the latent
  leaked what{};
  int layer = -1;                ///< physical layer, for routing; -1 otherwise
  int visit = 0;                 ///< for routing
  double hidden_difference = 0;  ///< the largest one of an element, over the prefixes of the batch
  double logit_difference = 0;   ///< the largest one of a logit
};

/// What a probe compared, and what it found.
struct causality_report {
  std::int64_t comparisons = 0;  ///< pairs of batches
  std::int64_t positions = 0;    ///< positions of prefixes whose hidden states and logits were compared
  std::int64_t routed = 0;       ///< choices of experts in prefixes that were compared
  std::int64_t changed = 0;  ///< positions behind a prefix whose hidden state differed when other tokens stood there
  std::optional<causality_leak> leak;  ///< the first one; the probe ends there

  /// Whether nothing leaked, and the probe was not blind: what may depend on the changed tokens did.
  [[nodiscard]] bool holds() const noexcept { return !leak && changed > 0; }
};

/// The lengths at which chunks, tiles and vectors end in every way: 1 to 9, 31 to 33 and 63 to 65, as far as the
/// context goes.
[[nodiscard]] inline std::vector<std::int64_t> causality_lengths(std::int64_t context) {
  std::vector<std::int64_t> lengths;
  for (const auto& [from, to] : {std::array{1, 9}, std::array{31, 33}, std::array{63, 65}})
    for (std::int64_t length = from; length <= to && length <= context; ++length) lengths.push_back(length);
  return lengths;
}

/// The prefixes of the first sequence that are tried at a length: all of a short one's, the whole included, and of a
/// long one's those around 1, 3, 7, 15, 31, 32 and 63 and its last two. The second sequence keeps the rest of the
/// length.
[[nodiscard]] inline std::vector<std::int64_t> causality_prefixes(std::int64_t length) {
  std::vector<std::int64_t> prefixes;
  if (length < 10) {
    for (std::int64_t prefix = 0; prefix <= length; ++prefix) prefixes.push_back(prefix);
    return prefixes;
  }
  for (const std::int64_t about : {std::int64_t{1}, std::int64_t{3}, std::int64_t{7}, std::int64_t{15},
                                   std::int64_t{31}, std::int64_t{32}, std::int64_t{63}, length - 1})
    for (std::int64_t prefix = about - 1; prefix <= about + 1; ++prefix)
      if (prefix > 0 && prefix < length) prefixes.push_back(prefix);
  std::ranges::sort(prefixes);
  const auto repeated = std::ranges::unique(prefixes);
  prefixes.erase(repeated.begin(), repeated.end());
  return prefixes;
}

namespace detail {

inline constexpr std::int64_t causality_sequences = 2;

/// Sequences of `length` tokens for the probe, of which the second kind has other tokens behind its cuts.
struct causality_batch {
  std::int64_t length = 0;
  std::array<std::int64_t, causality_sequences> cut{};       ///< tokens that both kinds share
  std::array<std::int64_t, causality_sequences> document{};  ///< where a second document begins; 0 is one document
  std::vector<std::int32_t> inputs, targets, first;

  causality_batch(std::int64_t length_, int vocab, std::uint64_t seed) : length(length_) {
    cut.fill(length);
    const auto tokens = static_cast<std::size_t>(causality_sequences * length);
    const random_stream random(seed, static_cast<std::uint64_t>(length));
    targets.assign(tokens, -1);
    first.assign(tokens, 0);
    for (std::size_t t = 0; t < tokens; ++t)
      inputs.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocab), t)));
  }

  /// Its tokens from position `kept` on are others, every one of them.
  void change(std::size_t sequence, std::int64_t kept, int vocab, std::uint64_t seed) {
    cut[sequence] = kept;
    const random_stream random(seed, (std::uint64_t{1} << 32) + static_cast<std::uint64_t>(length));
    for (std::int64_t position = kept; position < length; ++position) {
      const auto t = static_cast<std::uint64_t>(static_cast<std::int64_t>(sequence) * length + position);
      const auto step = 1 + random.below(static_cast<std::uint64_t>(vocab) - 1, t);
      inputs[t] =
          static_cast<std::int32_t>((static_cast<std::uint64_t>(inputs[t]) + step) % static_cast<std::uint64_t>(vocab));
    }
  }

  /// A second document begins at `position`, which lies inside the sequence.
  void begin_document(std::size_t sequence, std::int64_t position) {
    document[sequence] = position;
    const auto begin = first.begin() + static_cast<std::ptrdiff_t>(sequence) * length;
    std::fill(begin + position, begin + length, static_cast<std::int32_t>(position));
  }

  [[nodiscard]] token_batch view() const noexcept { return {inputs, targets, first, causality_sequences, length}; }
};

/// What a pass said about every token.
template <class Scalar>
struct causality_pass {
  struct routed_layer {
    executed_layer step;
    std::vector<std::int32_t> ids;  ///< [rows, k]
    std::vector<Scalar> weights;    ///< [rows, k]
  };
  std::vector<routed_layer> routed;
  std::vector<Scalar> hidden;  ///< [tokens, H]
  std::vector<Scalar> logits;  ///< [tokens, V]

  template <ArchitectureHandle A, Backend B>
  causality_pass(const A& arch, B& backend, language_model<A, B>& model, const weight_buffer<Scalar>& w,
                 const causality_batch& batch) {
    const spec& s = spec_of(arch);
    static_cast<void>(model.forward(w, batch.view()));
    const matrix_view<const Scalar> rows = model.hidden();
    hidden.assign(rows.data, rows.data + rows.size());
    logits.resize(static_cast<std::size_t>(rows.rows * s.vocab));
    // Rows of the table behind the vocabulary are padding.
    backend.linear(shape<shapes::logits>(arch), rows, matrix_view<const Scalar>(w.head().data, s.vocab, s.width),
                   matrix_view<Scalar>(logits.data(), rows.rows, s.vocab));
    for (const executed_layer e : schedule(s)) {
      if (!has_experts(s, e.layer) || executed_positions(e, batch.length) == 0) continue;
      const routing<Scalar>& r = model.layer(e.index).routed;
      const auto weights = r.weights.span();
      routed.push_back({e, {r.ids.begin(), r.ids.end()}, {weights.begin(), weights.end()}});
    }
  }
};

/// Rows `begin` to `end` of two arrays of rows of `width`: the first that differs in a bit, or -1.
template <class T>
[[nodiscard]] std::int64_t first_difference(const std::vector<T>& a, const std::vector<T>& b, std::int64_t width,
                                            std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row)
    if (std::memcmp(a.data() + row * width, b.data() + row * width, sizeof(T) * static_cast<std::size_t>(width)) != 0)
      return row - begin;
  return -1;
}

/// The largest difference of two elements in the rows; infinite where one is not finite and the other differs.
template <class T>
[[nodiscard]] double largest_difference(const std::vector<T>& a, const std::vector<T>& b, std::int64_t width,
                                        std::int64_t begin, std::int64_t end) {
  double largest = 0;
  for (std::int64_t i = begin * width; i < end * width; ++i) {
    if (first_difference(a, b, 1, i, i + 1) < 0) continue;
    const auto at = static_cast<std::size_t>(i);
    const double difference = std::abs(static_cast<double>(a[at]) - static_cast<double>(b[at]));
    largest = (std::max)(largest, std::isfinite(difference) ? difference : HUGE_VAL);
  }
  return largest;
}

/// Compares what two passes said about the prefixes that their batches share. Behind them, what changed is counted
/// when only tokens did.
template <class Scalar>
void compare_prefixes(const spec& s, const causality_batch& batch, const causality_pass<Scalar>& a,
                      const causality_pass<Scalar>& b, bool only_tokens, causality_report& report) {
  ++report.comparisons;
  const std::int64_t length = batch.length;
  std::optional<causality_leak> leak;
  for (std::int64_t sequence = 0; sequence < causality_sequences; ++sequence) {
    const auto number = static_cast<std::size_t>(sequence);
    const std::int64_t kept = batch.cut[number];
    const std::int64_t begin = sequence * length;
    const auto found = [&](std::int64_t position, leaked what, const executed_layer& e) {
      if (position < 0 || (leak && leak->position <= position)) return;
      leak = {.length = length,
              .prefix = kept,
              .document = batch.document[number],
              .sequence = sequence,
              .position = position,
              .what = what,
              .layer = what == leaked::routing ? e.layer : -1,
              .visit = e.visit};
    };
    for (std::size_t i = 0; i < a.routed.size(); ++i) {
      const executed_layer& e = a.routed[i].step;
      // A latent belongs to the prefix if its last token does.
      const std::int64_t rows = executed_positions(e, length);
      const std::int64_t rows_kept = executed_positions(e, kept);
      const std::int64_t active = static_cast<std::int64_t>(a.routed[i].ids.size()) / (causality_sequences * rows);
      const auto look = [&](const auto& x, const auto& y) {
        const std::int64_t row = first_difference(x, y, active, sequence * rows, sequence * rows + rows_kept);
        found(row < 0 ? row : (row + 1) * e.plan.compression - 1, leaked::routing, e);
      };
      look(a.routed[i].ids, b.routed[i].ids);
      look(a.routed[i].weights, b.routed[i].weights);
      report.routed += rows_kept * active;
    }
    found(first_difference(a.hidden, b.hidden, s.width, begin, begin + kept), leaked::hidden, {});
    found(first_difference(a.logits, b.logits, s.vocab, begin, begin + kept), leaked::logits, {});
    report.positions += kept;
    for (std::int64_t row = begin + kept; only_tokens && row < begin + length; ++row)
      report.changed += first_difference(a.hidden, b.hidden, s.width, row, row + 1) == 0;
  }
  if (!leak) return;
  for (std::int64_t sequence = 0; sequence < causality_sequences; ++sequence) {
    const std::int64_t begin = sequence * length;
    const std::int64_t end = begin + batch.cut[static_cast<std::size_t>(sequence)];
    leak->hidden_difference =
        (std::max)(leak->hidden_difference, largest_difference(a.hidden, b.hidden, s.width, begin, end));
    leak->logit_difference =
        (std::max)(leak->logit_difference, largest_difference(a.logits, b.logits, s.vocab, begin, end));
  }
  report.leak = leak;
}

}  // namespace detail

/// Compares batches of two sequences that differ only behind a prefix, at every length and with every prefix that
/// causality_prefixes names: routing, final hidden states and logits of the prefixes must be equal to the bit. Each
/// pair is tried as one document a sequence, with a second document inside, and with a document that begins where the
/// change does. The probe ends at the first leak. Throws as language_model does, and errc::invalid_argument without
/// lengths or for a vocabulary with no second token.
template <ArchitectureHandle A, Backend B>
[[nodiscard]] causality_report probe_causality(const A& arch, B& backend,
                                               const weight_buffer<typename B::scalar>& weights,
                                               std::span<const std::int64_t> lengths, std::uint64_t seed = 0) {
  using pass = detail::causality_pass<typename B::scalar>;
  const spec& s = spec_of(arch);
  if (lengths.empty()) throw error(errc::invalid_argument, "a causality probe needs at least 1 length, found none");
  if (s.vocab < 2)
    throw error(errc::invalid_argument,
                "a causality probe needs a vocabulary of at least 2 tokens, found " + std::to_string(s.vocab));
  causality_report report;
  for (const std::int64_t length : lengths) {
    language_model<A, B> model(arch, backend, detail::causality_sequences, length);
    detail::causality_batch whole(length, s.vocab, seed);
    detail::causality_batch parted = whole;
    const std::int64_t border = length / 3;
    for (std::size_t q = 0; q < detail::causality_sequences && border > 0; ++q) parted.begin_document(q, border);
    const pass of_whole(arch, backend, model, weights, whole);
    const pass of_parted(arch, backend, model, weights, parted);
    for (const std::int64_t prefix : causality_prefixes(length)) {
      const auto compare = [&](detail::causality_batch changed, const pass& unchanged, bool with_document) {
        for (std::size_t q = 0; q < detail::causality_sequences; ++q) {
          const std::int64_t kept = q == 0 ? prefix : length - prefix;
          changed.change(q, kept, s.vocab, seed);
          if (with_document) changed.begin_document(q, kept);
        }
        const pass other(arch, backend, model, weights, changed);
        detail::compare_prefixes(s, changed, unchanged, other, !with_document, report);
      };
      compare(whole, of_whole, false);
      if (!report.leak && prefix > 0 && prefix < length) compare(whole, of_whole, true);
      if (!report.leak && border > 0) compare(parted, of_parted, false);
      if (report.leak) return report;
    }
  }
  return report;
}

}  // namespace smelt
