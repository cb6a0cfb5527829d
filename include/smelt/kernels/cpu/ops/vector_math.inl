// How are exp, sigmoid and sqrt taken of a whole vector at once?


namespace smelt::cpu_ops::SMELT_SET {

/// e^x to about 1 unit in the last place (relative error below 1.5e-7). Below -87.33 it is 0, above 88.02 infinity; a
/// NaN stays one.
[[nodiscard]] inline floats exp(floats x) noexcept {
  constexpr float least = -87.33654F;
  constexpr float greatest = 88.02969F;  // 127 ln 2: 2^128 is no float
  const ints below = x < least;
  const ints above = x > greatest;
  x = below ? broadcast(least) : x;
  x = above ? broadcast(greatest) : x;
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  constexpr float rounder = 12582912.0F;
  const floats shifted = x * 1.44269504F + rounder;
  const floats n = shifted - rounder;
  floats r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r;
  p = p + 1.0F;
  ints exponent;
  __builtin_memcpy(&exponent, &shifted, sizeof exponent);
  exponent = (exponent + (127 - 0x4B400000)) << 23;
  floats scale;
  __builtin_memcpy(&scale, &exponent, sizeof scale);
  p = p * scale;
  p = below ? floats{} : p;
  return above ? broadcast(__builtin_inff()) : p;
}

/// 1 / (1 + e^-x).
[[nodiscard]] inline floats sigmoid(floats x) noexcept {
  return 1.0F / (1.0F + exp(-x));
}

/// The correctly rounded square root.
[[nodiscard]] inline floats sqrt(floats x) noexcept {
#if SMELT_VECTOR_BYTES == 64
  return (floats)_mm512_maskz_sqrt_ps(0xFFFF, (__m512)x);  // g++ 12 finds the unmasked one uninitialised
#elif SMELT_VECTOR_BYTES == 32
  return (floats)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (floats)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
  return (floats)vsqrtq_f32((float32x4_t)x);
#else
  for (std::int64_t i = 0; i < lanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
#endif
}

}  // namespace smelt::cpu_ops::SMELT_SET
