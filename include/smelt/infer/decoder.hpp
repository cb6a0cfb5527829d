// Which token comes next? The logits behind a sequence that is read once and grows token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <smelt/core/carver.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/page_block.hpp>
#include <smelt/core/view.hpp>
#include <smelt/infer/kv_store.hpp>
#include <smelt/kernels/attention_input.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/attention_block.hpp>
#include <smelt/model/executable.hpp>
#include <smelt/model/feed_forward_block.hpp>
#include <smelt/model/latent_visit.hpp>
#include <smelt/model/layer_weights.hpp>
#include <smelt/model/weights.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt {

/// Most tokens of a prompt that go through the layers together.
inline constexpr std::int64_t prefill_chunk = 512;

/// A model that reads one sequence and says what may follow. While it lives, the weights do not change: the backend
/// packs them once, at construction. Reading a token then takes no memory from the system.
template <ArchitectureHandle A, Backend B>
class decoder {
 public:
  using scalar = typename B::scalar;

  /// For sequences of up to `capacity` tokens. `backend` and `weights` must outlive this. Throws errc::unsupported for
  /// a spec that only budgets cover, errc::invalid_argument for a capacity that is not from 1 to the context, and
  /// errc::mismatch for weights of another architecture.
  decoder(A arch, B& backend, const weight_buffer<scalar>& weights, std::int64_t capacity)
      : arch_(checked(std::move(arch), weights, capacity)),
        backend_(backend),
        weights_(weights),
        hold_(backend.hold_weights()),
        chunk_((std::min)(capacity, prefill_chunk)),
        store_(spec_of(arch_), capacity, chunk_),
        single_memory_(bytes_of(spec_of(arch_), 1)),
        chunk_memory_(bytes_of(spec_of(arch_), chunk_)),
        single_(buffers_in(single_memory_, spec_of(arch_), 1)),
        logits_(static_cast<std::size_t>(spec_of(arch_).vocab)) {
    backend_.settle(weights_.all());  // no op reads coefficients
    for (const executed_layer e : schedule(architecture())) {
      architectures_.emplace_back(visited_architecture(architecture(), e.plan), architecture());
      runs_.push_back({.step = e,
                       .coefficient = coefficient_of(weights_, e),
                       .weights = weights_of<const scalar>(weights_, e, architectures_.back().get().width)});
    }
    open_visits();
    warm_up();
  }
  decoder(const decoder&) = delete;
  decoder& operator=(const decoder&) = delete;

  [[nodiscard]] const spec& architecture() const noexcept { return spec_of(arch_); }
  /// Tokens read so far.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  /// Most tokens that it can read.
  [[nodiscard]] std::int64_t capacity() const noexcept { return store_.capacity(); }
  /// Bytes of the keys and values.
  [[nodiscard]] std::int64_t kv_bytes() const noexcept { return store_.bytes(); }

  /// Reads tokens and returns the logits [vocab] of what follows the last of them, valid until the next call. Throws
  /// errc::invalid_argument without tokens, for more than there is room for, and for one outside the vocabulary; then
  /// nothing has changed.
  std::span<const scalar> prefill(std::span<const std::int32_t> tokens) {
    if (tokens.empty()) throw error(errc::invalid_argument, "a prompt must have at least 1 token, found none");
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (count > capacity() - size_)
      throw error(errc::invalid_argument, "the sequence can have at most " + std::to_string(capacity()) +
                                              " tokens and has " + std::to_string(size_) + ", found " +
                                              std::to_string(count) + " more");
    check_ids("prompt", "tokens", tokens, 0, architecture().vocab);
    while (!tokens.empty()) {
      const std::size_t next = (std::min)(tokens.size(), static_cast<std::size_t>(chunk_));
      read(tokens.first(next), next == tokens.size());
      tokens = tokens.subspan(next);
    }
    return logits_;
  }

  /// Reads one token: the same as a prompt of one.
  std::span<const scalar> decode(std::int32_t token) { return prefill({&token, 1}); }

  /// Begins another sequence.
  void clear() noexcept {
    size_ = 0;
    for (open_visit& v : visits_) set_zero(v.increments.view());
  }

 private:
  using buffers = model_buffers<scalar>;

