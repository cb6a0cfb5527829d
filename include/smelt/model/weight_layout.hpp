// Where does each weight live? One flat buffer, laid out by the spec; gradients and moments mirror it.
#pragma once

#include <cstdint>
#include <smelt/model/kernel_shapes.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// The weights of a model. In buffer order: the embedding, each layer's, the attention that visits have of their own,
/// each visit's, the final norm, the head.
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
  coefficient,     ///< [1, 1], what the writes of a visit are scaled by, where it is learned
  encoder,         ///< [c, H] of a convolution, [1, H] of a softmax's scorer
  writeback,       ///< [c, H] by channel, [1, c] by receiver
  stream_down,     ///< [Hs, H], from the residual stream to the part of it that a visit runs on
  stream_up,       ///< [H, Hs], from what the visit did to that part to the residual stream
};

/// The weights from the first to the last of these belong to a layer.
inline constexpr weight first_layer_weight = weight::attention_norm;
inline constexpr weight last_layer_weight = weight::dense_down;
/// The weights from the first to the last of these belong to a visit.
inline constexpr weight first_visit_weight = weight::coefficient;
inline constexpr weight last_visit_weight = weight::stream_up;

/// Whether `w` belongs to a visit of the looped span.
[[nodiscard]] constexpr bool is_of_visit(weight w) noexcept {
  return w >= first_visit_weight && w <= last_visit_weight;
}

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
  constexpr explicit weight_layout(const spec& s) noexcept
      : spec_(s), layers_(s.layers + attention_copies(s) * span_of(s).count) {}

  /// The spec whose weights these are.
  [[nodiscard]] constexpr const spec& architecture() const noexcept { return spec_; }

  /// Layers with weights: the physical ones and, behind them, those that have nothing but a visit's own attention.
  [[nodiscard]] constexpr int layers() const noexcept { return layers_; }

  /// Place of `w` in layer, or for a visit's weights in visit, `index` (ignored for all others).
  [[nodiscard]] constexpr weight_place operator()(weight w, int index = 0) const noexcept {
    weight_place p = extent(w, index);
    if (w == weight::embedding) return p;
    p.offset = padded(extent(weight::embedding, 0));
    if (w >= first_layer_weight && w <= last_layer_weight) {
      p.offset += layers_before(index) + sizes(first_layer_weight, w, index);
      return p;
    }
    p.offset += layers_before(layers_);
    const int visits = is_of_visit(w) ? index : visits_of(spec_);
    for (int v = 0; v < visits; ++v) p.offset += sizes(first_visit_weight, behind(last_visit_weight), v);
    if (is_of_visit(w)) {
      p.offset += sizes(first_visit_weight, w, index);
      return p;
    }
    if (w == weight::head) p.offset += padded(extent(weight::final_norm, 0));
    return p;
  }

  /// Elements of the whole buffer.
  [[nodiscard]] constexpr std::int64_t size() const noexcept {
    const weight_place last = (*this)(weight::head);
    return last.offset + padded(last);
  }

  /// Calls f(weight, index, place) for every weight that exists, in buffer order; the index is a layer, of a visit's
  /// weights a visit, and -1 for all others.
  template <class F>
  constexpr void for_each(F&& f) const {
    f(weight::embedding, -1, (*this)(weight::embedding));
    const auto each = [&](weight first, weight last, int index) {
      for (weight w = first; w <= last; w = behind(w))
        if (const weight_place p = (*this)(w, index); p.rows > 0) f(w, index, p);
    };
    for (int layer = 0; layer < layers_; ++layer) each(first_layer_weight, last_layer_weight, layer);
    for (int visit = 0; visit < visits_of(spec_); ++visit) each(first_visit_weight, last_visit_weight, visit);
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
  [[nodiscard]] static constexpr weight behind(weight w) noexcept {
    return static_cast<weight>(static_cast<int>(w) + 1);
  }
  [[nodiscard]] static constexpr int visits_of(const spec& s) noexcept {
    return span_of(s).count == 0 ? 0 : s.loop.visits.count;
  }

  /// Elements of the weights from `first` on and before `end` of a layer or visit.
  [[nodiscard]] constexpr std::int64_t sizes(weight first, weight end, int index) const noexcept {
    std::int64_t n = 0;
    for (weight w = first; w < end; w = behind(w)) n += padded(extent(w, index));
    return n;
  }

  /// Elements of the layers before `layer`; layers differ only in being dense or not, or attention alone.
  [[nodiscard]] constexpr std::int64_t layers_before(int layer) const noexcept {
    const int copies = layer > spec_.layers ? layer - spec_.layers : 0;
    const int dense = layer < spec_.dense_layers ? layer : spec_.dense_layers;
    const int routed = layer - copies - dense;
    const auto size = [this](int one) { return sizes(first_layer_weight, behind(last_layer_weight), one); };
    return (dense > 0 ? dense * size(0) : 0) + (routed > 0 ? routed * size(spec_.dense_layers) : 0) +
           (copies > 0 ? copies * size(spec_.layers) : 0);
  }

  [[nodiscard]] constexpr weight_place extent(weight w, int index) const noexcept {
    const spec& s = spec_;
    const std::int64_t width = s.width;
    const bool whole = index < s.layers;  // a layer with more than attention
    const bool routed = whole && has_experts(s, index);
    const bool dense = whole && !routed;
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
        return when(whole, 1, width);
      case weight::query:
        return place(query_width(s), width);
      case weight::key:
        return place(kv_width(s), width);
      case weight::value:
        return place(kv_width(s), width);
      case weight::query_norm:
        return when(s.attention.norm != qk_norm::none, 1, query_norm_width(shapes::attention_input(s, s)));
      case weight::key_norm:
        return when(s.attention.norm != qk_norm::none, 1, key_norm_width(shapes::attention_input(s, s)));
      case weight::output:
        return place(width, query_width(s));
      case weight::ffn_norm:
        return when(whole, 1, width);
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
        return when(dense, s.dense_hidden, width);
      case weight::dense_up:
        return when(dense, s.dense_hidden, width);
      case weight::dense_down:
        return when(dense, width, s.dense_hidden);
      case weight::final_norm:
        return place(1, width);
      case weight::head:
        return when(!s.tied_head, table_rows(s), width);
      case weight::coefficient:
        return when(s.loop.visits[index].learned, 1, 1);
      case weight::encoder:
        return encoder_extent(s.loop.visits[index]);
      case weight::writeback:
        return writeback_extent(s.loop.visits[index]);
      case weight::stream_down:
        return when(is_narrow(s.loop.visits[index]), width_of(s, s.loop.visits[index]), width);
      case weight::stream_up:
        return when(is_narrow(s.loop.visits[index]), width, width_of(s, s.loop.visits[index]));
    }
    return {};
  }

  [[nodiscard]] constexpr weight_place encoder_extent(const visit_plan& plan) const noexcept {
    if (plan.compression == 1 || plan.encoder == encoder_kind::mean) return {};
    return {0, plan.encoder == encoder_kind::conv ? plan.compression : 1, spec_.width};
  }
  [[nodiscard]] constexpr weight_place writeback_extent(const visit_plan& plan) const noexcept {
    if (plan.compression == 1 || plan.writeback == writeback_kind::direct) return {};
    if (plan.writeback == writeback_kind::scalar) return {0, 1, plan.compression};
    return {0, plan.compression, spec_.width};
  }

  spec spec_;
  int layers_;
};

/// Whether AdamW decays `w`: matrices yes; gains, biases, and what weighs tokens and latents no.
[[nodiscard]] constexpr bool is_decayed(weight w) noexcept {
  switch (w) {
    case weight::attention_norm:
    case weight::query_norm:
    case weight::key_norm:
    case weight::ffn_norm:
    case weight::final_norm:
    case weight::balance_bias:
    case weight::coefficient:
    case weight::encoder:
    case weight::writeback:
      return false;
    default:
      return true;
  }
}

}  // namespace smelt
