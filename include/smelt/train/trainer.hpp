// How does a model learn? A trainer holds one model, its optimiser and its place in the data, and advances by steps.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/core/error.hpp>
#include <smelt/io/spec_json.hpp>
#include <smelt/model/language_model.hpp>
#include <smelt/train/batches.hpp>
#include <smelt/train/checkpoint.hpp>
#include <smelt/train/data.hpp>
#include <smelt/train/evaluation.hpp>
#include <smelt/train/learning_rate.hpp>
#include <smelt/train/optimizer.hpp>
#include <smelt/train/options.hpp>
#include <smelt/train/options_json.hpp>
#include <smelt/train/resume_check.hpp>
#include <smelt/train/step_record.hpp>
#include <smelt/train/training.hpp>
#include <smelt/train/weight_file.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt {

/// A run of one architecture on one backend. The result depends on the architecture, the data and the options alone,
/// not on the number of threads and not on interruptions.
template <ArchitectureHandle A, Backend B>
  requires std::same_as<typename B::scalar, float>
class trainer final : public training {
 public:
  using scalar = typename B::scalar;

  /// `backend` and `data` must outlive the trainer. Throws as language_model and validate(train_options) do, and
  /// errc::mismatch when the model does not know all tokens of the data.
  trainer(A arch, B& backend, const dataset& data, const train_options& options)
      : options_(validate(options)),
        backend_(backend),
        data_(data),
        model_(trainable(std::move(arch)), backend, options.sequences, options.length,
               options.recompute ? saved_activations::inputs : saved_activations::all),
        weights_(model_.architecture()),
        gradients_(model_.architecture()),
        optimizer_(model_.architecture(), options.optimizer),
        batches_(static_cast<std::size_t>(options.accumulation)),
        step_flops_(
            static_cast<double>(flops(model_.architecture(), conventions::smelt, options.length).train_per_token) *
            static_cast<double>(options.step_tokens())) {
    initialise(weights_, model_.architecture(), options.seed);
  }
  ~trainer() override { settle(); }

  [[nodiscard]] const spec& architecture() const noexcept override { return model_.architecture(); }
  [[nodiscard]] const train_options& options() const noexcept override { return options_; }
  [[nodiscard]] std::int64_t step() const noexcept override { return step_; }
  /// The weights after the steps so far. To be asked for again behind the next step, which may leave its update for
  /// later.
  [[nodiscard]] const weight_buffer<scalar>& weights() const {
    settle();
    return weights_;
  }

  step_record advance() override {
    const auto begin = std::chrono::steady_clock::now();
    step_record record = gradient_step();
    ++step_;
    record.step = step_;
    record.tokens = step_ * options_.step_tokens();
    record.flops = static_cast<double>(step_) * step_flops_;
    record.skipped = skipped_;
    record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    record.tokens_per_second = static_cast<double>(options_.step_tokens()) / record.seconds;
    return record;
  }

  [[nodiscard]] evaluation evaluate(std::int64_t most_batches, const std::function<bool()>& keep_going) override {
    return smelt::evaluate(model_, weights_, data_.validation, data_.categories.size(), plan(), most_batches,
                           keep_going);
  }

  saved_checkpoint save(const run_folder& run, std::int64_t keep_last) const override {
    settle();
    const std::vector<safetensors::tensor> weights = file_tensors(weights_, architecture());
    std::vector<safetensors::tensor> moments =
        file_tensors(optimizer_.first_moment(), architecture(), first_moment_suffix);
    for (safetensors::tensor& t : file_tensors(optimizer_.second_moment(), architecture(), second_moment_suffix))
      moments.push_back(std::move(t));
    nlohmann::json state = identity();
    state["skipped"] = skipped_;
    state["skip_run"] = skip_run_;
    return save_checkpoint(run, step_, weights, moments, state, keep_last);
  }

