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

  /// Leaves `rows` of what are rows for `all` now.
  void shrink(std::int64_t rows, std::int64_t all) noexcept {
    rows_ = rows_ / all * rows;
    data_ = data_.first(static_cast<std::size_t>(rows_ * cols_));
  }

 private:
  std::span<T> data_;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
};

/// Leaves the elements for `rows` of what are elements for `all` now.
template <class T>
void shrink(std::span<T>& elements, std::int64_t rows, std::int64_t all) noexcept {
  elements = elements.first(elements.size() / static_cast<std::size_t>(all) * static_cast<std::size_t>(rows));
}

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

/// The saved state of one executed layer: [tokens, ...], a token being a latent in a compressed visit.
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
      query_rms = record.take<Scalar>(tokens * query_width(s) / query_norm_width(shapes::attention_input(s, s)));
      key_rms = record.take<Scalar>(tokens * kv_width(s) / key_norm_width(shapes::attention_input(s, s)));
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

  /// The record of its first `rows` tokens, in the same memory. Precondition: it has one token or more.
  [[nodiscard]] layer_activations first(std::int64_t rows) const noexcept {
    layer_activations part = *this;
    const std::int64_t all = input.view().rows;
    if (rows == all) return part;
    for (matrix<Scalar>* m : {&part.input, &part.raw_query, &part.raw_key, &part.query, &part.key, &part.value,
                              &part.attended, &part.middle, &part.ffn_input, &part.routed.scores, &part.routed.weights,
                              &part.gate, &part.up, &part.shared_gate, &part.shared_up})
      m->shrink(rows, all);
    for (std::span<Scalar>* v :
         {&part.attention_rms, &part.query_rms, &part.key_rms, &part.logsumexp, &part.ffn_rms, &part.routed.logsumexp})
      shrink(*v, rows, all);
    for (std::span<std::int32_t>* v : {&part.routed.ids, &part.routed.assignment, &part.routed.row})
      shrink(*v, rows, all);
    return part;
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

/// Where each row may attend from and at which position it stands, and the grouping of an expert that takes all. A row
/// is a token, or a latent of a compressed visit.
template <class Scalar>
struct batch_geometry {
  std::span<std::int32_t> first;           ///< [rows] first visible row of the flattened batch
  std::span<std::int32_t> first_windowed;  ///< the same under the attention window; empty without one
  std::span<std::int32_t> position;        ///< [rows] position within the sequence
  std::span<std::int32_t> every_row;       ///< [rows] 0, 1, 2, ...
  std::span<std::int32_t> whole;           ///< {0, rows}
  matrix<Scalar> ones;                     ///< [rows, 1]

  batch_geometry(const spec& s, std::int64_t rows, carver& memory)
      : first(memory.take<std::int32_t>(rows)),
        first_windowed(memory.take<std::int32_t>(s.attention.window > 0 ? rows : 0)),
        position(memory.take<std::int32_t>(rows)),
        every_row(memory.take<std::int32_t>(rows)),
        whole(memory.take<std::int32_t>(2)),
        ones(memory, rows, 1) {
    std::int32_t number = 0;
    for (std::int32_t& t : every_row) t = number++;
    if (!whole.empty()) {
      whole.front() = 0;
      whole.back() = static_cast<std::int32_t>(rows);
    }
    for (Scalar& one : ones.span()) one = Scalar(1);
  }

  /// The grouping of one expert that reads every row in order.
  [[nodiscard]] grouping_view<> all_rows() const noexcept { return {whole, every_row, every_row}; }
};

/// What the layers of a visit, or those outside the loop, work in: rows of their own number and width, and buffers that
/// a layer uses and forgets.
template <class Scalar>
struct frame {
  spec architecture;      ///< of the layers that run in it: its widths and experts
  int factor = 1;         ///< tokens a row
  std::int64_t rows = 0;  ///< of the whole batch
  scratch_activations<Scalar> scratch;
  batch_geometry<Scalar> geometry;

  /// Of a forward pass over its first `rows` rows alone, in the same memory. Precondition: it has one row or more.
  [[nodiscard]] frame first(std::int64_t count) const noexcept {
    frame part = *this;
    part.geometry.whole.back() = static_cast<std::int32_t>(count);  // of all parts
    if (count == rows) return part;
    part.rows = count;
    part.scratch.logits.shrink(count, rows);
    part.geometry.every_row = geometry.every_row.first(static_cast<std::size_t>(count));
    part.geometry.ones.shrink(count, rows);
    return part;
  }
};

/// Whether a visit by `plan` runs on rows of its own, behind an encoder or a projection, instead of the residual
/// stream.
[[nodiscard]] constexpr bool has_latents(const visit_plan& plan) noexcept {
  return !is_plain(plan);
}
/// Whether some visit is compressed, or runs on a share of the stream's channels.
[[nodiscard]] constexpr bool has_compressed_visits(const spec& s) noexcept {
  return largest_compression(s.loop.visits) > 1;
}
[[nodiscard]] constexpr bool has_narrow_visits(const spec& s) noexcept {
  for (int i = 0; i < s.loop.visits.runs(); ++i)
    if (is_narrow(visit_list::plan_of(s.loop.visits, i))) return true;
  return false;
}

/// What a visit that runs on rows of its own saves: R rows of width Hs, where the residual stream has T of width H.
template <class Scalar>
struct visit_activations {
  matrix<Scalar> stream;            ///< [T, H] residual stream before the visit
  matrix<Scalar> pooled;            ///< [R, H] latents before the projection; empty without both
  matrix<Scalar> output;            ///< [R, Hs] behind the last layer
  matrix<Scalar> narrow_increment;  ///< [R, Hs] output less input, before the projection; empty without one
  matrix<Scalar> increment;         ///< [R, H] of latents; empty without compression
  matrix<Scalar> gradient;          ///< [R, Hs] of the rows as they pass through the layers, for the backward pass
  matrix<Scalar> output_gradient;   ///< [R, Hs] for the backward pass
  matrix<Scalar> wide_gradient;     ///< [R, H] of the increment, then of the pooled latents, for the backward pass

  visit_activations(const spec& s, const visit_plan& plan, std::int64_t tokens, std::int64_t rows, bool backward,
                    carver& memory) {
    if (!has_latents(plan)) return;
    const int narrow = width_of(s, plan);
    const bool both = plan.compression > 1 && is_narrow(plan);
    stream = {memory, tokens, s.width};
    if (both) pooled = {memory, rows, s.width};
    output = {memory, rows, narrow};
    if (is_narrow(plan)) narrow_increment = {memory, rows, narrow};
    if (plan.compression > 1) increment = {memory, rows, s.width};
    if (!backward) return;
    gradient = {memory, rows, narrow};
    output_gradient = {memory, rows, narrow};
    if (both) wide_gradient = {memory, rows, s.width};
  }
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
  std::vector<frame<Scalar>> frames;              ///< of the layers outside the loop, then one a visit
  std::vector<visit_activations<Scalar>> visits;  ///< one a visit
  matrix<Scalar> output;                          ///< [tokens, H] residual stream behind the last layer
  matrix<Scalar> normed;                          ///< [tokens, H]
  matrix<Scalar> gradient;      ///< [tokens, H] gradient of the residual stream; empty without a backward pass
  std::span<Scalar> final_rms;  ///< [tokens]
  std::span<Scalar> losses;     ///< [tokens]
  std::span<Scalar> logsumexp;  ///< [tokens]

  /// Cuts them from `memory`, or measures them. rows_of(plan) is the number of rows that a visit by `plan` works on.
  template <class RowsOf>
  model_buffers(const spec& s, std::int64_t tokens, saved_activations saved, const RowsOf& rows_of, carver& memory)
      : output(memory, tokens, s.width),
        normed(memory, tokens, s.width),
        gradient(memory, saved == saved_activations::none ? 0 : tokens, s.width),
        final_rms(memory.take<Scalar>(tokens)),
        losses(memory.take<Scalar>(tokens)),
        logsumexp(memory.take<Scalar>(tokens)) {
    const bool backward = saved != saved_activations::none;
    const schedule steps(s);
    const int visit_count = span_of(s).count == 0 ? 0 : s.loop.visits.count;
    const auto plan_of = [&](int number) { return number == 0 ? visit_plan{} : s.loop.visits[number - 1]; };
    // Memory that is used and forgotten: enough for the frame that needs most.
    std::size_t scratch = 0;
    for (int number = 0; number <= visit_count; ++number) {
      carver measure;
      const visit_plan plan = plan_of(number);
      static_cast<void>(scratch_activations<Scalar>(visited_architecture(s, plan), rows_of(plan), backward, measure));
      scratch = (std::max)(scratch, measure.used());
    }
    const std::span<std::byte> any_scratch = memory.take<std::byte>(static_cast<std::int64_t>(scratch));
    frames.reserve(static_cast<std::size_t>(visit_count) + 1);
    for (int number = 0; number <= visit_count; ++number) {
      const visit_plan plan = plan_of(number);
      carver of_frame(any_scratch);
      const spec part = visited_architecture(s, plan);
      const std::int64_t rows = rows_of(plan);
      scratch_activations<Scalar> uses(part, rows, backward, of_frame);
      const bool tokens_again = number > 0 && plan.compression == 1;
      frames.push_back({part, plan.compression, rows, uses,
                        tokens_again ? frames.front().geometry : batch_geometry<Scalar>(s, rows, memory)});
    }
    visits.reserve(static_cast<std::size_t>(visit_count));
    for (int v = 0; v < visit_count; ++v)
      visits.emplace_back(s, s.loop.visits[v], tokens, rows_of(s.loop.visits[v]), backward, memory);

    layers.reserve(static_cast<std::size_t>(steps.size()));
    // Memory that executed layers have one after the other: enough for the largest.
    std::size_t inputs = 0;
    std::size_t records = 0;
    for (const executed_layer e : steps) {
      carver input, record;
      const frame<Scalar>& in = frame_of(e);
      static_cast<void>(layer_activations<Scalar>(in.architecture, e.layer, in.rows, input, record));
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
      const frame<Scalar>& in = frame_of(e);
      // What a visit with latents did is its output less its input, which therefore stays.
      const bool in_turn = saved == saved_activations::none && !(e.enters && has_latents(e.plan));
      layers.emplace_back(in.architecture, e.layer, in.rows, in_turn ? input : memory,
                          saved == saved_activations::all ? memory : record);
    }
  }

  /// What executed layer `e` works in.
  [[nodiscard]] frame<Scalar>& frame_of(const executed_layer& e) noexcept {
    return frames[static_cast<std::size_t>(e.in_loop ? e.visit + 1 : 0)];
  }
  [[nodiscard]] frame<Scalar>& tokens() noexcept { return frames.front(); }
  /// What the visit of executed layer `e` keeps. Precondition: `e` is in the loop.
  [[nodiscard]] visit_activations<Scalar>& visit_of(const executed_layer& e) noexcept {
    return visits[static_cast<std::size_t>(e.visit)];
  }

  /// The residual stream behind executed layer `i` of the schedule, which ends its visit or is outside the loop; -1 is
  /// the embedding. It is the input of the next layer, except that a visit with latents begins with the stream.
  [[nodiscard]] matrix_view<Scalar> stream_behind(const schedule& steps, int i) noexcept {
    if (i + 1 == steps.size()) return output.view();
    const executed_layer next = steps[i + 1];
    if (next.enters && has_latents(next.plan)) return visit_of(next).stream.view();
    return layers[static_cast<std::size_t>(next.index)].input.view();
  }

  /// Where executed layer `i` writes its rows: into the stream behind it, except that a visit with latents ends with an
  /// output of its own.
  [[nodiscard]] matrix_view<Scalar> rows_behind(const schedule& steps, int i) noexcept {
    if (i >= 0 && steps[i].leaves && has_latents(steps[i].plan)) return visit_of(steps[i]).output.view();
    return stream_behind(steps, i);
  }
};

}  // namespace smelt
