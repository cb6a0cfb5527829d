// How are exp and log taken over many rows at once? In packs of eight doubles, written with the compilers' own vectors:
// one source for every instruction set, within 2 units in the last place, a NaN stays a NaN. No fast-math.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

namespace smelt::law {

/// Eight doubles that are computed with at once.
struct alignas(64) pack {
  static constexpr int lanes = 8;
  using doubles [[gnu::vector_size(64)]] = double;
  using integers [[gnu::vector_size(64)]] = std::int64_t;
  using words [[gnu::vector_size(64)]] = std::uint64_t;

  doubles v;

  pack() = default;
  [[gnu::always_inline]] pack(double x) noexcept : v{x, x, x, x, x, x, x, x} {}
  [[gnu::always_inline]] explicit pack(const doubles& x) noexcept : v(x) {}

  [[gnu::always_inline]] friend pack operator+(const pack& a, const pack& b) noexcept { return pack(a.v + b.v); }
  [[gnu::always_inline]] friend pack operator-(const pack& a, const pack& b) noexcept { return pack(a.v - b.v); }
  [[gnu::always_inline]] friend pack operator*(const pack& a, const pack& b) noexcept { return pack(a.v * b.v); }
  [[gnu::always_inline]] friend pack operator/(const pack& a, const pack& b) noexcept { return pack(a.v / b.v); }
  [[gnu::always_inline]] friend pack operator-(const pack& a) noexcept { return pack(-a.v); }
  [[gnu::always_inline]] pack& operator+=(const pack& b) noexcept {
    v += b.v;
    return *this;
  }
};

namespace detail {

/// a where the mask is set, else b.
[[gnu::always_inline]] inline pack choose(const pack::integers& mask, const pack::doubles& a,
                                          const pack::doubles& b) noexcept {
  return pack(mask ? a : b);
}

}  // namespace detail

/// The larger of two, lane by lane; b where either is a NaN.
[[nodiscard, gnu::always_inline]] inline pack larger(const pack& a, const pack& b) noexcept {
  return detail::choose(a.v > b.v, a.v, b.v);
}

/// x brought into [low, high]; a NaN stays a NaN.
[[nodiscard, gnu::always_inline]] inline pack limited(const pack& x, const pack& low, const pack& high) noexcept {
  const pack above = detail::choose(x.v < low.v, low.v, x.v);
  return detail::choose(above.v > high.v, high.v, above.v);
}

[[nodiscard, gnu::always_inline]] inline pack abs(const pack& x) noexcept {
  return pack(
      reinterpret_cast<pack::doubles>(reinterpret_cast<pack::integers>(x.v) & std::int64_t{0x7FFFFFFFFFFFFFFF}));
}

/// 1 where |x| <= bound, else 0.
[[nodiscard, gnu::always_inline]] inline pack within(const pack& x, const pack& bound) noexcept {
  return detail::choose(abs(x).v <= bound.v, pack(1.0).v, pack(0.0).v);
}

/// The sum of the lanes, always added in the same order.
[[nodiscard, gnu::always_inline]] inline double sum_of(const pack& x) noexcept {
  return ((x.v[0] + x.v[4]) + (x.v[2] + x.v[6])) + ((x.v[1] + x.v[5]) + (x.v[3] + x.v[7]));
}

namespace detail {

/// e^x for x in [-708.5, 709.9]; a NaN stays a NaN.
[[nodiscard, gnu::always_inline]] inline pack exp_inside(const pack& x) noexcept {
  constexpr double shift = 0x1.8p52;  // added, it leaves a whole number in the low bits
  const pack::doubles shifted = x.v * 1.4426950408889634 + shift;
  const pack::doubles k = shifted - shift;
  const pack::doubles r = (x.v - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
  pack::doubles q = r * 2.51003758422237e-08 + 2.7620075892548164e-07;
  q = q * r + 2.7557268480289716e-06;
  q = q * r + 2.480152132234228e-05;
  q = q * r + 0.00019841269863040559;
  q = q * r + 0.0013888888917196736;
  q = q * r + 0.008333333333330065;
  q = q * r + 0.041666666666624164;
  q = q * r + 0.16666666666666669;
  q = q * r + 0.5000000000000001;
  const pack::doubles power = (q * r) * r + r;  // e^r - 1
  // 2^(k-1), so that the largest results are reached in two steps without overflow
  const pack::integers bits = reinterpret_cast<pack::integers>(shifted) + std::int64_t{1022};
  const pack::doubles half = reinterpret_cast<pack::doubles>(bits << 52);
  return pack((power * half + half) * 2.0);
}

/// ln x for a positive, finite, normal x.
[[nodiscard, gnu::always_inline]] inline pack log_inside(const pack& x) noexcept {
  // x = 2^k m with m in [sqrt(1/2), sqrt(2))
  // differences of unsigned numbers: of a negative x, whose result is not used, they wrap around
  const pack::words bits = reinterpret_cast<pack::words>(x.v);
  constexpr std::uint64_t root_half = 0x3FE6A09E667F3BCD;
  const pack::integers exponent = reinterpret_cast<pack::integers>(bits - root_half) >> 52;
  const pack::doubles m = reinterpret_cast<pack::doubles>(bits - (reinterpret_cast<pack::words>(exponent) << 52));
  // small whole numbers become doubles by the same shift as in exp, backwards
  const pack::doubles k = reinterpret_cast<pack::doubles>(exponent + std::int64_t{0x4338000000000000}) - 0x1.8p52;
  const pack::doubles f = m - 1.0;
  const pack::doubles s = f / (f + 2.0);  // ln m = 2 atanh s
  const pack::doubles z = s * s;
  pack::doubles q = z * 0.14616449820782476 + 0.15331721589574307;
  q = q * z + 0.181828891255921;
  q = q * z + 0.22222211134790545;
  q = q * z + 0.28571428625975515;
  q = q * z + 0.39999999999899505;
  q = q * z + 0.666666666666667;
  // 2 s = f - s f, exactly enough where f is small
  const pack::doubles log_m = f - s * (f - z * q);
  return pack(k * 0x1.62e42fee00000p-1 + (k * 0x1.a39ef35793c76p-33 + log_m));
}

}  // namespace detail

/// e^x. Below -708 it is 0, above 709.78 infinity.
[[nodiscard, gnu::always_inline]] inline pack exp(const pack& x) noexcept {
  pack::doubles result = detail::exp_inside(limited(x, -708.5, 709.9)).v;
  result = detail::choose(x.v < -708.0, pack(0.0).v, result).v;
  return detail::choose(x.v > 709.782712893384, pack((std::numeric_limits<double>::infinity)()).v, result);
}

/// e^x for x <= 0, without the tests that larger x need. Below -708 it is no more than 1e-307.
[[nodiscard, gnu::always_inline]] inline pack exp_of_negative(const pack& x) noexcept {
  return detail::exp_inside(pack(detail::choose(x.v < -708.0, pack(-708.0).v, x.v)));
}

/// ln x for 1 <= x < infinity, without the tests that other x need.
[[nodiscard, gnu::always_inline]] inline pack log_of_sum(const pack& x) noexcept {
  return detail::log_inside(x);
}

/// ln x of a normal x. Zero gives -infinity, a negative number a NaN.
[[nodiscard, gnu::always_inline]] inline pack log(const pack& x) noexcept {
  pack::doubles result = detail::log_inside(x).v;
  constexpr double infinity = (std::numeric_limits<double>::infinity)();
  result = detail::choose(x.v == 0.0, pack(-infinity).v, result).v;
  result = detail::choose(x.v < 0.0, pack((std::numeric_limits<double>::quiet_NaN)()).v, result).v;
  result = detail::choose(x.v == infinity, pack(infinity).v, result).v;
  // NOLINTNEXTLINE(misc-redundant-expression): a NaN stays one
  return detail::choose(x.v != x.v, x.v, result);
}

/// e^x - 1, without the loss of digits near zero.
[[nodiscard, gnu::always_inline]] inline pack expm1(const pack& x) noexcept {
  // Kahan's correction: (u - 1) x / ln u, where u = e^x as rounded
  const pack u = exp(x);
  const pack::doubles less = u.v - 1.0;
  // far from zero, where log_inside may not be asked, its answer is not used
  const pack::doubles ratio = less * (x.v / detail::log_inside(u).v);
  const pack corrected = detail::choose(u.v == 1.0, x.v, ratio);
  return detail::choose(abs(x).v < 1.0, corrected.v, less);
}

}  // namespace smelt::law