  static A checked(A arch, const weight_buffer<scalar>& weights, std::int64_t capacity) {
    const spec& s = require_executable(spec_of(arch));
    if (capacity < 1 || capacity > s.context)
      throw error(errc::invalid_argument, "the capacity must be from 1 to the context of " + std::to_string(s.context) +
                                              " tokens, found " + std::to_string(capacity));
    if (const std::int64_t needed = weight_layout(s).size(); weights.layout().size() != needed)
      throw error(errc::mismatch, "the architecture has weights of " + std::to_string(needed) + " elements, found " +
                                      std::to_string(weights.layout().size()));
    return arch;
  }

  /// Rows that a visit by `plan` works on at most, when so many tokens come.
  [[nodiscard]] static std::int64_t most_rows(const visit_plan& plan, std::int64_t tokens) noexcept {
    return (tokens + plan.compression - 1) / plan.compression;
  }

  [[nodiscard]] static std::size_t bytes_of(const spec& s, std::int64_t tokens) {
    carver measure;
    static_cast<void>(buffers(
        s, tokens, saved_activations::none, [=](const visit_plan& plan) { return most_rows(plan, tokens); }, measure));
    return measure.used();
  }

  [[nodiscard]] static buffers buffers_in(const page_block& block, const spec& s, std::int64_t tokens) {
    carver memory({block.data(), block.size()});
    return {s, tokens, saved_activations::none, [=](const visit_plan& plan) { return most_rows(plan, tokens); },
            memory};
  }

  /// What a visit with latents keeps from token to token.
  struct open_visit {
    page_block memory;
    matrix<scalar> tokens;      ///< [c - 1 + chunk, H] streams of the open chunk's tokens, then of those that come
    matrix<scalar> increments;  ///< [1 + latents, H] of the last latent, then of those that come
  };

  void open_visits() {
    const spec& s = architecture();
    const int count = span_of(s).count == 0 ? 0 : s.loop.visits.count;
    visits_.resize(static_cast<std::size_t>(count));
    for (int v = 0; v < count; ++v) {
      const visit_plan plan = s.loop.visits[v];
      if (plan.compression == 1) continue;
      open_visit& open = visits_[static_cast<std::size_t>(v)];
      const auto cut = [&](carver& memory) {
        open.tokens = {memory, plan.compression - 1 + chunk_, s.width};
        open.increments = {memory, 1 + most_rows(plan, chunk_), s.width};
      };
      carver measure;
      cut(measure);
      open.memory = page_block(measure.used());
      carver memory({open.memory.data(), open.memory.size()});
      cut(memory);
    }
  }

  /// The last `rows` rows.
  template <class T>
  [[nodiscard]] static matrix_view<T> last(matrix_view<T> m, std::int64_t rows) noexcept {
    return {m.data + (m.rows - rows) * m.cols, rows, m.cols};
  }

