// Which instruction sets are the ops compiled for? One binary holds each op for every set that the machine may turn out
// to have; a build whose flags name AVX2 or more (-march=native, say) holds what its flags name and nothing else.
//
// The files in ops/ are read once a set, as each_set.inl says. Nothing declared in a region of a set is inlined into a
// function outside of it.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <smelt/core/element.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/attention_input.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/cpu/arena.hpp>
#include <smelt/kernels/cpu/context.hpp>
#include <smelt/kernels/cpu/rotary_table.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/policy/cpu_gemm.hpp>
#include <smelt/kernels/policy/cpu_head.hpp>
#include <smelt/kernels/policy/cpu_tasks.hpp>
#include <smelt/kernels/reference/adamw.hpp>
#include <smelt/kernels/reference/attention.hpp>
#include <smelt/kernels/reference/attention_cached.hpp>
#include <smelt/kernels/reference/attention_input.hpp>
#include <smelt/kernels/reference/cross_entropy.hpp>
#include <smelt/kernels/reference/experts.hpp>
#include <smelt/kernels/reference/muon.hpp>
#include <smelt/kernels/reference/pool.hpp>
#include <smelt/kernels/reference/route.hpp>
#include <smelt/kernels/reference/write_back.hpp>
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

// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a file
#define SMELT_REGION <smelt/kernels/cpu/ops/all.inl>
#include <smelt/kernels/cpu/each_set.inl>
#undef SMELT_REGION
