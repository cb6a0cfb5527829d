// Where do random numbers come from? From a pure function of (seed, stream, position): nothing to save, nothing to
// share.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <smelt/core/error.hpp>

namespace smelt {

/// The Philox4x32-10 bijection (Salmon et al., 2011): 128 random-looking bits for each counter, under a 64-bit key.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                std::array<std::uint32_t, 2> key) noexcept {
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(odd),
               static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(even)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

namespace detail {

struct product128 {
  std::uint64_t high;
  std::uint64_t low;
};

// Spelled out because a 128-bit integer is not standard C++.
[[nodiscard]] constexpr product128 multiply128(std::uint64_t a, std::uint64_t b) noexcept {
  const std::uint64_t a_low = a & 0xFFFFFFFFu;
  const std::uint64_t a_high = a >> 32;
  const std::uint64_t b_low = b & 0xFFFFFFFFu;
  const std::uint64_t b_high = b >> 32;
  const std::uint64_t low = a_low * b_low;
  const std::uint64_t middle = a_high * b_low + (low >> 32);
  const std::uint64_t other = a_low * b_high + (middle & 0xFFFFFFFFu);
  return {a_high * b_high + (middle >> 32) + (other >> 32), (other << 32) | (low & 0xFFFFFFFFu)};
}

// c[0] + c[1] x + ... by fused multiply-adds only. A plain a * b + c may or may not be fused, depending on compiler
// flags; std::fma always rounds once, so every build computes the same bits.
template <std::size_t N>
[[nodiscard]] inline double polynomial(const std::array<double, N>& c, double x) noexcept {
  double sum = c[N - 1];
  for (std::size_t i = N - 1; i > 0; --i) sum = std::fma(sum, x, c[i - 1]);
  return sum;
}

// ln(x) for x in (0, 1], to about 2 units in the last place: the C library's differs between machines.
[[nodiscard]] inline double portable_log(double x) noexcept {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // [0.5, 1)
  if (mantissa < 0.70710678118654752) {
    mantissa = mantissa + mantissa;
    --exponent;
  }
  // ln(m) = 2 atanh((m - 1) / (m + 1)), with |s| <= 0.172
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = s * s;
  constexpr std::array<double, 12> odd_reciprocals{1.0,        1.0 / 3.0,  1.0 / 5.0,  1.0 / 7.0,
                                                   1.0 / 9.0,  1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0,
                                                   1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0, 1.0 / 23.0};
  const double log_mantissa = (s + s) * polynomial(odd_reciprocals, square);
  return std::fma(static_cast<double>(exponent), 0.69314718055994531, log_mantissa);
}

// The standard normal quantile of p in (0, 1): Wichura's algorithm AS 241 (PPND16), relative error about 1e-16.
[[nodiscard]] inline double normal_quantile(double p) noexcept {
  constexpr std::array<double, 8> a{3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                                    1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                                    3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr std::array<double, 8> b{1.0,
                                    4.2313330701600911252e1,
                                    6.8718700749205790830e2,
                                    5.3941960214247511077e3,
                                    2.1213794301586595867e4,
                                    3.9307895800092710610e4,
                                    2.8729085735721942674e4,
                                    5.2264952788528545610e3};
  constexpr std::array<double, 8> c{1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                    3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                    2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr std::array<double, 8> d{1.0,
                                    2.05319162663775882187e0,
                                    1.67638483018380384940e0,
                                    6.89767334985100004550e-1,
                                    1.48103976427480074590e-1,
                                    1.51986665636164571966e-2,
                                    5.47593808499534494600e-4,
                                    1.05075007164441684324e-9};
  constexpr std::array<double, 8> e{6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                    2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr std::array<double, 8> f{1.0,
                                    5.99832206555887937690e-1,
                                    1.36929880922735805310e-1,
                                    1.48753612908506148525e-2,
                                    7.86869131145613259100e-4,
                                    1.84631831751005468180e-5,
                                    1.42151175831644588870e-7,
                                    2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = std::fma(-q, q, 0.180625);
    return q * (polynomial(a, r) / polynomial(b, r));
  }
  const double r = std::sqrt(-portable_log(q < 0.0 ? p : 1.0 - p));
  const double magnitude =
      r <= 5.0 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5.0) / polynomial(f, r - 5.0);
  return q < 0.0 ? -magnitude : magnitude;
}

}  // namespace detail

/// One sequence of random numbers, addressed by position. Two streams of one seed, or one stream of two seeds, are
/// independent. Copies are equal; asking twice for a position gives the same number; the bits are the same on every
/// machine, compiler and thread.
class random_stream {
 public:
  constexpr random_stream(std::uint64_t seed, std::uint64_t stream) noexcept : seed_(seed), stream_(stream) {}

  /// 64 uniformly random bits.
  [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t position) const noexcept { return block(position, 0)[0]; }

  /// A multiple of 2^-53, uniform in [0, 1).
  [[nodiscard]] constexpr double uniform(std::uint64_t position) const noexcept {
    return static_cast<double>(bits(position) >> 11) * 0x1p-53;
  }

  /// A standard normal number: mean 0, variance 1.
  [[nodiscard]] double normal(std::uint64_t position) const noexcept {
    return detail::normal_quantile((static_cast<double>(bits(position) >> 12) + 0.5) * 0x1p-52);
  }

  /// An integer uniform in [0, bound), every value exactly equally likely. Throws invalid_argument for bound 0.
  [[nodiscard]] constexpr std::uint64_t below(std::uint64_t bound, std::uint64_t position) const {
    if (bound == 0) throw error(errc::invalid_argument, "bound of a random integer must be at least 1, found 0");
    // Lemire's method: the high half of bits * bound, drawn again in the rare case that would favour some values.
    const std::uint64_t unfair = (0 - bound) % bound;  // 2^64 mod bound
    for (std::uint32_t attempt = 0;; ++attempt) {
      for (const std::uint64_t word : block(position, attempt)) {
        const detail::product128 product = detail::multiply128(word, bound);
        if (product.low >= unfair) return product.high;
      }
    }
  }

 private:
  // A repeated draw changes the key, because position and stream fill the counter.
  [[nodiscard]] constexpr std::array<std::uint64_t, 2> block(std::uint64_t position,
                                                             std::uint32_t attempt) const noexcept {
    const auto words =
        philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                    static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                   {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32) + attempt});
    return {words[0] | (std::uint64_t{words[1]} << 32), words[2] | (std::uint64_t{words[3]} << 32)};
  }

