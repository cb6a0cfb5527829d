// How do gradients change weights? AdamW over the layout, or Muon for its matrices, with a clipped global norm and a
// check before any change.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/weights.hpp>
#include <smelt/train/options.hpp>
#include <string>
#include <vector>

namespace smelt {

/// The name of a weight inside its layer or visit, as errors and logs write it: "layer 3 expert_gate", "visit 0
/// writeback", "visit 1 layer 2 query" of the attention that a visit has of its own.
[[nodiscard]] inline std::string describe(const spec& s, weight w, int index) {
  static constexpr const char* names[] = {
      "embedding",   "attention_norm", "query",       "key",          "value",       "query_norm", "key_norm",
      "output",      "ffn_norm",       "router",      "balance_bias", "expert_gate", "expert_up",  "expert_down",
      "shared_gate", "shared_up",      "shared_down", "dense_gate",   "dense_up",    "dense_down", "final_norm",
      "head",        "coefficient",    "encoder",     "writeback",    "stream_down", "stream_up"};
  static_assert(std::size(names) == static_cast<std::size_t>(weight::stream_up) + 1);
  std::string name = names[static_cast<int>(w)];
  if (index < 0) return name;
  if (is_of_visit(w)) return "visit " + std::to_string(index) + " " + name;
  if (index < s.layers) return "layer " + std::to_string(index) + " " + name;
  const own_attention at = own_attention_at(s, index);
  return "visit " + std::to_string(at.visit) + " layer " + std::to_string(at.layer) + " " + name;
}

/// The Euclidean norm of all gradients, and the first weight whose gradient is not finite.
struct gradient_norm {
  double norm = 0;
  std::string not_finite;  ///< empty when all are finite
};

/// Whether Muon moves `w`: matrices that map hidden states to hidden states. Routers map them to scores of experts, and
/// embeddings and heads rows to tokens.
[[nodiscard]] constexpr bool is_of_muon(weight w) noexcept {
  return is_decayed(w) && w != weight::embedding && w != weight::head && w != weight::router;
}

/// How many matrices `w` is to Muon: every expert's are its own, and every head's of queries, keys and values.
[[nodiscard]] constexpr int parts_of_muon(const spec& s, weight w) noexcept {
  switch (w) {
    case weight::expert_gate:
    case weight::expert_up:
    case weight::expert_down:
      return s.experts.stored;
    case weight::query:
      return s.attention.heads;
    case weight::key:
    case weight::value:
      return s.attention.kv_heads;
    default:
      return 1;
  }
}

/// What moves which weights, in the order of the buffer.
struct moved_weights {
  /// Elements that AdamW moves, as few ranges as there can be. The gaps of the layout hold zeros in gradients, weights
  /// and moments alike, and keep them.
  std::vector<parameter_range> ranges;
  std::vector<matrix_range> matrices;  ///< that Muon moves
};

[[nodiscard]] inline moved_weights moved_by(optimizer_kind kind, const weight_layout& layout) {
  moved_weights moved;
  std::int64_t end = 0;  // of the last range, and the gap behind it
  layout.for_each([&](weight w, int, const weight_place& p) {
    if (w == weight::balance_bias) return;
    if (kind == optimizer_kind::muon && is_of_muon(w)) {
      const int parts = parts_of_muon(layout.architecture(), w);
      const std::int64_t rows = p.rows / parts;
      for (std::int64_t i = 0; i < parts; ++i) moved.matrices.push_back({p.offset + i * rows * p.cols, rows, p.cols});
      return;
    }
    const std::int64_t size = weight_layout::padded(p);
    if (!moved.ranges.empty() && end == p.offset && moved.ranges.back().decayed == is_decayed(w))
      moved.ranges.back().size += size;
    else
      moved.ranges.push_back({p.offset, size, is_decayed(w)});
    end = p.offset + size;
  });
  return moved;
}

/// Norm of `gradients` over all weights that gradients move. Does not overflow for finite gradients.
template <Backend B>
[[nodiscard]] gradient_norm norm_of(B& backend, const weight_buffer<typename B::scalar>& gradients) {
  const auto norm_from = [&](std::int64_t first, std::int64_t last) {
    return backend.norm(
        gradients.all().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)));
  };
  double largest = 0;
  double sum = 0;  // of the squares of norm / largest
  const auto add = [&](double n) {
    if (n > largest) {
      const double shrink = largest / n;
      sum = sum * shrink * shrink + 1;
      largest = n;
    } else if (n > 0) {
      sum += (n / largest) * (n / largest);
    }
    return std::isfinite(n);
  };
  // All that lies between balancing biases at once.
  bool finite = true;
  std::int64_t begin = 0;
  gradients.layout().for_each([&](weight w, int, const weight_place& p) {
    if (w != weight::balance_bias) return;
    finite = add(norm_from(begin, p.offset)) && finite;
    begin = p.offset + p.size();
  });
  finite = add(norm_from(begin, gradients.layout().size())) && finite;
  gradient_norm result;
  result.norm = finite ? largest * std::sqrt(sum) : std::numeric_limits<double>::quiet_NaN();
  if (finite) return result;
  gradients.layout().for_each([&](weight w, int layer, const weight_place& p) {
    if (w == weight::balance_bias || !result.not_finite.empty()) return;
    if (!std::isfinite(norm_from(p.offset, p.offset + p.size())))
      result.not_finite = describe(gradients.layout().architecture(), w, layer);
  });
  return result;
}

