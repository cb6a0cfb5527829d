// How much of one vector lies along another? The sum of their products.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <smelt/kernels/check.hpp>
#include <span>

namespace smelt::reference_ops {

/// The sum of a[i] b[i], in double.
template <std::floating_point Scalar>
[[nodiscard]] double dot(std::span<const Scalar> a, std::span<const Scalar> b) {
  check_size("dot", "b", b, static_cast<std::int64_t>(a.size()));
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

}  // namespace smelt::reference_ops
