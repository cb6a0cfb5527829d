// How many floats does one instruction take? A vector as wide as the instruction set's, by GCC vector extensions, which
// g++ and clang++ both compile for every architecture.

namespace smelt::cpu_ops::SMELT_SET {

/// Floats in a vector of the instruction set.
inline constexpr std::int64_t lanes = SMELT_VECTOR_BYTES / 4;

/// A vector of floats, with element-wise arithmetic and comparisons.
using floats = float __attribute__((vector_size(lanes * 4)));
/// A vector of as many integers: bit patterns, and the results of comparisons (0 or -1).
using ints = std::int32_t __attribute__((vector_size(lanes * 4)));

/// 0, 1, 2 ...
[[nodiscard]] inline ints lane_numbers() noexcept {
  ints numbers;
  for (std::int32_t i = 0; i < lanes; ++i) numbers[i] = i;
  return numbers;
}

namespace detail {

// -1 in the first `count` lanes, 0 in the others.
[[nodiscard]] inline ints lanes_below(std::int64_t count) noexcept {
  return lane_numbers() < static_cast<std::int32_t>(count);
}

}  // namespace detail

/// All lanes equal to `value`.
[[nodiscard]] inline floats broadcast(float value) noexcept {
  return floats{} + value;
}

/// a * b + c, rounded once where the set has an instruction for it. What is inlined in many places and must give the same
/// bits in all of them says so by this and by `rounded`: the compiler decides anew in every place what it fuses.
[[nodiscard, gnu::always_inline]] inline floats fused(floats a, floats b, floats c) noexcept {
#if SMELT_VECTOR_BYTES == 64
  return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif SMELT_VECTOR_BYTES == 32
  return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

/// The value as it is when it is rounded: no part of a fused operation.
[[nodiscard, gnu::always_inline]] inline floats rounded(floats value) noexcept {
#if SMELT_VECTOR_BYTES == 64
  asm("" : "+v"(value));
#elif defined(__x86_64__)
  asm("" : "+x"(value));
#elif defined(__aarch64__)
  asm("" : "+w"(value));
#endif
  return value;
}

/// `lanes` floats from memory of any alignment.
[[nodiscard]] inline floats load(const float* from) noexcept {
  floats value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

/// The first `count` < lanes floats from memory, and zeros. Reads no others.
[[nodiscard]] inline floats load_partial(const float* from, std::int64_t count) noexcept {
#if SMELT_VECTOR_BYTES == 64
  return (floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), from);
#elif SMELT_VECTOR_BYTES == 32
  return (floats)_mm256_maskload_ps(from, (__m256i)detail::lanes_below(count));
#else
  float buffer[lanes] = {};
  for (std::int64_t i = 0; i < count; ++i) buffer[i] = from[i];
  return load(buffer);
#endif
}

/// Writes `lanes` floats to memory of any alignment.
inline void store(float* to, floats value) noexcept {
  __builtin_memcpy(to, &value, sizeof value);
}

/// Writes the first `count` < lanes floats, and no others.
inline void store_partial(float* to, floats value, std::int64_t count) noexcept {
#if SMELT_VECTOR_BYTES == 64
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << count) - 1), (__m512)value);
#elif SMELT_VECTOR_BYTES == 32
  _mm256_maskstore_ps(to, (__m256i)detail::lanes_below(count), (__m256)value);
#else
  float buffer[lanes];
  store(buffer, value);
  for (std::int64_t i = 0; i < count; ++i) to[i] = buffer[i];
#endif
}

namespace detail {

// All lanes combined with op in a fixed order: halves of 16, of 8, of 4, then the last pairs.
template <class Op>
[[nodiscard]] inline float fold_lanes(floats value, Op op) noexcept {
  using quad = float __attribute__((vector_size(16)));
#if SMELT_VECTOR_BYTES == 64
  using octet = float __attribute__((vector_size(32)));
  const octet low8 = __builtin_shufflevector(value, value, 0, 1, 2, 3, 4, 5, 6, 7);
  const octet high8 = __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15);
  const octet eight = op(low8, high8);
#elif SMELT_VECTOR_BYTES == 32
  const floats eight = value;
#endif
#if SMELT_VECTOR_BYTES >= 32
  const quad low4 = __builtin_shufflevector(eight, eight, 0, 1, 2, 3);
  const quad high4 = __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const quad four = op(low4, high4);
#else
  const quad four = value;
#endif
  const quad two = op(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  const quad one = op(two, __builtin_shufflevector(two, two, 1, 0, 3, 2));
  return one[0];
}

}  // namespace detail

