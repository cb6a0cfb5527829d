// Where does each weight live? One flat buffer, laid out by the spec; gradients and moments mirror it.
#pragma once

#include <cstdint>
#include <smelt/model/kernel_shapes.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// The weights of a model, in buffer order: the embedding, each layer's, the final norm, the head.
enum class weight : int {
  embedding,       ///< [table rows, H]
  attention_norm,  ///< [1, H]
  query,           ///< [heads * d, H]
  key,             ///< [kv_heads * d, H]
  value,           ///< [kv_heads * d, H]
  query_norm,      ///< [1, d] or [1, heads * d]
  key_norm,        ///< [1, d] or [1, kv_heads * d]
  output,          ///< [H, heads * d]
  ffn_norm,        ///< [1, H]
  router,          ///< [E, H]
  balance_bias,    ///< [1, E], moved by the loads and not by gradients
  expert_gate,     ///< [E * f, H], the experts stacked
  expert_up,       ///< [E * f, H]
  expert_down,     ///< [E * H, f]
  shared_gate,     ///< [shared f, H]
  shared_up,       ///< [shared f, H]
  shared_down,     ///< [H, shared f]
  dense_gate,      ///< [dense f, H]
  dense_up,        ///< [dense f, H]
  dense_down,      ///< [H, dense f]
  final_norm,      ///< [1, H]
  head,            ///< [table rows, H], absent when tied
};

/// The weights from the first to the last of these belong to a layer; the others stand outside the layers.
inline constexpr weight first_layer_weight = weight::attention_norm;
inline constexpr weight last_layer_weight = weight::dense_down;

/// A weight's place: rows x cols elements at `offset` of the buffer. `rows` is 0 when the layer has no such weight.
struct weight_place {
  std::int64_t offset = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  [[nodiscard]] constexpr std::int64_t size() const noexcept { return rows * cols; }
  friend constexpr bool operator==(const weight_place&, const weight_place&) = default;
};

/// The layout of a spec's weights. Offsets are multiples of 16 elements; the gaps hold zeros.
class weight_layout {
 public:
  constexpr explicit weight_layout(const spec& s) noexcept : spec_(s) {}

  /// Place of `w` in physical layer `layer` (ignored for weights outside the layers).
  [[nodiscard]] constexpr weight_place operator()(weight w, int layer = 0) const noexcept {
    weight_place p = extent(w, layer);
    if (w == weight::embedding) return p;
    p.offset = padded(extent(weight::embedding, 0));
    if (w == weight::final_norm || w == weight::head) {
      p.offset += layers_before(spec_.layers);
      if (w == weight::head) p.offset += padded(extent(weight::final_norm, 0));
      return p;
    }
    p.offset += layers_before(layer);
    for (int i = static_cast<int>(first_layer_weight); i < static_cast<int>(w); ++i)
      p.offset += padded(extent(static_cast<weight>(i), layer));
    return p;
  }

  /// Elements of the whole buffer.
  [[nodiscard]] constexpr std::int64_t size() const noexcept {
    const weight_place last = (*this)(weight::head);
    return last.offset + padded(last);
  }

  /// Calls f(weight, layer, place) for every weight that exists, in buffer order; layer is -1 outside the layers.
  template <class F>
  constexpr void for_each(F&& f) const {
    f(weight::embedding, -1, (*this)(weight::embedding));
    for (int layer = 0; layer < spec_.layers; ++layer)
      for (int i = static_cast<int>(first_layer_weight); i <= static_cast<int>(last_layer_weight); ++i)
        if (const weight_place p = (*this)(static_cast<weight>(i), layer); p.rows > 0)
          f(static_cast<weight>(i), layer, p);
    f(weight::final_norm, -1, (*this)(weight::final_norm));
    if (const weight_place p = (*this)(weight::head); p.rows > 0) f(weight::head, -1, p);
  }

