// How is code compiled once for every instruction set of the build? SMELT_REGION names a file, which is read once a set,
// inside a region whose functions all have the set's target attribute. Macros give it the namespace (SMELT_SET), the
// vectors (SMELT_VECTOR_BYTES, SMELT_VECTOR_REGISTERS) and whether there are bf16 products (SMELT_BF16). The file includes
// no header: what it needs is included before, outside of the regions.

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
#include SMELT_REGION
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
#include SMELT_REGION
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
#include SMELT_REGION
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
#include SMELT_REGION
SMELT_END_TARGET
#undef SMELT_SET
#undef SMELT_VECTOR_BYTES
#undef SMELT_VECTOR_REGISTERS
#undef SMELT_BF16
#endif

#undef SMELT_PRAGMA
#undef SMELT_BEGIN_TARGET
#undef SMELT_END_TARGET