  std::uint64_t seed_;
  std::uint64_t stream_;
};

/// Where a permutation of [0, size), drawn by the stream, sends `index`; O(1) memory and, on average, O(1) time, so a
/// shuffled order can be entered anywhere. Throws invalid_argument unless index < size.
[[nodiscard]] constexpr std::uint64_t permuted(std::uint64_t index, std::uint64_t size, const random_stream& stream) {
  if (index >= size)
    throw error(errc::invalid_argument, "index of a permutation must be below its size of " + std::to_string(size) +
                                            ", found " + std::to_string(index));
  // A Feistel network on a grid of rows x columns >= size cells: each round shifts one coordinate by a random function
  // of the other, which is invertible. A cell past the end is sent through again until it falls inside: the walk
  // follows a cycle of the permutation, so it comes back and stays one-to-one.
  std::uint64_t rows = 1;
  while (rows < 0x100000000u && rows * rows < size) rows *= 2;
  const std::uint64_t columns = (size - 1) / rows + 1;
  constexpr std::uint64_t rounds = 8;
  do {
    std::uint64_t row = index / columns;
    std::uint64_t column = index % columns;
    for (std::uint64_t round = 0; round < rounds; round += 2) {
      row = (row + stream.below(rows, (column << 3) | round)) % rows;
      column = (column + stream.below(columns, (row << 3) | (round + 1))) % columns;
    }
    index = row * columns + column;
  } while (index >= size);
  return index;
}

}  // namespace smelt
