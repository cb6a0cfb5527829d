// How are a model's weights held, reached and started? As one buffer with views by name.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <smelt/core/page_block.hpp>
#include <smelt/core/random.hpp>
#include <smelt/core/view.hpp>
#include <smelt/model/weight_layout.hpp>
#include <smelt/spec/schedule.hpp>
#include <span>

namespace smelt {

/// A flat buffer with a spec's layout: weights, their gradients, or moments.
template <class Scalar>
class weight_buffer {
 public:
  /// All zeros.
  explicit weight_buffer(const spec& s)
      : layout_(s), memory_(static_cast<std::size_t>(layout_.size()) * sizeof(Scalar)) {}

  [[nodiscard]] const weight_layout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::span<Scalar> all() noexcept { return {data(), static_cast<std::size_t>(layout_.size())}; }
  [[nodiscard]] std::span<const Scalar> all() const noexcept {
    return {data(), static_cast<std::size_t>(layout_.size())};
  }

  /// The weight as a matrix; empty when the layer has no such weight.
  [[nodiscard]] matrix_view<Scalar> operator()(weight w, int layer = 0) noexcept { return view(data(), w, layer); }
  [[nodiscard]] matrix_view<const Scalar> operator()(weight w, int layer = 0) const noexcept {
    return view(static_cast<const Scalar*>(data()), w, layer);
  }

  /// The weight as a vector: norms and biases.
  [[nodiscard]] std::span<Scalar> vector(weight w, int layer = 0) noexcept { return flat((*this)(w, layer)); }
  [[nodiscard]] std::span<const Scalar> vector(weight w, int layer = 0) const noexcept {
    return flat((*this)(w, layer));
  }

  /// The matrix that produces the logits: the head, or the embedding when tied.
  [[nodiscard]] matrix_view<const Scalar> head() const noexcept { return (*this)(head_weight()); }
  [[nodiscard]] matrix_view<Scalar> head() noexcept { return (*this)(head_weight()); }

 private:
  [[nodiscard]] Scalar* data() const noexcept { return reinterpret_cast<Scalar*>(memory_.data()); }
  template <class T>
  [[nodiscard]] matrix_view<T> view(T* data, weight w, int layer) const noexcept {
    const weight_place p = layout_(w, layer);
    return p.rows > 0 ? matrix_view<T>(data + p.offset, p.rows, p.cols) : matrix_view<T>();
  }
  template <class T>
  [[nodiscard]] static std::span<T> flat(matrix_view<T> m) noexcept {
    return {m.data, static_cast<std::size_t>(m.size())};
  }
  [[nodiscard]] weight head_weight() const noexcept {
    return layout_(weight::head).rows > 0 ? weight::head : weight::embedding;
  }

  weight_layout layout_;
  page_block memory_;
};

/// Starts the weights from `seed`: gains 1, biases 0, embedding normal with deviation 0.02, matrices normal with
/// deviation sqrt(2 / (5 H)) ("small init"), divided by sqrt(2 executed layers) where they write into the residual
/// stream. A visit starts as its plan says: coefficients as given, latents as means, increments written back as they
/// are. Every element depends only on the seed, its weight, its layer or visit, and its index.
template <class Scalar>
void initialise(weight_buffer<Scalar>& weights, const spec& s, std::uint64_t seed) {
  const double matrix = std::sqrt(2.0 / (5.0 * s.width));
  const double residual = matrix / std::sqrt(2.0 * schedule(s).size());
  weights.layout().for_each([&](weight w, int layer, const weight_place& p) {
    const std::span<Scalar> out =
        weights.all().subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.size()));
    const auto fill = [&](Scalar value) { std::fill(out.begin(), out.end(), value); };
    double deviation = matrix;
    switch (w) {
      case weight::embedding:
      case weight::head:
        deviation = 0.02;
        break;
      case weight::output:
      case weight::expert_down:
      case weight::shared_down:
      case weight::dense_down:
      case weight::stream_up:
        deviation = residual;
        break;
      case weight::balance_bias:
        return fill(Scalar(0));
      case weight::coefficient:
        return fill(s.loop.visits[layer].residual.as<Scalar>());
      case weight::encoder: {
        const visit_plan& plan = s.loop.visits[layer];
        return fill(plan.encoder == encoder_kind::conv ? Scalar(1) / Scalar(plan.compression) : Scalar(0));
      }
      default:
        if (is_decayed(w)) break;
        return fill(Scalar(1));
    }
    const random_stream stream(seed, static_cast<std::uint64_t>(layer + 1) * 64 + static_cast<std::uint64_t>(w));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Scalar>(deviation * stream.normal(i));
  });
}

}  // namespace smelt
