// How does a looped model run? Embedding, the executed layers of the schedule, final norm, head; and all of it
// backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <smelt/core/carver.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/page_block.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/model/attention_block.hpp>
#include <smelt/model/executable.hpp>
#include <smelt/model/feed_forward_block.hpp>
#include <smelt/model/latent_visit.hpp>
#include <smelt/model/layer_weights.hpp>
#include <smelt/model/token_batch.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt {

/// The losses of one router evaluation and where it happened.
struct router_evaluation {
  int layer = 0;
  int visit = 0;
  router_losses losses{};
};

/// What a forward pass found.
struct forward_result {
  loss_sum cross_entropy{};  ///< over the targets that count
  /// One a router evaluation, in execution order; valid until the model's next pass.
  std::span<const router_evaluation> evaluations{};

  /// Mean of the balance losses over the router evaluations that ran; 0 without experts.
  [[nodiscard]] double mean_balance() const noexcept { return mean(&router_losses::balance); }
  /// Mean of the z-losses over the router evaluations that ran; 0 without experts.
  [[nodiscard]] double mean_z() const noexcept { return mean(&router_losses::z); }

 private:
  [[nodiscard]] double mean(double router_losses::* field) const noexcept {
    double sum = 0;
    for (const router_evaluation& r : evaluations) sum += r.losses.*field;
    return evaluations.empty() ? 0 : sum / static_cast<double>(evaluations.size());
  }
};

/// How the losses of a batch enter the gradient.
struct loss_scale {
  double cross_entropy = 1;  ///< of each target's loss in nats; 1 / targets for a mean
  double balance = 0;        ///< of the mean balance loss
  double z = 0;              ///< of the mean z-loss
};

/// A model of one architecture on one backend for batches of one size: buffers are allocated here and never again.
template <ArchitectureHandle A, Backend B>
class language_model {
 public:
  using scalar = typename B::scalar;

  /// Buffers for `sequences` x `length` tokens. Throws errc::unsupported for a spec that only budgets cover and
  /// errc::invalid_argument for an empty batch, a length above the context or more assignments of tokens to experts
  /// than 32 bits can number.
  language_model(A arch, B& backend, std::int64_t sequences, std::int64_t length,
                 saved_activations saved = saved_activations::all)
      : arch_(checked(std::move(arch), sequences, length)),
        backend_(backend),
        sequences_(sequences),
        length_(length),
        saved_(saved),
        memory_(bytes_of(spec_of(arch_), sequences, length, saved)),
        buffers_(buffers_in(memory_, spec_of(arch_), sequences, length, saved)) {
    evaluations_.reserve(buffers_.layers.size());
    for (const frame<scalar>& f : buffers_.frames) frame_architectures_.emplace_back(f.architecture, spec_of(arch_));
  }

  [[nodiscard]] const spec& architecture() const noexcept { return spec_of(arch_); }
  [[nodiscard]] std::int64_t tokens() const noexcept { return sequences_ * length_; }
  /// Bytes of all buffers, scratch memory of the backend left out.
  [[nodiscard]] std::int64_t memory() const noexcept { return static_cast<std::int64_t>(memory_.size()); }

  /// Runs the batch and returns its losses; `token_losses()` has them by token. Throws errc::mismatch when the batch
  /// has another size than the model, errc::invalid_argument for a token or target outside the vocabulary or a first
  /// position behind its token; then nothing has changed.
  forward_result forward(const weight_buffer<scalar>& w, const token_batch& batch) {
    check(batch);
    const auto hold = hold_weights_if(repeats_layers(), backend_);
    has_forward_ = false;
    forward_result result = run_layers(w, batch);
    result.cross_entropy = backend_.cross_entropy(shape<shapes::head>(arch_), buffers_.normed.view(), w.head(),
                                                  batch.targets, buffers_.losses, buffers_.logsumexp);
    has_forward_ = true;
    return result;
  }

  /// Adds the gradient of the scaled losses of the last forward pass, which must have run on `batch` and `w`, to `dw`.
  /// It consumes what that pass saved: throws errc::invalid_argument without a forward pass since the last backward
  /// one, and for a model that saves nothing.
  void backward(const weight_buffer<scalar>& w, const token_batch& batch, const loss_scale& scale,
                weight_buffer<scalar>& dw) {
    require_backward();
    if (!has_forward_)
      throw error(errc::invalid_argument, "every backward pass needs a forward pass of its own before it, found none");
    check(batch);
    const auto hold = hold_weights_if(repeats_layers(), backend_);
    has_forward_ = false;
    backend_.cross_entropy_backward(shape<shapes::head>(arch_), buffers_.normed.view(), w.head(), batch.targets,
                                    buffers_.logsumexp, scale.cross_entropy,
                                    buffers_.tokens().scratch.normed_gradient.view(), dw.head());
    run_layers_backward(w, batch, scale, dw);
  }