namespace detail {

// Exchanges the upper halves of a's blocks of 2 * Half lanes with the lower halves of b's.
template <int Half, int... Lane>
[[gnu::always_inline]] inline void exchange(floats& a, floats& b, std::integer_sequence<int, Lane...>) noexcept {
  constexpr int all = lanes;
  const floats lower = __builtin_shufflevector(a, b, (Lane / Half % 2 == 0 ? Lane : all + Lane - Half)...);
  b = __builtin_shufflevector(a, b, (Lane / Half % 2 == 0 ? Lane + Half : all + Lane)...);
  a = lower;
}

template <int Half>
[[gnu::always_inline]] inline void exchange_blocks(floats (&square)[lanes]) noexcept {
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) {
    if (i / Half % 2 == 0) exchange<Half>(square[i], square[i + Half], std::make_integer_sequence<int, lanes>());
  }
  if constexpr (Half > 1) exchange_blocks<Half / 2>(square);
}

}  // namespace detail

/// Transposes a square of floats.
[[gnu::always_inline]] inline void transpose(floats (&square)[lanes]) noexcept {
  detail::exchange_blocks<lanes / 2>(square);
}

/// The sum of all lanes, in a fixed order.
[[nodiscard]] inline float sum_lanes(floats value) noexcept {
  return detail::fold_lanes(value, [](auto a, auto b) { return a + b; });
}

/// The greatest of all lanes. A NaN may be passed over.
[[nodiscard]] inline float greatest_lane(floats value) noexcept {
  return detail::fold_lanes(value, [](auto a, auto b) { return a > b ? a : b; });
}

/// Calls each(get, put) for every vector of `size` elements, the last of which may be partial: get(from) reads the
/// vector's place in the array `from`, put(to, value) writes it in the array `to`.
template <class Each>
inline void for_vectors(std::int64_t size, Each each) {
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    each([i](const float* from) { return load(from + i); }, [i](float* to, floats value) { store(to + i, value); });
  }
  if (const std::int64_t rest = size - i; rest > 0) {
    each([i, rest](const float* from) { return load_partial(from + i, rest); },
         [i, rest](float* to, floats value) { store_partial(to + i, value, rest); });
  }
}

/// The sum of the products of two vectors of `size`, in a fixed order.
[[nodiscard]] inline float dot(const float* a, const float* b, std::int64_t size) noexcept {
  floats sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    for (std::int64_t j = 0; j < 4; ++j) sums[j] += load(a + i + j * lanes) * load(b + i + j * lanes);
  }
  for (; i + lanes <= size; i += lanes) sums[0] += load(a + i) * load(b + i);
  if (i < size) sums[1] += load_partial(a + i, size - i) * load_partial(b + i, size - i);
  return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// The sum of `size` floats, in a fixed order.
[[nodiscard]] inline float sum(const float* a, std::int64_t size) noexcept {
  floats sums = {};
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) sums += load(a + i);
  if (i < size) sums += load_partial(a + i, size - i);
  return sum_lanes(sums);
}

/// The greatest of `size` >= 1 floats. A NaN may be passed over.
[[nodiscard]] inline float greatest(const float* a, std::int64_t size) noexcept {
  float result = a[0];
  if (size < lanes) {
    for (std::int64_t i = 1; i < size; ++i) result = a[i] > result ? a[i] : result;
    return result;
  }
  // The last vector may overlap the one before it. Four chains of comparisons hide each other's latency.
  const floats last = load(a + size - lanes);
  floats best[4] = {last, last, last, last};
  const auto raise = [&](floats& to, floats next) { to = next > to ? next : to; };
  std::int64_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    for (std::int64_t j = 0; j < 4; ++j) raise(best[j], load(a + i + j * lanes));
  }
  for (; i + lanes < size; i += lanes) raise(best[0], load(a + i));
  for (int j = 1; j < 4; ++j) raise(best[0], best[j]);
  const float top = greatest_lane(best[0]);
  return top > result ? top : result;
}

}  // namespace smelt::cpu_ops::SMELT_SET
