// How does a gradient move a weight? AdamW: by its smoothed direction, with decay beside it.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/check.hpp>
#include <span>
#include <string>

namespace smelt::reference_ops {

namespace detail {

// Throws unless the sizes agree and the ranges follow each other inside the buffers.
template <class Scalar>
void check_adamw(const adamw_step& numbers, std::span<const parameter_range> ranges, std::span<Scalar> gradient,
                 std::span<Scalar> weight, std::span<Scalar> first, std::span<Scalar> second) {
  const auto size = static_cast<std::int64_t>(weight.size());
  check_size("adamw", "gradient", gradient, size);
  check_size("adamw", "first", first, size);
  check_size("adamw", "second", second, size);
  check_at_least("adamw", "step", numbers.step, 1);
  std::int64_t end = 0;
  for (const parameter_range& r : ranges) {
    if (r.first < end || r.size < 0 || r.size > size - r.first) [[unlikely]] {
      throw error(errc::invalid_argument, "adamw: a range starts at " + std::to_string(r.first) + " and has " +
                                              std::to_string(r.size) + " elements, needs to lie between " +
                                              std::to_string(end) + " and " + std::to_string(size));
    }
    end = r.first + r.size;
  }
}

}  // namespace detail

/// One update of weight, first and second moment of the elements in the ranges, which ascend; their gradients become 0.
/// With a learning rate of 0 the weights keep their bits, whatever the decay.
template <std::floating_point Scalar>
void adamw(const adamw_step& numbers, std::span<const parameter_range> ranges, std::span<Scalar> gradient,
           std::span<Scalar> weight, std::span<Scalar> first, std::span<Scalar> second) {
  detail::check_adamw(numbers, ranges, gradient, weight, first, second);
  const double first_correction = 1 - std::pow(numbers.beta1, double(numbers.step));
  const double second_correction = 1 - std::pow(numbers.beta2, double(numbers.step));
  for (const parameter_range& r : ranges) {
    const auto decay = static_cast<Scalar>(r.decayed ? numbers.weight_decay : 0.0);
    for (std::int64_t i = r.first; i < r.first + r.size; ++i) {
      const Scalar g = gradient[i] * static_cast<Scalar>(numbers.gradient_scale);
      gradient[i] = 0;
      first[i] = static_cast<Scalar>(numbers.beta1) * first[i] + static_cast<Scalar>(1 - numbers.beta1) * g;
      second[i] = static_cast<Scalar>(numbers.beta2) * second[i] + static_cast<Scalar>(1 - numbers.beta2) * g * g;
      if (numbers.learning_rate == 0) continue;
      const Scalar direction =
          (first[i] / static_cast<Scalar>(first_correction)) /
          (std::sqrt(second[i] / static_cast<Scalar>(second_correction)) + static_cast<Scalar>(numbers.eps));
      weight[i] -= static_cast<Scalar>(numbers.learning_rate) * (direction + decay * weight[i]);
    }
  }
}

}  // namespace smelt::reference_ops
