// Could paired differences as large as these be chance? The sign-flip permutation test.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <smelt/law/observations.hpp>
#include <span>
#include <string>

namespace smelt::law {

/// What the test found.
struct sign_flip_result {
  double mean = 0;
  double p_two_sided = 1;  ///< how often |mean| is reached when every sign is a coin's toss
  double p_greater = 1;    ///< how often the mean is reached
  std::int64_t flips = 0;  ///< sign patterns looked at
  bool exact = false;      ///< all 2^n of them
};

/// Every pattern of signs for up to 20 differences, else `draws` random ones; the observed pattern always counts, so no
/// p is 0. Throws invalid_argument for no differences, not_finite for one that is not finite.
[[nodiscard]] inline sign_flip_result sign_flip_test(std::span<const double> differences, std::int64_t draws = 100'000,
                                                     std::uint64_t seed = 0) {
  const std::size_t n = differences.size();
  if (n == 0) throw error(errc::invalid_argument, "a sign-flip test needs at least 1 difference, found 0");
  if (draws < 1)
    throw error(errc::invalid_argument, "a sign-flip test needs at least 1 draw, found " + std::to_string(draws));
  double sum = 0;
  double size = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(differences[i])) {
      throw error(errc::not_finite,
                  "difference " + std::to_string(i) + " must be finite, found " + detail::shown(differences[i]));
    }
    sum += differences[i];
    size += std::fabs(differences[i]);
  }
  // sums that differ by rounding alone are equal
  const double slack = 1e-12 * size;
  sign_flip_result r;
  r.mean = sum / static_cast<double>(n);
  r.exact = n <= 20;
  std::int64_t two_sided = 0;
  std::int64_t greater = 0;
  const auto look = [&](double flipped) {
    two_sided += std::fabs(flipped) >= std::fabs(sum) - slack ? 1 : 0;
    greater += flipped >= sum - slack ? 1 : 0;
  };
  if (r.exact) {
    r.flips = std::int64_t{1} << n;
    for (std::int64_t pattern = 0; pattern < r.flips; ++pattern) {
      double flipped = 0;
      for (std::size_t i = 0; i < n; ++i) flipped += (pattern >> i & 1) != 0 ? -differences[i] : differences[i];
      look(flipped);
    }
  } else {
    r.flips = draws + 1;
    look(sum);
    const std::size_t words = (n + 63) / 64;
    const random_stream random(seed, 0x666C6970);  // "flip"
    for (std::int64_t b = 0; b < draws; ++b) {
      double flipped = 0;
      for (std::size_t w = 0; w < words; ++w) {
        const std::uint64_t bits = random.bits(static_cast<std::uint64_t>(b) * words + w);
        for (std::size_t i = w * 64; i < n && i < (w + 1) * 64; ++i)
          flipped += (bits >> (i % 64) & 1) != 0 ? -differences[i] : differences[i];
      }
      look(flipped);
    }
  }
  r.p_two_sided = static_cast<double>(two_sided) / static_cast<double>(r.flips);
  r.p_greater = static_cast<double>(greater) / static_cast<double>(r.flips);
  return r;
}

}  // namespace smelt::law
