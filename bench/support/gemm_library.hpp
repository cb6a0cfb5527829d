// What is a matrix product that can be compared? Something that takes all experts' weights beforehand, in whatever
// layout it likes best, and then multiplies tokens by one expert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace smelt::bench {

/// y[tokens, cols] = x[tokens, depth] w[depth, cols].
struct product_shape {
  std::int64_t tokens = 0;
  std::int64_t depth = 0;
  std::int64_t cols = 0;
};

/// Multiplies x by an expert's weights into y; x and y are row-major without gaps.
using product = std::function<void(const float* x, std::size_t expert, float* y)>;

/// A library, set to one thread.
struct gemm_library {
  std::string name;         ///< as in benchmark names
  std::string description;  ///< version and what it says about itself
  /// Prepares products of this shape; `experts` are row-major [depth, cols] and outlive the product.
  std::function<product(product_shape shape, std::span<const float* const> experts)> prepare;
  double tolerance = 1e-6;  ///< error of an element over the depth, for operands of magnitude up to 1/2
};

}  // namespace smelt::bench
