// What does a forward pass keep for its backward pass? One record an executed layer, in buffers allocated once.
#pragma once

#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/model/kernel_shapes.hpp>
#include <smelt/spec/schedule.hpp>
#include <span>
#include <vector>

namespace smelt {

/// A matrix that owns its elements.
template <class T>
class matrix {
 public:
  matrix() = default;
  matrix(std::int64_t rows, std::int64_t cols)
      : data_(static_cast<std::size_t>(rows * cols)), rows_(rows), cols_(cols) {}
  [[nodiscard]] matrix_view<T> view() noexcept { return {data_.data(), rows_, cols_}; }
  [[nodiscard]] matrix_view<const T> view() const noexcept { return {data_.data(), rows_, cols_}; }
  [[nodiscard]] std::span<T> span() noexcept { return data_; }
  [[nodiscard]] std::span<const T> span() const noexcept { return data_; }

 private:
  std::vector<T> data_;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
};

/// The saved state of one executed layer's routed experts: [tokens, ...].
template <class Scalar>
struct routing {
  matrix<Scalar> scores;                 ///< [tokens, E]
  std::vector<std::int32_t> ids;         ///< [tokens * k]
  matrix<Scalar> weights;                ///< [tokens, k]
  std::vector<Scalar> logsumexp;         ///< [tokens]
  std::vector<Scalar> load;              ///< [E] share of the selections; sums to 1
  std::vector<std::int32_t> offsets;     ///< [E + 1]
  std::vector<std::int32_t> assignment;  ///< [tokens * k]
  std::vector<std::int32_t> row;         ///< [tokens * k]

  [[nodiscard]] grouping_view<std::int32_t> grouping() noexcept { return {offsets, assignment, row}; }
};

/// The saved state of one executed layer: [tokens, ...].
template <class Scalar>
struct layer_activations {
  matrix<Scalar> input;               ///< [tokens, H] residual stream before the layer
  std::vector<Scalar> attention_rms;  ///< [tokens] 1 / root mean square
  matrix<Scalar> raw_query, raw_key;  ///< before their norms; empty without QK-norm
  std::vector<Scalar> query_rms, key_rms;
  matrix<Scalar> query, key, value;       ///< [tokens, heads * d], rotated
  matrix<Scalar> attended;                ///< [tokens, heads * d]
  std::vector<Scalar> logsumexp;          ///< [tokens * heads]
  matrix<Scalar> middle;                  ///< [tokens, H] residual stream between the sublayers
  matrix<Scalar> ffn_input;               ///< [tokens, H] after the norm
  std::vector<Scalar> ffn_rms;            ///< [tokens]
  routing<Scalar> routed;                 ///< of a layer with experts
  matrix<Scalar> gate, up;                ///< [tokens * k, f] by grouped row, or [tokens, dense f]
  matrix<Scalar> shared_gate, shared_up;  ///< [tokens, shared f]; empty without a shared expert

