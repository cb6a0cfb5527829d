// What is known of a training step once it is done? The line of the run's log.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <smelt/spec/visit.hpp>
#include <string>

namespace smelt {

/// One number a visit of the looped layers, without memory of its own to ask for.
class visit_values {
 public:
  using value_type = double;
  using const_iterator = const double*;

  visit_values() = default;
  /// Zeros. Precondition: 0 <= visits <= max_visits.
  explicit visit_values(int visits) : size_(static_cast<std::size_t>(visits)) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] double& operator[](std::size_t visit) noexcept { return values_[visit]; }
  [[nodiscard]] double operator[](std::size_t visit) const noexcept { return values_[visit]; }
  [[nodiscard]] const double* begin() const noexcept { return values_.data(); }
  [[nodiscard]] const double* end() const noexcept { return values_.data() + size_; }

 private:
  std::array<double, max_visits> values_{};
  std::size_t size_ = 0;
};

/// One training step. Losses are means over the step's targets (cross-entropy, nats a token) or over the router
/// evaluations that ran (balance: 1 is uniform; z: squared logsumexp).
struct step_record {
  std::int64_t step = 0;    ///< 1-based: steps done with this one
  std::int64_t tokens = 0;  ///< training tokens read so far
  double flops = 0;         ///< training FLOPs so far (exact causal attention, head in)
  double loss = 0;          ///< cross-entropy alone; 0 when no target counted
  double balance = 0;
  double z = 0;
  visit_values visit_balance;      ///< [visits] of the looped layers; of all layers without a loop
  visit_values visit_z;            ///< [visits]
  visit_values visit_coefficient;  ///< [visits] of the residual writes in this step, fixed or learned; 1 without a loop
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping; NaN when not finite
  std::int64_t skipped = 0;  ///< steps so far whose gradients were not finite
  std::string not_finite;    ///< "loss", or "gradient of" the first weight whose gradient was not finite in this step
  double seconds = 0;        ///< of this step
  double tokens_per_second = 0;
};

/// The record as a line of the log.
[[nodiscard]] inline nlohmann::json to_json(const step_record& r) {
  nlohmann::json line{{"kind", "step"},
                      {"step", r.step},
                      {"tokens", r.tokens},
                      {"flops", r.flops},
                      {"loss", r.loss},
                      {"balance", r.balance},
                      {"z", r.z},
                      {"visit_balance", r.visit_balance},
                      {"visit_z", r.visit_z},
                      {"visit_coefficient", r.visit_coefficient},
                      {"learning_rate", r.learning_rate},
                      {"gradient_norm", r.gradient_norm},
                      {"skipped", r.skipped},
                      {"seconds", r.seconds},
                      {"tokens_per_second", r.tokens_per_second}};
  if (!r.not_finite.empty()) line["skipped_because"] = r.not_finite + " is not finite";
  return line;
}

}  // namespace smelt
