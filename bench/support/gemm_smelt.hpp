// How does smelt multiply? By the product that its experts and projections are made of, with weights packed beforehand.
// For bf16 the conversion of x is part of the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <smelt/core/error.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <smelt/kernels/cpu/operators.hpp>
#include <string>

#include "support/gemm_library.hpp"
#include "support/page_buffer.hpp"

#define SMELT_REGION "support/gemm_smelt.inl"
#include <smelt/kernels/cpu/each_set.inl>
#undef SMELT_REGION

namespace smelt::bench {

/// smelt's product in float32 for a set that is usable here.
[[nodiscard]] inline gemm_library smelt_library(instruction_set set) {
  const std::string description = "instruction set " + std::string(name_of(set)) + ", weights packed beforehand";
  switch (set) {
#if SMELT_HAS_BASELINE
    case instruction_set::baseline:
      return {"smelt", description, baseline::prepare<float>};
#endif
#if SMELT_HAS_AVX2
    case instruction_set::avx2:
      return {"smelt", description, avx2::prepare<float>};
#endif
#if SMELT_HAS_AVX512
    case instruction_set::avx512:
      return {"smelt", description, avx512::prepare<float>};
#endif
#if SMELT_HAS_AVX512_BF16
    case instruction_set::avx512_bf16:
      return {"smelt", description, avx512::prepare<float>};
#endif
    default:
      throw error(errc::unsupported, "this build has no products for " + std::string(name_of(set)));
  }
}

#if SMELT_HAS_AVX512_BF16
/// smelt's product of operands rounded to bf16.
[[nodiscard]] inline gemm_library smelt_bf16_library() {
  return {"smelt_bf16", "bf16 operands, weights packed beforehand, inputs converted each time",
          avx512_bf16::prepare<bf16>, 4e-5};
}
#endif

}  // namespace smelt::bench
