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
  void clear() noexcept { size_ = 0; }

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

  [[nodiscard]] static std::size_t bytes_of(const spec& s, std::int64_t tokens) {
    carver measure;
    static_cast<void>(buffers(s, tokens, saved_activations::none, measure));
    return measure.used();
  }

  [[nodiscard]] static buffers buffers_in(const page_block& block, const spec& s, std::int64_t tokens) {
    carver memory({block.data(), block.size()});
    return {s, tokens, saved_activations::none, memory};
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
    size_ = 0;
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

  /// From the tokens to the residual stream behind the last layer: of the last token, in `single_`. All others have
  /// done their part when their keys and values of the last layer are there.
  void run_layers(buffers& all, std::span<const std::int32_t> tokens, bool wanted) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    std::iota(all.geometry.position.begin(), all.geometry.position.end(), static_cast<std::int32_t>(size_));
    backend_.embed(weights_(weight::embedding), tokens, all.layers.front().input.view());
    const schedule steps(architecture());
    for (const executed_layer e : steps) {
      const bool is_last = e.index + 1 == steps.size();
      layer_activations<scalar>& from = all.layers[static_cast<std::size_t>(e.index)];
      const kv_rows<scalar> rows = store_.open(e.kv_slot, size_, count);
      backend_.attention_input(shape<shapes::attention_input>(arch_), from.input.view(),
                               detail::input_weights<const scalar>(weights_, e.layer), all.geometry.position,
                               detail::input_saved(from),
                               query_key_value<scalar>{from.query.view(), rows.new_keys, rows.new_values});
      store_.close(e.kv_slot, size_, count);
      if (is_last && !wanted) return;
      buffers& rest = is_last ? single_ : all;
      const std::int64_t going_on = is_last ? 1 : count;
      layer_activations<scalar>& to = rest.layers[static_cast<std::size_t>(e.index)];
      backend_.attention_cached(shape<shapes::attention>(arch_), last(constant_view(from.query), going_on), rows.keys,
                                rows.values, rows.window, to.attended.view());
      backend_.add_linear(shape<shapes::output>(arch_), e.plan.residual.template as<double>(),
                          last(constant_view(from.input), going_on), to.attended.view(),
                          weights_(weight::output, e.layer), to.middle.view());
      feed_forward_block(
          arch_, backend_, weights_, e, rest.geometry, to, rest.scratch,
          is_last ? single_.output.view() : all.layers[static_cast<std::size_t>(e.index) + 1].input.view());
    }
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
  buffers single_;              // of one token, in that memory
  std::vector<scalar> logits_;  // [vocab]
  std::int64_t size_ = 0;
};

}  // namespace smelt
