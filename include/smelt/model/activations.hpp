// What does a forward pass keep for its backward pass? One record an executed layer, cut from one block of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <smelt/core/carver.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/model/kernel_shapes.hpp>
#include <smelt/spec/schedule.hpp>
#include <span>
#include <vector>

namespace smelt {

/// A matrix in memory that somebody else owns; elements of a constant one are constant.
template <class T>
class matrix {
 public:
  matrix() = default;
  matrix(carver& memory, std::int64_t rows, std::int64_t cols)
      : data_(memory.take<T>(rows * cols)), rows_(rows), cols_(cols) {}
  [[nodiscard]] matrix_view<T> view() noexcept { return {data_.data(), rows_, cols_}; }
  [[nodiscard]] matrix_view<const T> view() const noexcept { return {data_.data(), rows_, cols_}; }
  [[nodiscard]] std::span<T> span() noexcept { return data_; }
  [[nodiscard]] std::span<const T> span() const noexcept { return data_; }

 private:
  std::span<T> data_;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
};

/// The saved state of one executed layer's routed experts: [tokens, ...].
template <class Scalar>
struct routing {
  matrix<Scalar> scores;               ///< [tokens, E]
  std::span<std::int32_t> ids;         ///< [tokens * k]
  matrix<Scalar> weights;              ///< [tokens, k]
  std::span<Scalar> logsumexp;         ///< [tokens]
  std::span<Scalar> load;              ///< [E] share of the selections; sums to 1
  std::span<std::int32_t> offsets;     ///< [E + 1]
  std::span<std::int32_t> assignment;  ///< [tokens * k]
  std::span<std::int32_t> row;         ///< [tokens * k]

  [[nodiscard]] grouping_view<std::int32_t> grouping() const noexcept { return {offsets, assignment, row}; }
};

/// The saved state of one executed layer: [tokens, ...].
template <class Scalar>
struct layer_activations {
  matrix<Scalar> input;               ///< [tokens, H] residual stream before the layer
  std::span<Scalar> attention_rms;    ///< [tokens] 1 / root mean square
  matrix<Scalar> raw_query, raw_key;  ///< before their norms; empty without QK-norm
  std::span<Scalar> query_rms, key_rms;
  matrix<Scalar> query, key, value;       ///< [tokens, heads * d], rotated
  matrix<Scalar> attended;                ///< [tokens, heads * d]
  std::span<Scalar> logsumexp;            ///< [tokens * heads]
  matrix<Scalar> middle;                  ///< [tokens, H] residual stream between the sublayers
  matrix<Scalar> ffn_input;               ///< [tokens, H] after the norm
  std::span<Scalar> ffn_rms;              ///< [tokens]
  routing<Scalar> routed;                 ///< of a layer with experts
  matrix<Scalar> gate, up;                ///< [tokens * k, f] by grouped row, or [tokens, dense f]
  matrix<Scalar> shared_gate, shared_up;  ///< [tokens, shared f]; empty without a shared expert

  /// What must stay until the backward pass reaches the layer, even if it computes the rest again, is cut from `kept`;
  /// the rest from `record`.
  layer_activations(const spec& s, int layer, std::int64_t tokens, carver& kept, carver& record)
      : input(kept, tokens, s.width),
        attention_rms(record.take<Scalar>(tokens)),
        query(record, tokens, query_width(s)),
        key(record, tokens, kv_width(s)),
        value(record, tokens, kv_width(s)),
        attended(record, tokens, query_width(s)),
        logsumexp(record.take<Scalar>(tokens * s.attention.heads)),
        middle(record, tokens, s.width),
        ffn_input(record, tokens, s.width),
        ffn_rms(record.take<Scalar>(tokens)) {
    if (s.attention.norm != qk_norm::none) {
      raw_query = {record, tokens, query_width(s)};
      raw_key = {record, tokens, kv_width(s)};
      query_rms = record.take<Scalar>(tokens * query_width(s) / query_norm_width(shapes::attention_input(s)));
      key_rms = record.take<Scalar>(tokens * kv_width(s) / key_norm_width(shapes::attention_input(s)));
    }
    if (!has_experts(s, layer)) {
      gate = {record, tokens, s.dense_hidden};
      up = {record, tokens, s.dense_hidden};
      return;
    }
    const std::int64_t assignments = tokens * s.experts.active;
    routed.scores = {record, tokens, s.experts.stored};
    routed.ids = record.take<std::int32_t>(assignments);
    routed.weights = {record, tokens, s.experts.active};
    routed.logsumexp = record.take<Scalar>(tokens);
    routed.load = kept.take<Scalar>(s.experts.stored);
    routed.offsets = record.take<std::int32_t>(s.experts.stored + 1);
    routed.assignment = record.take<std::int32_t>(assignments);
    routed.row = record.take<std::int32_t>(assignments);
    gate = {record, assignments, s.experts.hidden};
    up = {record, assignments, s.experts.hidden};
    if (s.experts.shared_hidden > 0) {
      shared_gate = {record, tokens, s.experts.shared_hidden};
      shared_up = {record, tokens, s.experts.shared_hidden};
    }
  }
};

/// Buffers a pass uses and forgets, shared by all executed layers: [tokens, ...].
template <class Scalar>
struct scratch_activations {
  matrix<Scalar> normed_gradient;         ///< [tokens, H]
  matrix<Scalar> query, key, value;       ///< gradients
  matrix<Scalar> attended;                ///< gradient
  matrix<Scalar> logits;                  ///< [tokens, E]; empty when every layer is dense
  matrix<Scalar> weight_gradient;         ///< [tokens, k]; empty when every layer is dense
  matrix<Scalar> single_weight_gradient;  ///< [tokens, 1] of experts that every token visits; discarded

