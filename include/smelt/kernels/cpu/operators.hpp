// Which instruction sets are the ops compiled for? One binary holds each op for every set that the machine may turn out
// to have; a build whose flags name AVX2 or more (-march=native, say) holds what its flags name and nothing else.
//
// The files in ops/ are read once a set, inside a region whose functions all have the set's target attribute: macros
// give them the namespace (SMELT_SET), the vectors (SMELT_VECTOR_BYTES, SMELT_VECTOR_REGISTERS) and whether there are
// bf16 products (SMELT_BF16). Nothing declared in a region is inlined into a function outside of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <smelt/core/element.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/cpu/arena.hpp>
#include <smelt/kernels/cpu/context.hpp>
#include <smelt/kernels/cpu/rotary_table.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/policy/cpu_gemm.hpp>
#include <smelt/kernels/policy/cpu_tasks.hpp>
#include <smelt/kernels/reference/attention.hpp>
#include <smelt/kernels/reference/cross_entropy.hpp>
#include <smelt/kernels/reference/experts.hpp>
#include <smelt/kernels/reference/route.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// ---- the sets of this build ----
#if !defined(__x86_64__)
#define SMELT_HAS_BASELINE 1  // NEON on 64-bit Arm; elsewhere what the compiler makes of vectors of 16 bytes
#elif defined(__AVX512F__) && defined(__AVX512BF16__)
#define SMELT_HAS_AVX512 1
#define SMELT_HAS_AVX512_BF16 1
#elif defined(__AVX512F__)
#define SMELT_HAS_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__)
#define SMELT_HAS_AVX2 1
#else
#define SMELT_HAS_BASELINE 1
#define SMELT_HAS_AVX2 1
#define SMELT_HAS_AVX512 1
#define SMELT_HAS_AVX512_BF16 1
#define SMELT_CHOOSES_SET 1  // at start-up
#endif

#define SMELT_PRAGMA(text) _Pragma(#text)
#if !defined(SMELT_CHOOSES_SET)
#define SMELT_BEGIN_TARGET(features)
#define SMELT_END_TARGET
#elif defined(__clang__)
#define SMELT_BEGIN_TARGET(features) \
  SMELT_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define SMELT_END_TARGET SMELT_PRAGMA(clang attribute pop)
#else
#define SMELT_BEGIN_TARGET(features) SMELT_PRAGMA(GCC push_options) SMELT_PRAGMA(GCC target(features))
#define SMELT_END_TARGET SMELT_PRAGMA(GCC pop_options)
#endif

#if SMELT_HAS_BASELINE
#define SMELT_SET baseline
#define SMELT_VECTOR_BYTES 16
#if defined(__aarch64__)
#define SMELT_VECTOR_REGISTERS 32
#else
#define SMELT_VECTOR_REGISTERS 16
#endif
#define SMELT_BF16 0
#include <smelt/kernels/cpu/ops/all.inl>
#undef SMELT_SET
#undef SMELT_VECTOR_BYTES
#undef SMELT_VECTOR_REGISTERS
#undef SMELT_BF16
#endif

#if SMELT_HAS_AVX2
#define SMELT_SET avx2
#define SMELT_VECTOR_BYTES 32
#define SMELT_VECTOR_REGISTERS 16
#define SMELT_BF16 0
SMELT_BEGIN_TARGET("avx2,fma")
#include <smelt/kernels/cpu/ops/all.inl>
SMELT_END_TARGET
#undef SMELT_SET
#undef SMELT_VECTOR_BYTES
#undef SMELT_VECTOR_REGISTERS
#undef SMELT_BF16
#endif

#if SMELT_HAS_AVX512
#define SMELT_SET avx512
#define SMELT_VECTOR_BYTES 64
#define SMELT_VECTOR_REGISTERS 32
#define SMELT_BF16 0
SMELT_BEGIN_TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
#include <smelt/kernels/cpu/ops/all.inl>
SMELT_END_TARGET
#undef SMELT_SET
#undef SMELT_VECTOR_BYTES
#undef SMELT_VECTOR_REGISTERS
#undef SMELT_BF16
#endif

#if SMELT_HAS_AVX512_BF16
#define SMELT_SET avx512_bf16
#define SMELT_VECTOR_BYTES 64
#define SMELT_VECTOR_REGISTERS 32
#define SMELT_BF16 1
SMELT_BEGIN_TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#include <smelt/kernels/cpu/ops/all.inl>
SMELT_END_TARGET
#undef SMELT_SET
#undef SMELT_VECTOR_BYTES
#undef SMELT_VECTOR_REGISTERS
#undef SMELT_BF16
#endif

#undef SMELT_PRAGMA
#undef SMELT_BEGIN_TARGET
#undef SMELT_END_TARGET