  /// Elements up to the next weight.
  [[nodiscard]] static constexpr std::int64_t padded(const weight_place& p) noexcept {
    return (p.size() + 15) / 16 * 16;
  }

  /// Elements that are parameters: the buffer without the gaps.
  [[nodiscard]] constexpr std::int64_t parameters() const {
    std::int64_t n = 0;
    for_each([&](weight, int, const weight_place& p) { n += p.size(); });
    return n;
  }

 private:
  [[nodiscard]] constexpr std::int64_t layer_size(int layer) const noexcept {
    std::int64_t n = 0;
    for (int i = static_cast<int>(first_layer_weight); i <= static_cast<int>(last_layer_weight); ++i)
      n += padded(extent(static_cast<weight>(i), layer));
    return n;
  }

  /// Elements of the layers before `layer`; layers differ only in being dense or not.
  [[nodiscard]] constexpr std::int64_t layers_before(int layer) const noexcept {
    const int dense = layer < spec_.dense_layers ? layer : spec_.dense_layers;
    return (dense > 0 ? dense * layer_size(0) : 0) +
           (layer > dense ? (layer - dense) * layer_size(spec_.dense_layers) : 0);
  }

  [[nodiscard]] constexpr weight_place extent(weight w, int layer) const noexcept {
    const spec& s = spec_;
    const std::int64_t width = s.width;
    const bool routed = has_experts(s, layer);
    const bool shared = routed && s.experts.shared_hidden > 0;
    const std::int64_t stacked = static_cast<std::int64_t>(s.experts.stored) * s.experts.hidden;
    const auto place = [](std::int64_t rows, std::int64_t cols) { return weight_place{0, rows, cols}; };
    const auto when = [&](bool exists, std::int64_t rows, std::int64_t cols) {
      return exists ? place(rows, cols) : weight_place{};
    };
    switch (w) {
      case weight::embedding:
        return place(table_rows(s), width);
      case weight::attention_norm:
        return place(1, width);
      case weight::query:
        return place(query_width(s), width);
      case weight::key:
        return place(kv_width(s), width);
      case weight::value:
        return place(kv_width(s), width);
      case weight::query_norm:
        return when(s.attention.norm != qk_norm::none, 1, query_norm_width(shapes::attention_input(s)));
      case weight::key_norm:
        return when(s.attention.norm != qk_norm::none, 1, key_norm_width(shapes::attention_input(s)));
      case weight::output:
        return place(width, query_width(s));
      case weight::ffn_norm:
        return place(1, width);
      case weight::router:
        return when(routed, s.experts.stored, width);
      case weight::balance_bias:
        return when(routed && s.experts.balance_bias, 1, s.experts.stored);
      case weight::expert_gate:
        return when(routed, stacked, width);
      case weight::expert_up:
        return when(routed, stacked, width);
      case weight::expert_down:
        return when(routed, s.experts.stored * width, s.experts.hidden);
      case weight::shared_gate:
        return when(shared, s.experts.shared_hidden, width);
      case weight::shared_up:
        return when(shared, s.experts.shared_hidden, width);
      case weight::shared_down:
        return when(shared, width, s.experts.shared_hidden);
      case weight::dense_gate:
        return when(!routed, s.dense_hidden, width);
      case weight::dense_up:
        return when(!routed, s.dense_hidden, width);
      case weight::dense_down:
        return when(!routed, width, s.dense_hidden);
      case weight::final_norm:
        return place(1, width);
      case weight::head:
        return when(!s.tied_head, table_rows(s), width);
    }
    return {};
  }

  spec spec_;
};

/// Whether AdamW decays `w`: matrices yes, gains and biases no.
[[nodiscard]] constexpr bool is_decayed(weight w) noexcept {
  switch (w) {
    case weight::attention_norm:
    case weight::query_norm:
    case weight::key_norm:
    case weight::ffn_norm:
    case weight::final_norm:
    case weight::balance_bias:
      return false;
    default:
      return true;
  }
}

}  // namespace smelt