  /// Both passes at once, for who knows the scale beforehand: the head computes its logits once instead of twice.
  /// Throws as forward does, and errc::invalid_argument for a model that saves nothing.
  forward_result forward_and_backward(const weight_buffer<scalar>& w, const token_batch& batch, const loss_scale& scale,
                                      weight_buffer<scalar>& dw) {
    require_backward();
    check(batch);
    const auto hold = hold_weights_if(repeats_layers(), backend_);
    has_forward_ = false;
    forward_result result = run_layers(w, batch);
    result.cross_entropy = backend_.cross_entropy_with_gradient(
        shape<shapes::head>(arch_), buffers_.normed.view(), w.head(), batch.targets, scale.cross_entropy,
        buffers_.losses, buffers_.tokens().scratch.normed_gradient.view(), dw.head());
    run_layers_backward(w, batch, scale, dw);
    return result;
  }

  /// Loss of every token of the last forward pass, in nats; 0 where the target did not count.
  [[nodiscard]] std::span<const scalar> token_losses() const noexcept { return buffers_.losses; }

  /// The final normed hidden states of the last forward pass: [tokens, H].
  [[nodiscard]] matrix_view<const scalar> hidden() const noexcept { return buffers_.normed.view(); }

  /// What executed layer `i` saved in the last forward pass. Where not all is saved, layers share the memory of what is
  /// not: of a model that saves inputs, only `input` and the routers' `load` are the layer's own.
  [[nodiscard]] const layer_activations<scalar>& layer(int i) const {
    return buffers_.layers.at(static_cast<std::size_t>(i));
  }

 private:
  using buffers = model_buffers<scalar>;

  [[nodiscard]] static buffers buffers_in(carver& memory, const spec& s, std::int64_t sequences, std::int64_t length,
                                          saved_activations saved) {
    const auto rows_of = [=](const visit_plan& plan) { return sequences * (length / plan.compression); };
    return {s, sequences * length, saved, rows_of, memory};
  }

  [[nodiscard]] static std::size_t bytes_of(const spec& s, std::int64_t sequences, std::int64_t length,
                                            saved_activations saved) {
    carver measure;
    static_cast<void>(buffers_in(measure, s, sequences, length, saved));
    return measure.used();
  }

  [[nodiscard]] static buffers buffers_in(const page_block& block, const spec& s, std::int64_t sequences,
                                          std::int64_t length, saved_activations saved) {
    carver memory({block.data(), block.size()});
    return buffers_in(memory, s, sequences, length, saved);
  }

  /// Whether a pass runs some layer more than once, and so uses its weights again.
  [[nodiscard]] bool repeats_layers() const noexcept {
    return span_of(spec_of(arch_)).visits > 1 || saved_ == saved_activations::inputs;
  }

  void require_backward() const {
    if (saved_ == saved_activations::none)
      throw error(errc::invalid_argument, "a backward pass needs a model that saves activations or inputs, found none");
  }

  static A checked(A arch, std::int64_t sequences, std::int64_t length) {
    const spec& s = require_executable(spec_of(arch));
    if (sequences < 1)
      throw error(errc::invalid_argument, "a batch must have at least 1 sequence, found " + std::to_string(sequences));
    if (length < 1 || length > s.context)
      throw error(errc::invalid_argument, "sequence length must be from 1 to the context of " +
                                              std::to_string(s.context) + " tokens, found " + std::to_string(length));
    // Kernels number the assignments of tokens to experts, and with them the tokens, in 32 bits.
    std::int64_t slots = 1;
    for (const executed_layer e : schedule(s))
      if (has_experts(s, e.layer)) slots = (std::max)(slots, std::int64_t{active_of(s, e.plan)});
    const std::int64_t most = (std::numeric_limits<std::int32_t>::max)() / slots / length;
    if (sequences > most)
      throw error(errc::invalid_argument, "a batch of sequences of " + std::to_string(length) + " tokens with " +
                                              std::to_string(slots) + " experts each can have at most " +
                                              std::to_string(most) + " sequences, found " + std::to_string(sequences));
    return arch;
  }

  [[nodiscard]] layer_activations<scalar>& activations_of(const executed_layer& e) {
    return buffers_.layers[static_cast<std::size_t>(e.index)];
  }
  [[nodiscard]] latent_visit latents_of(const executed_layer& e) {
    return {.visit = e.visit, .plan = e.plan, .first = buffers_.tokens().geometry.first, .length = length_};
  }
  [[nodiscard]] std::int64_t length_of(const executed_layer& e) const noexcept {
    return executed_positions(e, length_);
  }