  layer_activations(const spec& s, int layer, std::int64_t tokens)
      : input(tokens, s.width),
        attention_rms(static_cast<std::size_t>(tokens)),
        query(tokens, query_width(s)),
        key(tokens, kv_width(s)),
        value(tokens, kv_width(s)),
        attended(tokens, query_width(s)),
        logsumexp(static_cast<std::size_t>(tokens * s.attention.heads)),
        middle(tokens, s.width),
        ffn_input(tokens, s.width),
        ffn_rms(static_cast<std::size_t>(tokens)) {
    if (s.attention.norm != qk_norm::none) {
      raw_query = matrix<Scalar>(tokens, query_width(s));
      raw_key = matrix<Scalar>(tokens, kv_width(s));
      query_rms.resize(static_cast<std::size_t>(tokens * query_width(s) / query_norm_width(shapes::attention_input(s))));
      key_rms.resize(static_cast<std::size_t>(tokens * kv_width(s) / key_norm_width(shapes::attention_input(s))));
    }
    if (!has_experts(s, layer)) {
      gate = matrix<Scalar>(tokens, s.dense_hidden);
      up = matrix<Scalar>(tokens, s.dense_hidden);
      return;
    }
    const auto assignments = static_cast<std::size_t>(tokens * s.experts.active);
    routed.scores = matrix<Scalar>(tokens, s.experts.stored);
    routed.ids.resize(assignments);
    routed.weights = matrix<Scalar>(tokens, s.experts.active);
    routed.logsumexp.resize(static_cast<std::size_t>(tokens));
    routed.load.resize(static_cast<std::size_t>(s.experts.stored));
    routed.offsets.resize(static_cast<std::size_t>(s.experts.stored) + 1);
    routed.assignment.resize(assignments);
    routed.row.resize(assignments);
    gate = matrix<Scalar>(tokens * s.experts.active, s.experts.hidden);
    up = matrix<Scalar>(tokens * s.experts.active, s.experts.hidden);
    if (s.experts.shared_hidden > 0) {
      shared_gate = matrix<Scalar>(tokens, s.experts.shared_hidden);
      shared_up = matrix<Scalar>(tokens, s.experts.shared_hidden);
    }
  }
};

/// Buffers a pass uses and forgets, shared by all executed layers: [tokens, ...].
template <class Scalar>
struct scratch_activations {
  matrix<Scalar> stream;                  ///< [tokens, H] a sublayer's write, or its gradient
  matrix<Scalar> normed_gradient;         ///< [tokens, H]
  matrix<Scalar> query, key, value;       ///< gradients
  matrix<Scalar> attended;                ///< gradient
  matrix<Scalar> logits;                  ///< [tokens, E]; empty when every layer is dense
  matrix<Scalar> weight_gradient;         ///< [tokens, k]; empty when every layer is dense
  matrix<Scalar> single_weight_gradient;  ///< [tokens, 1] of experts that every token visits; discarded

  scratch_activations(const spec& s, std::int64_t tokens)
      : stream(tokens, s.width),
        normed_gradient(tokens, s.width),
        query(tokens, query_width(s)),
        key(tokens, kv_width(s)),
        value(tokens, kv_width(s)),
        attended(tokens, query_width(s)),
        logits(tokens, has_experts(s, s.layers - 1) ? s.experts.stored : 0),
        weight_gradient(tokens, has_experts(s, s.layers - 1) ? s.experts.active : 0),
        single_weight_gradient(tokens, 1) {}
};

/// Where each token may attend from and at which position it stands, and the grouping of an expert that takes all.
template <class Scalar>
struct batch_geometry {
  std::vector<std::int32_t> first;           ///< [tokens] first visible row of the flattened batch
  std::vector<std::int32_t> first_windowed;  ///< the same under the attention window; empty without one
  std::vector<std::int32_t> position;        ///< [tokens] position within the sequence
  std::vector<std::int32_t> every_token;     ///< [tokens] 0, 1, 2, ...
  std::vector<std::int32_t> whole;           ///< {0, tokens}
  matrix<Scalar> ones;                       ///< [tokens, 1]

  batch_geometry(const spec& s, std::int64_t tokens)
      : first(static_cast<std::size_t>(tokens)),
        first_windowed(static_cast<std::size_t>(s.attention.window > 0 ? tokens : 0)),
        position(static_cast<std::size_t>(tokens)),
        every_token(static_cast<std::size_t>(tokens)),
        whole{0, static_cast<std::int32_t>(tokens)},
        ones(tokens, 1) {
    for (std::int64_t t = 0; t < tokens; ++t) every_token[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t);
    for (Scalar& one : ones.span()) one = Scalar(1);
  }

  /// The grouping of one expert that reads every token in order.
  [[nodiscard]] grouping_view<> all_tokens() const noexcept { return {whole, every_token, every_token}; }
};

}  // namespace smelt
