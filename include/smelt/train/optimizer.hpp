// How do gradients change weights? AdamW over the layout, with a clipped global norm and a check before any change.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/weights.hpp>
#include <smelt/train/options.hpp>
#include <string>

namespace smelt {

/// The name of a weight inside its layer, as errors and logs write it: "layer 3 expert_gate".
[[nodiscard]] inline std::string describe(weight w, int layer) {
  static constexpr const char* names[] = {
      "embedding", "attention_norm", "query",       "key",       "value",        "query_norm",
      "key_norm",  "output",         "ffn_norm",    "router",    "balance_bias", "expert_gate",
      "expert_up", "expert_down",    "shared_gate", "shared_up", "shared_down",  "dense_gate",
      "dense_up",  "dense_down",     "final_norm",  "head"};
  const std::string name = names[static_cast<int>(w)];
  return layer < 0 ? name : "layer " + std::to_string(layer) + " " + name;
}

/// The Euclidean norm of all gradients, and the first weight whose gradient is not finite.
struct gradient_norm {
  double norm = 0;
  std::string not_finite;  ///< empty when all are finite
};

/// Norm of `gradients` over all weights that gradients move. Does not overflow for finite gradients.
template <Backend B>
[[nodiscard]] gradient_norm norm_of(B& backend, const weight_buffer<typename B::scalar>& gradients) {
  gradient_norm result;
  double largest = 0;
  double sum = 0;  // of the squares of norm / largest
  gradients.layout().for_each([&](weight w, int layer, const weight_place& p) {
    if (w == weight::balance_bias) return;
    const double n =
        backend.norm(gradients.all().subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.size())));
    if (!std::isfinite(n)) {
      if (result.not_finite.empty()) result.not_finite = describe(w, layer);
      return;
    }
    if (n > largest) {
      const double shrink = largest / n;
      sum = sum * shrink * shrink + 1;
      largest = n;
    } else if (n > 0) {
      sum += (n / largest) * (n / largest);
    }
  });
  result.norm = result.not_finite.empty() ? largest * std::sqrt(sum) : std::numeric_limits<double>::quiet_NaN();
  return result;
}

/// AdamW with decoupled weight decay on matrices.
template <class Scalar>
class optimizer {
 public:
  explicit optimizer(const spec& s) : first_(s), second_(s) {}

  [[nodiscard]] weight_buffer<Scalar>& first_moment() noexcept { return first_; }
  [[nodiscard]] const weight_buffer<Scalar>& first_moment() const noexcept { return first_; }
  [[nodiscard]] weight_buffer<Scalar>& second_moment() noexcept { return second_; }
  [[nodiscard]] const weight_buffer<Scalar>& second_moment() const noexcept { return second_; }

  /// Applies update number `update` (1-based) with gradients multiplied by `gradient_scale`. The gradients must be
  /// finite (norm_of tells).
  template <Backend B>
  void apply(B& backend, const train_options& o, double learning_rate, double gradient_scale, std::int64_t update,
             const weight_buffer<Scalar>& gradients, weight_buffer<Scalar>& weights) {
    weights.layout().for_each([&](weight w, int, const weight_place& p) {
      if (w == weight::balance_bias) return;
      const auto part = [&](auto all) {
        return all.subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.size()));
      };
      backend.adamw({.learning_rate = learning_rate,
                     .beta1 = o.beta1,
                     .beta2 = o.beta2,
                     .eps = o.eps,
                     .weight_decay = is_decayed(w) ? o.weight_decay : 0.0,
                     .gradient_scale = gradient_scale,
                     .step = update},
                    part(gradients.all()), part(weights.all()), part(first_.all()), part(second_.all()));
    });
  }

 private:
  weight_buffer<Scalar> first_;
  weight_buffer<Scalar> second_;
};

}  // namespace smelt