  /// What executed layer `e` computes by.
  [[nodiscard]] layer_run<scalar> run_of(const weight_buffer<scalar>& w, const executed_layer& e) {
    if (e.plan.learned) backend_.settle(w.vector(weight::coefficient, e.visit));  // no op reads it
    return {.step = e,
            .coefficient = coefficient_of(w, e),
            .weights = weights_of<const scalar>(w, e, buffers_.frame_of(e).architecture.width)};
  }

  /// The architecture of the layers of `e`'s visit, as a value.
  [[nodiscard]] const dynamic_arch& part_of(const executed_layer& e) const noexcept {
    return frame_architectures_[static_cast<std::size_t>(e.in_loop ? e.visit + 1 : 0)];
  }

  /// Executed layer `e`, from its input to the rows behind it.
  router_losses run_layer(const schedule& steps, const layer_run<scalar>& run) {
    const executed_layer& e = run.step;
    layer_activations<scalar>& a = activations_of(e);
    frame<scalar>& in = buffers_.frame_of(e);
    return with_architecture(arch_, e.plan, part_of(e), [&](const auto& arch) {
      attention_block(arch, backend_, run, in.geometry, length_of(e), a);
      feed_forward_block(arch, backend_, run, in.geometry, a, in.scratch, buffers_.rows_behind(steps, e.index));
      return losses_of_router(arch, backend_, e, a);
    });
  }

  /// All of a checked batch's forward pass before the head.
  forward_result run_layers(const weight_buffer<scalar>& w, const token_batch& batch) {
    place(batch);
    const spec& s = spec_of(arch_);
    const schedule steps(s);
    evaluations_.clear();
    backend_.embed(w(weight::embedding), batch.inputs, buffers_.rows_behind(steps, -1));
    for (const executed_layer e : steps) {
      const bool latent = has_latents(e.plan);
      if (buffers_.frame_of(e).rows > 0) {
        if (e.enters && latent)
          enter_visit(arch_, backend_, w, latents_of(e), buffers_.visit_of(e), activations_of(e).input.view());
        const router_losses losses = run_layer(steps, run_of(w, e));
        if (has_experts(s, e.layer)) evaluations_.push_back({e.layer, e.visit, losses});
      }
      if (e.leaves && latent)
        leave_visit(arch_, backend_, w, latents_of(e), buffers_.visit_of(e), input_of_visit(steps, e),
                    buffers_.stream_behind(steps, e.index));
    }
    backend_.rms_norm(shape<shapes::norm>(arch_), buffers_.output.view(), w.vector(weight::final_norm),
                      buffers_.normed.view(), buffers_.final_rms);
    return {.evaluations = evaluations_};
  }

  /// The input of the first layer of the visit that `e` ends.
  [[nodiscard]] matrix_view<scalar> input_of_visit(const schedule& steps, const executed_layer& e) {
    return activations_of(steps[e.index + 1 - span_of(spec_of(arch_)).count]).input.view();
  }

  /// All of the backward pass behind the head, whose gradient is in the scratch memory.
  void run_layers_backward(const weight_buffer<scalar>& w, const token_batch& batch, const loss_scale& scale,
                           weight_buffer<scalar>& dw) {
    const spec& s = spec_of(arch_);
    const schedule steps(s);
    int evaluations = 0;
    for (const executed_layer e : steps) evaluations += has_experts(s, e.layer) && buffers_.frame_of(e).rows > 0;
    const double share = evaluations == 0 ? 0.0 : 1.0 / evaluations;
    const router_loss_scale router_scale{scale.balance * share, scale.z * share};
    const auto stream_gradient = buffers_.gradient.view();
    const auto dnormed = buffers_.tokens().scratch.normed_gradient.view();
    set_zero(stream_gradient);
    backend_.rms_norm_backward(shape<shapes::norm>(arch_), buffers_.output.view(), w.vector(weight::final_norm),
                               buffers_.final_rms, dnormed, stream_gradient, dw.vector(weight::final_norm));
    bool is_last = true;
    for (int i = steps.size() - 1; i >= 0; --i) {
      const executed_layer e = steps[i];
      const bool latent = has_latents(e.plan);
      frame<scalar>& in = buffers_.frame_of(e);
      if (in.rows == 0) continue;
      if (e.leaves && latent)
        leave_visit_backward(arch_, backend_, w, latents_of(e), buffers_.visit_of(e), stream_gradient, dw);
      const layer_run<scalar> run = run_of(w, e);
      // The record of the last executed layer is still there. What a layer writes anew for the next one has its old
      // bits.
      if (saved_ == saved_activations::inputs && !is_last) static_cast<void>(run_layer(steps, run));
      is_last = false;
      const auto gradient = latent ? buffers_.visit_of(e).gradient.view() : stream_gradient;
      layer_activations<scalar>& a = activations_of(e);
      double coefficient = 0;
      const layer_gradients<scalar> to{.weights = weights_of<scalar>(dw, e, in.architecture.width),
                                       .coefficient = e.plan.learned ? &coefficient : nullptr};
      with_architecture(arch_, e.plan, part_of(e), [&](const auto& arch) {
        feed_forward_block_backward(arch, backend_, run, in.geometry, router_scale, a, in.scratch, gradient, to);
        attention_block_backward(arch, backend_, run, in.geometry, length_of(e), a, in.scratch, gradient, to);
      });
      if (e.plan.learned) dw(weight::coefficient, e.visit).data[0] += static_cast<scalar>(coefficient);
      if (e.enters && latent)
        enter_visit_backward(arch_, backend_, w, latents_of(e), buffers_.visit_of(e), stream_gradient, dw);
    }
    backend_.embed_backward(stream_gradient, batch.inputs, dw(weight::embedding));
  }

