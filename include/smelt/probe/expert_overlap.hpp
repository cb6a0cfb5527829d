// Do two visits of a layer send a token to the same experts? The share that consecutive visits have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/language_model.hpp>
#include <smelt/spec/schedule.hpp>
#include <span>
#include <vector>

namespace smelt {

/// How much the choices of two consecutive visits of one layer have in common.
struct expert_overlap {
  int layer = 0;            ///< physical layer
  int visit = 0;            ///< the earlier visit, 0-based; the other one is the next
  std::int64_t tokens = 0;  ///< that both visits have chosen experts for
  std::int64_t shared = 0;  ///< experts that both have chosen, summed over these tokens
  int fewer = 0;            ///< experts a token in the visit that chooses fewer: the most that both can share
  double chance = 0;        ///< share that independent uniform choices would have: k1 k2 / E / fewer

  /// Mean share of the experts that could be in both choices that are; 0 without tokens.
  [[nodiscard]] double share() const noexcept {
    return tokens == 0 ? 0.0 : static_cast<double>(shared) / (static_cast<double>(tokens) * fewer);
  }
};

/// Sums up overlaps over batches. A token's experts in a compressed visit are those of the latent whose chunk holds it;
/// a token whose latent it did not enter, or whose chunk is not whole, is left out, and so is one that predicts
/// nothing, as padding does.
class expert_overlaps {
 public:
  /// For every routed layer of the span and every two consecutive visits; none without a loop of two visits.
  explicit expert_overlaps(const spec& s) : spec_(s) {
    const loop_span span = span_of(s);
    for (int layer = span.first; layer < span.first + span.count; ++layer) {
      if (!has_experts(s, layer)) continue;
      for (int visit = 0; visit + 1 < span.visits; ++visit) {
        const double a = active_of(s, s.loop.visits[visit]), b = active_of(s, s.loop.visits[visit + 1]);
        found_.push_back({.layer = layer,
                          .visit = visit,
                          .fewer = static_cast<int>((std::min)(a, b)),
                          .chance = (std::max)(a, b) / s.experts.stored});
      }
    }
  }

  /// Adds the choices of `model`'s last forward pass, which ran on `batch`. Throws errc::invalid_argument for a model
  /// that does not save all activations, and errc::mismatch for one of another architecture.
  template <ArchitectureHandle A, Backend B>
  void add(const language_model<A, B>& model, const token_batch& batch) {
    if (!(model.architecture() == spec_))
      throw error(errc::mismatch, "overlaps are of one architecture, found a model of another");
    const loop_span span = span_of(spec_);
    const auto step_of = [&](int layer, int visit) {
      return schedule(spec_)[span.first + visit * span.count + layer - span.first];
    };
    for (expert_overlap& pair : found_) {
      const executed_layer a = step_of(pair.layer, pair.visit), b = step_of(pair.layer, pair.visit + 1);
      const std::span<const std::int32_t> ids_a = model.layer(a.index).routed.ids;
      const std::span<const std::int32_t> ids_b = model.layer(b.index).routed.ids;
      if (ids_a.empty() || ids_b.empty()) continue;  // sequences shorter than a chunk
      if (ids_a.data() == ids_b.data())
        throw error(errc::invalid_argument,
                    "overlaps need a model that saves all activations, found one that does not");
      for (std::int64_t t = 0; t < batch.tokens(); ++t) {
        if (batch.targets[static_cast<std::size_t>(t)] < 0) continue;
        const auto chosen_a = experts_of(a, ids_a, batch, t), chosen_b = experts_of(b, ids_b, batch, t);
        if (chosen_a.empty() || chosen_b.empty()) continue;
        ++pair.tokens;
        for (const std::int32_t e : chosen_a) pair.shared += std::ranges::count(chosen_b, e);
      }
    }
  }

  /// By layer, then by visit.
  [[nodiscard]] const std::vector<expert_overlap>& found() const noexcept { return found_; }

 private:
  /// What executed layer `e` chose for token `t` of the batch; empty where it did not.
  [[nodiscard]] std::span<const std::int32_t> experts_of(const executed_layer& e, std::span<const std::int32_t> ids,
                                                         const token_batch& batch, std::int64_t t) const {
    const std::int64_t sequence = t / batch.length, position = t % batch.length;
    const std::int64_t rows = executed_positions(e, batch.length), row = position / e.plan.compression;
    if (row >= rows) return {};
    const std::int64_t last = (row + 1) * e.plan.compression - 1;
    if (batch.first[static_cast<std::size_t>(sequence * batch.length + last)] > position) return {};
    const auto active = static_cast<std::size_t>(active_of(spec_, e.plan));
    return ids.subspan(static_cast<std::size_t>(sequence * rows + row) * active, active);
  }

  spec spec_;
  std::vector<expert_overlap> found_;
};

}  // namespace smelt
