// How does Eigen multiply? On one thread, with the block sizes it finds out for itself.
#pragma once

// g++ 12's own intrinsics, inlined into Eigen, look uninitialised to it.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <Eigen/Core>
#pragma GCC diagnostic pop

#include <string>
#include <vector>

#include "support/gemm_library.hpp"

namespace smelt::bench {

[[nodiscard]] inline gemm_library eigen_library() {
  const std::string version = std::to_string(EIGEN_WORLD_VERSION) + '.' + std::to_string(EIGEN_MAJOR_VERSION) + '.' +
                              std::to_string(EIGEN_MINOR_VERSION);
  return {"eigen", "Eigen " + version, [](product_shape shape, std::span<const float* const> experts) {
            return [shape, experts](const float* x, std::size_t expert, float* y) {
              using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
              Eigen::Map<matrix>(y, shape.tokens, shape.cols).noalias() =
                  Eigen::Map<const matrix>(x, shape.tokens, shape.depth) *
                  Eigen::Map<const matrix>(experts[expert], shape.depth, shape.cols);
            };
          }};
}

}  // namespace smelt::bench
