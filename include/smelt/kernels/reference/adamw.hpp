// How does a gradient move a weight? AdamW: by its smoothed direction, with decay beside it.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/check.hpp>
#include <span>

namespace smelt::reference_ops {

/// One update of weight, first and second moment. With a learning rate of 0 the weights keep their bits, whatever the
/// decay.
template <std::floating_point Scalar>
void adamw(const adamw_step& numbers, std::span<const Scalar> gradient, std::span<Scalar> weight,
           std::span<Scalar> first, std::span<Scalar> second) {
  const auto size = static_cast<std::int64_t>(weight.size());
  check_size("adamw", "gradient", gradient, size);
  check_size("adamw", "first", first, size);
  check_size("adamw", "second", second, size);
  check_at_least("adamw", "step", numbers.step, 1);
  const double first_correction = 1 - std::pow(numbers.beta1, double(numbers.step));
  const double second_correction = 1 - std::pow(numbers.beta2, double(numbers.step));
  for (std::int64_t i = 0; i < size; ++i) {
    const Scalar g = gradient[i] * static_cast<Scalar>(numbers.gradient_scale);
    first[i] = static_cast<Scalar>(numbers.beta1) * first[i] + static_cast<Scalar>(1 - numbers.beta1) * g;
    second[i] = static_cast<Scalar>(numbers.beta2) * second[i] + static_cast<Scalar>(1 - numbers.beta2) * g * g;
    if (numbers.learning_rate == 0) continue;
    const Scalar direction =
        (first[i] / static_cast<Scalar>(first_correction)) /
        (std::sqrt(second[i] / static_cast<Scalar>(second_correction)) + static_cast<Scalar>(numbers.eps));
    weight[i] -= static_cast<Scalar>(numbers.learning_rate) *
                 (direction + static_cast<Scalar>(numbers.weight_decay) * weight[i]);
  }
}

}  // namespace smelt::reference_ops