  void resume(const checkpoint& from) override {
    nlohmann::json saved = from.state;
    if (saved.is_object()) saved["dtype"] = dtype_of(saved);
    name_optimizer(saved);
    detail::require_same(saved, identity(), from.folder.string());
    const std::int64_t skipped = detail::count_in(from, "skipped", from.step);
    const std::int64_t skip_run = detail::count_in(from, "skip_run", skipped);
    // Every file is checked before any weight changes.
    require_weights(from.weights, weights_.layout(), architecture());
    require_moments(from.optimizer, weights_.layout(), architecture());
    settle();
    static_cast<void>(read_tensors(from.weights, weights_, architecture()));
    read_moments(from.optimizer, optimizer_.first_moment(), optimizer_.second_moment(), architecture());
    step_ = from.step;
    skipped_ = skipped;
    skip_run_ = skip_run;
  }

 private:
  /// `arch`, if the data can train it: asked before the model takes its memory, which can be all there is.
  [[nodiscard]] A trainable(A arch) const {
    check_vocab(data_, spec_of(arch).vocab);
    static_cast<void>(require_windows(data_.train, plan(), "training"));
    return arch;
  }

  [[nodiscard]] batch_plan plan() const noexcept {
    return {.context = options_.length,
            .sequences = options_.sequences,
            .seed = options_.seed,
            .document_masks = options_.document_masks};
  }

  /// Makes what the last update left for later: the ops of a step find it done, nobody else does.
  void settle() const { backend_.settle(weights_.all()); }

  /// What matrix products multiply in: the scalar type, where the backend has no other.
  [[nodiscard]] std::string dtype() const {
    if constexpr (requires { name_of(backend_.compute()); })
      return std::string(name_of(backend_.compute()));
    else
      return "fp32";
  }

  /// What a checkpoint must agree with.
  [[nodiscard]] nlohmann::json identity() const {
    return {{"spec", spec_to_json(architecture())},
            {"visits", span_of(architecture()).visits},
            {"tokenizer", data_.format.name},
            {"data", std::to_string(data_.fingerprint)},
            {"dtype", dtype()},
            {"options", to_json(options_)}};
  }

  step_record gradient_step() {
    const spec& s = architecture();
    step_record record;
    record.learning_rate = learning_rate(options_, step_, options_.steps());

    std::int64_t targets = 0;
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      const std::int64_t number = step_ * options_.accumulation + static_cast<std::int64_t>(i);
      fill_training_batch(data_.train, plan(), number * options_.sequences, batches_[i]);
      targets += target_count(batches_[i]);
    }

    // Every target weighs the same, however the step is cut into batches; a batch's router losses weigh as its tokens.
    const double share = 1.0 / static_cast<double>(options_.accumulation);
    const loss_scale scale{.cross_entropy = targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0,
                           .balance = options_.balance * share,
                           .z = options_.z * share};
    const bool biased = s.experts.balance_bias && s.dense_layers < s.layers;
    loads_.assign(biased ? static_cast<std::size_t>(s.layers) * static_cast<std::size_t>(s.experts.stored) : 0, 0.0);
    const loop_span span = span_of(s);
    const int visits = span.visits;
    record.visit_balance = visit_values(visits);
    record.visit_z = visit_values(visits);
    record.visit_coefficient = visit_values(visits);
    std::array<std::int64_t, max_visits> visit_evaluations{};
    if (!gradients_are_zero_) {
      settle();
      std::ranges::fill(gradients_.all(), scalar(0));
    }
    gradients_are_zero_ = false;
    double nats = 0;
    {
      const auto hold = hold_weights_if(batches_.size() > 1, backend_);
      for (const batch& b : batches_) {
        const token_batch tokens = view(b);
        const forward_result result = model_.forward_and_backward(weights_, tokens, scale, gradients_);
        nats += result.cross_entropy.nats;
        record.balance += result.mean_balance() * share;
        record.z += result.mean_z() * share;
        for (const router_evaluation& r : result.evaluations) {
          if (visits > 1 && (r.layer < span.first || r.layer >= span.first + span.count)) continue;
          const auto visit = static_cast<std::size_t>(r.visit);
          record.visit_balance[visit] += r.losses.balance;
          record.visit_z[visit] += r.losses.z;
          ++visit_evaluations[visit];
        }
        if (biased) add_loads();
      }
    }
    settle();  // of what no op of the step has read
    for (const executed_layer e : schedule(s))
      if (e.enters) record.visit_coefficient[static_cast<std::size_t>(e.visit)] = coefficient_of(weights_, e);
    if (span.count == 0) record.visit_coefficient[0] = 1;
    for (std::size_t v = 0; v < record.visit_balance.size(); ++v) {
      const auto n = static_cast<double>(std::max<std::int64_t>(visit_evaluations[v], 1));
      record.visit_balance[v] /= n;
      record.visit_z[v] /= n;
    }
    record.loss = targets > 0 ? nats / static_cast<double>(targets) : 0.0;

