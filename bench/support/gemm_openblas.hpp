// How does OpenBLAS multiply? On one thread, by the plain interface: it has none for operands packed beforehand.
#pragma once

#include <cblas.h>

#include <string>

#include "support/gemm_library.hpp"

namespace smelt::bench {

[[nodiscard]] inline gemm_library openblas_library() {
  openblas_set_num_threads(1);
  const std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
  const std::string description =
      config.substr(0, config.find(' ', config.find(' ') + 1)) + ", kernels for " + openblas_get_corename();
  return {"openblas", description, [](product_shape shape, std::span<const float* const> experts) {
            return [m = blasint(shape.tokens), k = blasint(shape.depth), n = blasint(shape.cols), experts](
                       const float* x, std::size_t expert, float* y) {
              cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, x, k, experts[expert], n, 0, y, n);
            };
          }};
}

}  // namespace smelt::bench