  /// Passes at the last positions there are, over as many tokens as make every expert worth packing and over one: the
  /// backend packs all weights and takes the memory that single tokens need.
  void warm_up() {
    const experts_spec& experts = architecture().experts;
    const std::int64_t visiting_all = experts.active > 0 ? (experts.stored + experts.active - 1) / experts.active : 1;
    const std::int64_t most = (std::min)(chunk_, visiting_all);
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(most));
    for (const std::int64_t count : {most, std::int64_t{1}}) {
      size_ = capacity() - count;
      read(std::span(tokens).first(static_cast<std::size_t>(count)), true);
    }
    clear();
  }

  /// Checked tokens through all layers; the logits of the last one where they are `wanted`.
  void read(std::span<const std::int32_t> tokens, bool wanted) {
    if (tokens.size() == 1) {
      run_layers(single_, tokens, wanted);
    } else {
      buffers many = buffers_in(chunk_memory_, architecture(), static_cast<std::int64_t>(tokens.size()));
      run_layers(many, tokens, wanted);
    }
    size_ += static_cast<std::int64_t>(tokens.size());
    if (!wanted) return;
    const spec& s = architecture();
    backend_.rms_norm(shape<shapes::norm>(arch_), single_.output.view(), weights_.vector(weight::final_norm),
                      single_.normed.view(), single_.final_rms);
    // Rows of the table behind the vocabulary are padding.
    const matrix_view<const scalar> table(weights_.head().data, s.vocab, s.width);
    backend_.linear(shape<shapes::logits>(arch_), single_.normed.view(), table,
                    matrix_view<scalar>(logits_.data(), 1, s.vocab));
  }

  /// Rows that come in executed layer `e` when `count` tokens do, and those that were there before.
  [[nodiscard]] std::int64_t rows_before(const executed_layer& e) const noexcept {
    return executed_positions(e, size_);
  }
  [[nodiscard]] std::int64_t rows_coming(const executed_layer& e, std::int64_t count) const noexcept {
    return executed_positions(e, size_ + count) - rows_before(e);
  }

  template <class T>
  [[nodiscard]] static matrix_view<T> first(matrix_view<T> m, std::int64_t rows) noexcept {
    return {m.data, rows, m.cols};
  }

  /// From the streams of `count` tokens to the input of the visit's first layer.
  void enter(buffers& all, const executed_layer& e, std::int64_t count) {
    const spec& s = architecture();
    visit_activations<scalar>& a = all.visit_of(e);
    const matrix_view<scalar> input =
        first(all.layers[static_cast<std::size_t>(e.index)].input.view(), rows_coming(e, count));
    matrix_view<const scalar> wide = first(a.stream.view(), count);
    if constexpr (may_have<A>(has_compressed_visits)) {
      if (e.plan.compression > 1) {
        const matrix_view<scalar> tokens = visits_[static_cast<std::size_t>(e.visit)].tokens.view();
        const std::int64_t pending = size_ % e.plan.compression;
        std::copy_n(a.stream.view().data, count * s.width, tokens.data + pending * s.width);
        const matrix_view<scalar> pooled = is_narrow(e.plan) ? first(a.pooled.view(), input.rows) : input;
        if (input.rows > 0)
          backend_.pool(detail::pool_shape_of(s, e.plan), first(tokens, pending + count),
                        weights_(weight::encoder, e.visit), detail::one_document, pending + count, pooled);
        // The tokens of the next chunk so far.
        const std::int64_t rest = (pending + count) % e.plan.compression;
        std::copy_n(tokens.data + (pending + count - rest) * s.width, rest * s.width, tokens.data);
        wide = pooled;
      }
    }
    if constexpr (may_have<A>(has_narrow_visits)) {
      if (is_narrow(e.plan) && input.rows > 0)
        backend_.linear(detail::down_shape(s, e.plan), wide, weights_(weight::stream_down, e.visit), input);
    }
  }

  /// From what the visit did to the streams of `count` tokens behind it.
  void leave(buffers& all, const schedule& steps, const executed_layer& e, std::int64_t count) {
    const spec& s = architecture();
    visit_activations<scalar>& a = all.visit_of(e);
    const int entry = e.index + 1 - span_of(s).count;
    const std::int64_t rows = rows_coming(e, count);
    const matrix_view<const scalar> input = first(all.layers[static_cast<std::size_t>(entry)].input.view(), rows);
    const matrix_view<const scalar> before = first(a.stream.view(), count);
    const matrix_view<scalar> to = all.stream_behind(steps, e.index);
    [[maybe_unused]] const linear_shape up = detail::up_shape(s, e.plan);
    if constexpr (may_have<A>(has_narrow_visits)) {
      if (e.plan.compression == 1) {
        const matrix_view<scalar> increment = first(a.narrow_increment.view(), rows);
        backend_.difference(first(constant_view(a.output), rows), input, increment);
        backend_.add_linear(up, 1.0, before, increment, weights_(weight::stream_up, e.visit), to);
        return;
      }
    }
    if constexpr (may_have<A>(has_compressed_visits)) {
      const matrix_view<scalar> increments = visits_[static_cast<std::size_t>(e.visit)].increments.view();
      const matrix_view<scalar> coming(increments.data + s.width, rows, s.width);
      if (rows > 0) {
        const matrix_view<scalar> increment = is_narrow(e.plan) ? first(a.narrow_increment.view(), rows) : coming;
        backend_.difference(first(constant_view(a.output), rows), input, increment);
        if constexpr (may_have<A>(has_narrow_visits)) {
          if (is_narrow(e.plan)) backend_.linear(up, increment, weights_(weight::stream_up, e.visit), coming);
        }
      }
      // As if the sequence began one chunk before the open one: its latent is the last one there was.
      const std::int64_t begin = e.plan.compression + size_ % e.plan.compression;
      backend_.write_back(detail::write_back_shape_of(s, e.plan), before, first(increments, 1 + rows),
                          weights_(weight::writeback, e.visit), detail::one_document, begin, count, to);
      std::copy_n(increments.data + rows * s.width, s.width, increments.data);
    }
  }

  /// Rotary positions of the rows that come in a visit by `plan`.
  void place(frame<scalar>& in, const executed_layer& e, std::int64_t count) {
    const std::int64_t before = rows_before(e);
    for (std::int64_t i = 0; i < rows_coming(e, count); ++i) {
      const std::int64_t number = before + i;
      in.geometry.position[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(
          e.plan.position == latent_position::chunk ? number : (number + 1) * e.plan.compression - 1);
    }
  }

  /// From the tokens to the residual stream behind the last layer: of the last token, in `single_`. All others have
  /// done their part when their keys and values of the last layer are there.
  void run_layers(buffers& all, std::span<const std::int32_t> tokens, bool wanted) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const schedule steps(architecture());
    backend_.embed(weights_(weight::embedding), tokens, all.stream_behind(steps, -1));
    for (const executed_layer e : steps) {
      const bool latent = has_latents(e.plan);
      const bool is_last = e.index + 1 == steps.size();
      const std::int64_t rows = rows_coming(e, count);
      if (e.enters && latent) enter(all, e, count);
      if (rows > 0) {
        frame<scalar>& in = all.frame_of(e);
        place(in, e, count);
        with_architecture(arch_, e.plan, architectures_[static_cast<std::size_t>(e.index)],
                          [&](const auto& arch) { run_layer(arch, all, steps, e, rows, wanted); });
        if (is_last && !latent) return;
      }
      if (e.leaves && latent) {
        leave(all, steps, e, count);
        if (is_last && &all != &single_) {
          const matrix_view<const scalar> from = last(first(constant_view(all.output), count), 1);
          std::copy_n(from.data, from.cols, single_.output.view().data);
        }
      }
    }
  }

  /// `rows` rows through one executed layer; behind the last one the last row alone goes on, if it is `wanted`.
  template <class Handle>
  void run_layer(const Handle& arch, buffers& all, const schedule& steps, const executed_layer& e, std::int64_t rows,
                 bool wanted) {
    const bool latent = has_latents(e.plan);
    const bool is_last = e.index + 1 == steps.size() && !latent;
    const layer_run<scalar>& run = runs_[static_cast<std::size_t>(e.index)];
    frame<scalar>& in = all.frame_of(e);
    // Buffers are for as many rows as may come: a compressed visit has one less where the chunks' borders fall so.
    layer_activations<scalar> from = all.layers[static_cast<std::size_t>(e.index)].first(rows);
    const kv_rows<scalar> kept = store_.open(e.kv_slot, rows_before(e), rows);
    backend_.attention_input(shape<shapes::attention_input>(arch), from.input.view(), run.weights.attention_input,
                             in.geometry.position.first(static_cast<std::size_t>(rows)), detail::input_saved(from),
                             query_key_value<scalar>{from.query.view(), kept.new_keys, kept.new_values});
    store_.close(e.kv_slot, rows_before(e), rows);
    if (is_last && !wanted) return;
    buffers& rest = is_last ? single_ : all;
    const std::int64_t going_on = is_last ? 1 : rows;
    layer_activations<scalar> to = rest.layers[static_cast<std::size_t>(e.index)].first(going_on);
    backend_.attention_cached(shape<shapes::attention>(arch), last(constant_view(from.query), going_on), kept.keys,
                              kept.values, kept.window, to.attended.view());
    backend_.add_linear(shape<shapes::output>(arch), run.coefficient, last(constant_view(from.input), going_on),
                        to.attended.view(), run.weights.output, to.middle.view());
    const matrix_view<scalar> behind = is_last ? single_.output.view() : all.rows_behind(steps, e.index);
    frame<scalar> part = rest.frame_of(e).first(going_on);
    feed_forward_block(arch, backend_, run, part.geometry, to, part.scratch, first(behind, going_on));
  }

  [[nodiscard]] static matrix_view<const scalar> constant_view(const matrix<scalar>& m) noexcept { return m.view(); }

  A arch_;
  B& backend_;
  const weight_buffer<scalar>& weights_;
  decltype(std::declval<B&>().hold_weights()) hold_;
  std::int64_t chunk_;
  kv_store<scalar> store_;
  page_block single_memory_;
  page_block chunk_memory_;
  buffers single_;                           // of one token, in that memory
  std::vector<scalar> logits_;               // [vocab]
  std::vector<open_visit> visits_;           // one a visit
  std::vector<layer_run<scalar>> runs_;      // one an executed layer
  std::vector<dynamic_arch> architectures_;  // of every executed layer
  std::int64_t size_ = 0;
};

}  // namespace smelt