  /// Refuses a batch that is not one of this model's.
  void check(const token_batch& batch) const {
    if (batch.sequences != sequences_ || batch.length != length_)
      throw error(errc::mismatch, "the model was built for " + std::to_string(sequences_) + " x " +
                                      std::to_string(length_) + " tokens, the batch has " +
                                      std::to_string(batch.sequences) + " x " + std::to_string(batch.length));
    const auto needed = static_cast<std::size_t>(tokens());
    if (batch.inputs.size() != needed || batch.targets.size() != needed || batch.first.size() != needed)
      throw error(errc::mismatch, "the batch must hold " + std::to_string(needed) +
                                      " inputs, targets and firsts, found " + std::to_string(batch.inputs.size()) +
                                      ", " + std::to_string(batch.targets.size()) + " and " +
                                      std::to_string(batch.first.size()));
    // Rows of the tables behind the vocabulary are padding: no token has them.
    const int vocab = spec_of(arch_).vocab;
    check_ids("batch", "inputs", batch.inputs, 0, vocab);
    check_ids("batch", "targets", batch.targets, -1, vocab);
    for (std::int64_t row = 0; row < tokens(); row += length_) {
      for (std::int64_t position = 0; position < length_; ++position) {
        const std::int64_t first = batch.first[static_cast<std::size_t>(row + position)];
        if (first < 0 || first > position)
          throw error(errc::invalid_argument, "first visible position must be from 0 to the token's own position " +
                                                  std::to_string(position) + ", found " + std::to_string(first));
      }
    }
  }

  /// Fills the geometries from a checked batch.
  void place(const token_batch& batch) {
    const std::int64_t window = spec_of(arch_).attention.window;
    for (std::size_t f = 0; f < buffers_.frames.size(); ++f) {
      const std::int64_t factor = buffers_.frames[f].factor;
      if (f > 0 && factor == 1) continue;  // the tokens' own
      batch_geometry<scalar>& geometry = buffers_.frames[f].geometry;
      const bool by_chunk =
          f > 0 && spec_of(arch_).loop.visits[static_cast<int>(f) - 1].position == latent_position::chunk;
      const std::int64_t length = length_ / factor;
      for (std::int64_t sequence = 0; sequence < sequences_; ++sequence) {
        for (std::int64_t number = 0; number < length; ++number) {
          const auto i = static_cast<std::size_t>(sequence * length + number);
          const std::int64_t last = number * factor + factor - 1;  // token of the row, or the last one of its chunk
          const std::int64_t first = batch.first[static_cast<std::size_t>(sequence * length_ + last)] / factor;
          geometry.position[i] = static_cast<std::int32_t>(by_chunk ? number : last);
          geometry.first[i] = static_cast<std::int32_t>(sequence * length + first);
          if (window > 0)
            geometry.first_windowed[i] =
                static_cast<std::int32_t>(sequence * length + (std::max)(first, number - window + 1));
        }
      }
    }
  }

  A arch_;
  B& backend_;
  std::int64_t sequences_;
  std::int64_t length_;
  saved_activations saved_;
  page_block memory_;
  buffers buffers_;                                ///< in that memory
  std::vector<dynamic_arch> frame_architectures_;  ///< one a frame
  std::vector<router_evaluation> evaluations_;
  bool has_forward_ = false;  ///< whether the buffers hold a forward pass that no backward pass has consumed
};

}  // namespace smelt