  /// Without a backward pass there is nothing but the logits.
  scratch_activations(const spec& s, std::int64_t tokens, bool backward, carver& memory)
      : logits(memory, tokens, has_experts(s, s.layers - 1) ? s.experts.stored : 0) {
    if (!backward) return;
    normed_gradient = {memory, tokens, s.width};
    query = {memory, tokens, query_width(s)};
    key = {memory, tokens, kv_width(s)};
    value = {memory, tokens, kv_width(s)};
    attended = {memory, tokens, query_width(s)};
    weight_gradient = {memory, tokens, has_experts(s, s.layers - 1) ? s.experts.active : 0};
    single_weight_gradient = {memory, tokens, 1};
  }
};

/// Where each token may attend from and at which position it stands, and the grouping of an expert that takes all.
template <class Scalar>
struct batch_geometry {
  std::span<std::int32_t> first;           ///< [tokens] first visible row of the flattened batch
  std::span<std::int32_t> first_windowed;  ///< the same under the attention window; empty without one
  std::span<std::int32_t> position;        ///< [tokens] position within the sequence
  std::span<std::int32_t> every_token;     ///< [tokens] 0, 1, 2, ...
  std::span<std::int32_t> whole;           ///< {0, tokens}
  matrix<Scalar> ones;                     ///< [tokens, 1]

  batch_geometry(const spec& s, std::int64_t tokens, carver& memory)
      : first(memory.take<std::int32_t>(tokens)),
        first_windowed(memory.take<std::int32_t>(s.attention.window > 0 ? tokens : 0)),
        position(memory.take<std::int32_t>(tokens)),
        every_token(memory.take<std::int32_t>(tokens)),
        whole(memory.take<std::int32_t>(2)),
        ones(memory, tokens, 1) {
    std::int32_t number = 0;
    for (std::int32_t& t : every_token) t = number++;
    if (!whole.empty()) {
      whole.front() = 0;
      whole.back() = static_cast<std::int32_t>(tokens);
    }
    for (Scalar& one : ones.span()) one = Scalar(1);
  }

  /// The grouping of one expert that reads every token in order.
  [[nodiscard]] grouping_view<> all_tokens() const noexcept { return {whole, every_token, every_token}; }
};

/// What a forward pass leaves for a backward pass.
enum class saved_activations : int {
  all,     ///< the record of every executed layer
  inputs,  ///< the input of every executed layer: the backward pass computes the layer again
  none,    ///< nothing, there is no backward pass: every executed layer has the memory of one
};

/// All that a model's passes write besides gradients of weights, for batches of `tokens` tokens.
template <class Scalar>
struct model_buffers {
  std::vector<layer_activations<Scalar>> layers;  ///< one an executed layer
  scratch_activations<Scalar> scratch;
  batch_geometry<Scalar> geometry;
  matrix<Scalar> output;        ///< [tokens, H] residual stream behind the last layer
  matrix<Scalar> normed;        ///< [tokens, H]
  matrix<Scalar> gradient;      ///< [tokens, H] gradient of the residual stream; empty without a backward pass
  std::span<Scalar> final_rms;  ///< [tokens]
  std::span<Scalar> losses;     ///< [tokens]
  std::span<Scalar> logsumexp;  ///< [tokens]

  /// Cuts them from `memory`, or measures them.
  model_buffers(const spec& s, std::int64_t tokens, saved_activations saved, carver& memory)
      : scratch(s, tokens, saved != saved_activations::none, memory),
        geometry(s, tokens, memory),
        output(memory, tokens, s.width),
        normed(memory, tokens, s.width),
        gradient(memory, saved == saved_activations::none ? 0 : tokens, s.width),
        final_rms(memory.take<Scalar>(tokens)),
        losses(memory.take<Scalar>(tokens)),
        logsumexp(memory.take<Scalar>(tokens)) {
    const schedule steps(s);
    layers.reserve(static_cast<std::size_t>(steps.size()));
    // Memory that executed layers have one after the other: enough for the largest.
    std::size_t inputs = 0;
    std::size_t records = 0;
    for (const executed_layer e : steps) {
      carver input, record;
      static_cast<void>(layer_activations<Scalar>(s, e.layer, tokens, input, record));
      inputs = (std::max)(inputs, input.used());
      records = (std::max)(records, record.used());
    }
    const auto in_turns = [&](std::size_t bytes, bool really) {
      return memory.take<std::byte>(really ? static_cast<std::int64_t>(bytes) : 0);
    };
    const std::span<std::byte> any_input = in_turns(inputs, saved == saved_activations::none);
    const std::span<std::byte> any_record = in_turns(records, saved != saved_activations::all);
    for (const executed_layer e : steps) {
      carver input(any_input), record(any_record);
      layers.emplace_back(s, e.layer, tokens, saved == saved_activations::none ? input : memory,
                          saved == saved_activations::all ? memory : record);
    }
  }
};

}  // namespace smelt
