// What does a training run need to know besides the architecture and the data?
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <smelt/core/error.hpp>
#include <string>

namespace smelt {

/// How the learning rate moves after the warm-up.
enum class decay_kind : int {
  constant,  ///< stays at the peak
  cosine,    ///< half a cosine from the peak to the final share at the last step
  wsd,       ///< warm-up, stable, decay: the peak, then a line to the final share over the decay share of the steps
};

/// The name of a schedule in options, logs and checkpoints.
[[nodiscard]] constexpr const char* name_of(decay_kind decay) noexcept {
  switch (decay) {
    case decay_kind::constant:
      return "constant";
    case decay_kind::cosine:
      return "cosine";
    case decay_kind::wsd:
      return "wsd";
  }
  return "";
}

/// What moves the weights.
enum class optimizer_kind : int {
  adamw,
  muon,  ///< the matrices between embedding and head, but for routers; AdamW all others
};

/// The name of an optimiser in options, logs and checkpoints.
[[nodiscard]] constexpr const char* name_of(optimizer_kind kind) noexcept {
  return kind == optimizer_kind::adamw ? "adamw" : "muon";
}

/// Settings of a run. Shares are of the number of steps.
struct train_options {
  std::int64_t tokens = 2'000'000;  ///< training tokens; the last step may pass it by less than a step
  std::int64_t length = 256;        ///< tokens a sequence
  std::int64_t sequences = 8;       ///< sequences a batch
  std::int64_t accumulation = 1;    ///< batches a step
  optimizer_kind optimizer = optimizer_kind::adamw;
  double learning_rate = 3e-3;  ///< peak
  double warmup_share = 0.05;   ///< linear from 0 to the peak
  decay_kind decay = decay_kind::cosine;
  double decay_share = 0.2;   ///< of wsd
  double final_share = 0.1;   ///< of the peak, reached at the last step
  double weight_decay = 0.1;  ///< decoupled; on matrices only
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.9;              ///< of Muon
  double clip = 1.0;                  ///< largest gradient norm; 0 does not clip
  double balance = 0.01;              ///< coefficient of the mean balance loss
  double z = 0.001;                   ///< coefficient of the mean z-loss
  double balance_bias_step = 0.001;   ///< of loss-free balancing; not governed by the learning rate
  bool document_masks = true;         ///< attention stays inside documents
  std::uint64_t seed = 0;             ///< of the initial weights and the order of the data
  std::int64_t largest_skip_run = 8;  ///< this many steps in a row with non-finite gradients end the run

  bool recompute = false;  ///< the backward pass computes layers again: less memory, the same numbers

  friend bool operator==(const train_options&, const train_options&) = default;

  [[nodiscard]] std::int64_t step_tokens() const noexcept { return sequences * length * accumulation; }
  [[nodiscard]] std::int64_t steps() const noexcept { return (tokens + step_tokens() - 1) / step_tokens(); }
};

namespace detail {

// A number as a person would write it: 1e-08 where std::to_string has 0.000000.
[[nodiscard]] inline std::string number_text(double value) {
  std::array<char, 32> text{};
  const int size = std::snprintf(text.data(), text.size(), "%.9g", value);
  return {text.data(), static_cast<std::size_t>(size)};
}
[[nodiscard]] inline std::string number_text(std::int64_t value) {
  return std::to_string(value);
}

}  // namespace detail

/// Returns `o` when a run can use it; throws errc::invalid_argument naming the option, the value and the need.
inline const train_options& validate(const train_options& o) {
  const auto need = [](bool holds, const char* name, auto found, const char* needed) {
    if (!holds)
      throw error(errc::invalid_argument, std::string("training option ") + name + " must be " + needed + ", found " +
                                              detail::number_text(found));
  };
  // Far above any run, and low enough that no number of tokens, samples or steps wraps around in 64 bits.
  constexpr std::int64_t most_tokens = 1'000'000'000'000'000'000;
  constexpr std::int64_t most_batches = 1'000'000;
  constexpr std::int64_t most_batch_tokens = (std::numeric_limits<std::int32_t>::max)();
  need(o.tokens >= 1 && o.tokens <= most_tokens, "tokens", o.tokens, "from 1 to 10^18");
  need(o.length >= 1 && o.length <= most_batch_tokens, "length", o.length, "from 1 to 2^31 - 1 tokens");
  need(o.sequences >= 1 && o.sequences <= most_batch_tokens, "sequences", o.sequences, "from 1 to 2^31 - 1");
  need(o.sequences * o.length <= most_batch_tokens, "sequences x length", o.sequences * o.length,
       "at most 2^31 - 1 tokens");
  need(o.accumulation >= 1 && o.accumulation <= most_batches, "accumulation", o.accumulation, "from 1 to 1,000,000");
  need(o.learning_rate >= 0 && o.learning_rate <= 1e3, "learning_rate", o.learning_rate, "from 0 to 1000");
  need(o.warmup_share >= 0 && o.warmup_share <= 1, "warmup_share", o.warmup_share, "from 0 to 1");
  need(o.decay_share >= 0 && o.decay_share <= 1, "decay_share", o.decay_share, "from 0 to 1");
  need(o.final_share >= 0 && o.final_share <= 1, "final_share", o.final_share, "from 0 to 1");
  need(o.weight_decay >= 0 && o.weight_decay <= 1e3, "weight_decay", o.weight_decay, "from 0 to 1000");
  need(o.beta1 >= 0 && o.beta1 < 1, "beta1", o.beta1, "from 0 to below 1");
  need(o.beta2 >= 0 && o.beta2 < 1, "beta2", o.beta2, "from 0 to below 1");
  need(o.eps > 0 && o.eps < 1, "eps", o.eps, "above 0 and below 1");
  need(o.momentum >= 0 && o.momentum < 1, "momentum", o.momentum, "from 0 to below 1");
  need(o.clip >= 0 && o.clip <= 1e30, "clip", o.clip, "from 0 (off) to 1e30");
  need(o.balance >= 0 && o.balance <= 1e6, "balance", o.balance, "from 0 to 1e6");
  need(o.z >= 0 && o.z <= 1e6, "z", o.z, "from 0 to 1e6");
  need(o.balance_bias_step >= 0 && o.balance_bias_step <= 1, "balance_bias_step", o.balance_bias_step, "from 0 to 1");
  need(o.largest_skip_run >= 1, "largest_skip_run", o.largest_skip_run, "at least 1");
  return o;
}

}  // namespace smelt