    const gradient_norm norm = norm_of(backend_, gradients_);
    record.gradient_norm = norm.norm;
    if (!std::isfinite(record.loss))
      record.not_finite = "loss";
    else if (!norm.not_finite.empty())
      record.not_finite = "gradient of " + norm.not_finite;
    if (!record.not_finite.empty()) {
      if (skip_run_ + 1 >= options_.largest_skip_run)
        throw error(errc::not_finite, "step " + std::to_string(step_ + 1) + ": the " + record.not_finite +
                                          " is not finite; steps in a row that changed no weight: " +
                                          std::to_string(skip_run_ + 1) + "; lower the learning rate (now " +
                                          detail::number_text(record.learning_rate) + ") or look at the data");
      ++skipped_;
      ++skip_run_;
      return record;
    }
    skip_run_ = 0;
    const double clip = options_.clip > 0 && norm.norm > options_.clip ? options_.clip / norm.norm : 1.0;
    optimizer_.apply_deferred(backend_, options_, record.learning_rate, clip, step_ - skipped_ + 1, gradients_,
                              weights_);
    gradients_are_zero_ = true;  // the update sets them
    if (biased) move_balance_bias();
    return record;
  }

  /// Adds each layer's selection shares of the last forward pass, over its visits.
  void add_loads() {
    const spec& s = architecture();
    for (const executed_layer e : schedule(s)) {
      if (!has_experts(s, e.layer)) continue;
      const std::span<const scalar> load = model_.layer(e.index).routed.load;
      for (std::size_t i = 0; i < load.size(); ++i)
        loads_[static_cast<std::size_t>(e.layer) * load.size() + i] += static_cast<double>(load[i]);
    }
  }

  /// Loss-free balancing: a bias rises by a fixed step where the load is below the mean and falls where it is above.
  void move_balance_bias() {
    const spec& s = architecture();
    const auto experts = static_cast<std::size_t>(s.experts.stored);
    for (int layer = s.dense_layers; layer < s.layers; ++layer) {
      const std::span<scalar> bias = weights_.vector(weight::balance_bias, layer);
      const double* load = loads_.data() + static_cast<std::size_t>(layer) * experts;
      double mean = 0;
      for (std::size_t i = 0; i < experts; ++i) mean += load[i] / static_cast<double>(experts);
      for (std::size_t i = 0; i < experts; ++i) {
        const double direction = load[i] < mean ? 1.0 : load[i] > mean ? -1.0 : 0.0;
        bias[i] += static_cast<scalar>(options_.balance_bias_step * direction);
      }
    }
  }

  train_options options_;
  B& backend_;
  const dataset& data_;
  language_model<A, B> model_;
  weight_buffer<scalar> weights_;
  weight_buffer<scalar> gradients_;
  bool gradients_are_zero_ = true;  ///< not after a step that changed no weight
  optimizer<scalar> optimizer_;
  std::vector<batch> batches_;
  std::vector<double> loads_;  ///< [layers, E] of a step
  double step_flops_;
  std::int64_t step_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t skip_run_ = 0;
};

}  // namespace smelt