/// AdamW, or Muon for matrices and AdamW for the rest, with decoupled weight decay on matrices. Muon's momentum is a
/// first moment; second moments of what it moves stay 0.
template <class Scalar>
class optimizer {
 public:
  explicit optimizer(const spec& s, optimizer_kind kind = optimizer_kind::adamw)
      : kind_(kind), first_(s), second_(s), moved_(moved_by(kind, first_.layout())) {}

  [[nodiscard]] weight_buffer<Scalar>& first_moment() noexcept { return first_; }
  [[nodiscard]] const weight_buffer<Scalar>& first_moment() const noexcept { return first_; }
  [[nodiscard]] weight_buffer<Scalar>& second_moment() noexcept { return second_; }
  [[nodiscard]] const weight_buffer<Scalar>& second_moment() const noexcept { return second_; }

  /// Applies update number `update` (1-based) with gradients multiplied by `gradient_scale`, and sets them to 0. The
  /// gradients must be finite (norm_of tells). Throws errc::invalid_argument when `o` is for another kind.
  template <Backend B>
  void apply(B& backend, const train_options& o, double learning_rate, double gradient_scale, std::int64_t update,
             weight_buffer<Scalar>& gradients, weight_buffer<Scalar>& weights) {
    move_matrices(backend, o, learning_rate, gradient_scale, gradients, weights);
    backend.adamw(numbers(o, learning_rate, gradient_scale, update), moved_.ranges, gradients.all(), weights.all(),
                  first_.all(), second_.all());
  }

  /// The same, of which the backend may leave any part for later: see Backend. Until `backend.settle(weights.all())`,
  /// only ops of the backend find gradients, weights and moments updated, and all of them and this optimizer must live.
  template <Backend B>
  void apply_deferred(B& backend, const train_options& o, double learning_rate, double gradient_scale,
                      std::int64_t update, weight_buffer<Scalar>& gradients, weight_buffer<Scalar>& weights) {
    move_matrices(backend, o, learning_rate, gradient_scale, gradients, weights);
    backend.adamw_deferred(numbers(o, learning_rate, gradient_scale, update), moved_.ranges, gradients.all(),
                           weights.all(), first_.all(), second_.all());
  }

 private:
  template <Backend B>
  void move_matrices(B& backend, const train_options& o, double learning_rate, double gradient_scale,
                     weight_buffer<Scalar>& gradients, weight_buffer<Scalar>& weights) {
    if (o.optimizer != kind_)
      throw error(errc::invalid_argument, std::string("the options want the optimizer ") + name_of(o.optimizer) +
                                              ", this one was made as " + name_of(kind_));
    if (moved_.matrices.empty()) return;
    backend.muon({.learning_rate = learning_rate,
                  .momentum = o.momentum,
                  .weight_decay = o.weight_decay,
                  .gradient_scale = gradient_scale},
                 moved_.matrices, gradients.all(), weights.all(), first_.all());
  }

  [[nodiscard]] static adamw_step numbers(const train_options& o, double learning_rate, double gradient_scale,
                                          std::int64_t update) noexcept {
    return {.learning_rate = learning_rate,
            .beta1 = o.beta1,
            .beta2 = o.beta2,
            .eps = o.eps,
            .weight_decay = o.weight_decay,
            .gradient_scale = gradient_scale,
            .step = update};
  }

  optimizer_kind kind_;
  weight_buffer<Scalar> first_;
  weight_buffer<Scalar> second_;
  moved_weights moved_;
};

}  // namespace smelt
