// What do a sum of power laws and its gradient share? The logarithm of a sum of exponentials, and each term's part.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <smelt/law/jet.hpp>

namespace smelt::law {

namespace detail {

[[nodiscard, gnu::always_inline]] inline double plain(double x) noexcept {
  return x;
}
[[nodiscard, gnu::always_inline]] inline pack plain(const pack& x) noexcept {
  return x;
}
[[nodiscard, gnu::always_inline]] inline pack plain(const jet& x) noexcept {
  return x.v;
}
[[nodiscard, gnu::always_inline]] inline double larger(double a, double b) noexcept {
  return a > b ? a : b;
}

[[nodiscard, gnu::always_inline]] inline double exp_of_negative(double x) noexcept {
  return std::exp(x);
}
[[nodiscard, gnu::always_inline]] inline double log_of_sum(double x) noexcept {
  return std::log(x);
}

}  // namespace detail

/// ln(sum_k e^(t_k)), without overflow, and share_k = e^(t_k) / sum: the derivative with respect to t_k.
template <class Number, std::size_t Terms>
[[nodiscard, gnu::always_inline]] inline Number log_sum_exp(const std::array<Number, Terms>& t,
                                                            std::array<Number, Terms>& share) noexcept {
  using detail::exp_of_negative, detail::larger, detail::log_of_sum, detail::plain;
  auto top = plain(t[0]);
  for (std::size_t k = 1; k < Terms; ++k) top = larger(top, plain(t[k]));
  share[0] = exp_of_negative(t[0] - top);
  Number sum = share[0];
  for (std::size_t k = 1; k < Terms; ++k) {
    share[k] = exp_of_negative(t[k] - top);
    sum = sum + share[k];
  }
  const Number inverse = 1.0 / sum;
  for (Number& s : share) s = s * inverse;
  return log_of_sum(sum) + top;
}

/// Where the lower triangle of a symmetric matrix, row by row, holds row j and column i <= j.
[[nodiscard]] constexpr std::size_t triangle_at(std::size_t j, std::size_t i) noexcept {
  return j * (j + 1) / 2 + i;
}

}  // namespace smelt::law
