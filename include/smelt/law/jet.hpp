// How does a form get its second derivatives? It writes value and gradient once, for any kind of number; numbers that
// carry derivatives along then turn the gradient into the exact Hessian.
#pragma once

#include <smelt/law/pack.hpp>

namespace smelt::law {

/// A pack and its derivatives in `Directions` directions.
template <int Directions>
struct jet {
  pack v;
  pack d[Directions];

  jet() = default;
  [[gnu::always_inline]] jet(const pack& constant) noexcept : v(constant) {
    for (int i = 0; i < Directions; ++i) d[i] = pack(0.0);
  }
  [[gnu::always_inline]] jet(double constant) noexcept : jet(pack(constant)) {}

  /// The number whose value is `value`, with all derivatives multiplied by `slope`.
  [[nodiscard, gnu::always_inline]] jet chained(const pack& value, const pack& slope) const noexcept {
    jet r;
    r.v = value;
    for (int i = 0; i < Directions; ++i) r.d[i] = slope * d[i];
    return r;
  }

  [[gnu::always_inline]] friend jet operator+(const jet& a, const jet& b) noexcept {
    jet r;
    r.v = a.v + b.v;
    for (int i = 0; i < Directions; ++i) r.d[i] = a.d[i] + b.d[i];
    return r;
  }
  [[gnu::always_inline]] friend jet operator-(const jet& a, const jet& b) noexcept {
    jet r;
    r.v = a.v - b.v;
    for (int i = 0; i < Directions; ++i) r.d[i] = a.d[i] - b.d[i];
    return r;
  }
  [[gnu::always_inline]] friend jet operator*(const jet& a, const jet& b) noexcept {
    jet r;
    r.v = a.v * b.v;
    for (int i = 0; i < Directions; ++i) r.d[i] = a.v * b.d[i] + b.v * a.d[i];
    return r;
  }
  [[gnu::always_inline]] friend jet operator/(const jet& a, const jet& b) noexcept {
    jet r;
    const pack inverse = pack(1.0) / b.v;
    r.v = a.v * inverse;
    for (int i = 0; i < Directions; ++i) r.d[i] = (a.d[i] - r.v * b.d[i]) * inverse;
    return r;
  }
  [[gnu::always_inline]] friend jet operator-(const jet& a) noexcept { return a.chained(-a.v, -1.0); }

  // With a constant on one side nothing is multiplied by its zero derivatives.
  [[gnu::always_inline]] friend jet operator+(const jet& a, const pack& b) noexcept {
    jet r = a;
    r.v = a.v + b;
    return r;
  }
  [[gnu::always_inline]] friend jet operator+(const pack& a, const jet& b) noexcept { return b + a; }
  [[gnu::always_inline]] friend jet operator-(const jet& a, const pack& b) noexcept { return a + (-b); }
  [[gnu::always_inline]] friend jet operator-(const pack& a, const jet& b) noexcept { return b.chained(a - b.v, -1.0); }
  [[gnu::always_inline]] friend jet operator*(const jet& a, const pack& b) noexcept { return a.chained(a.v * b, b); }
  [[gnu::always_inline]] friend jet operator*(const pack& a, const jet& b) noexcept { return b * a; }
  [[gnu::always_inline]] friend jet operator/(const jet& a, const pack& b) noexcept { return a * (pack(1.0) / b); }
  [[gnu::always_inline]] friend jet operator+(const jet& a, double b) noexcept { return a + pack(b); }
  [[gnu::always_inline]] friend jet operator+(double a, const jet& b) noexcept { return b + pack(a); }
  [[gnu::always_inline]] friend jet operator-(const jet& a, double b) noexcept { return a + pack(-b); }
  [[gnu::always_inline]] friend jet operator-(double a, const jet& b) noexcept { return pack(a) - b; }
  [[gnu::always_inline]] friend jet operator*(const jet& a, double b) noexcept { return a * pack(b); }
  [[gnu::always_inline]] friend jet operator*(double a, const jet& b) noexcept { return b * pack(a); }
  [[gnu::always_inline]] friend jet operator/(double a, const jet& b) noexcept { return jet(pack(a)) / b; }
};

template <int Directions>
[[nodiscard, gnu::always_inline]] inline jet<Directions> exp(const jet<Directions>& x) noexcept {
  const pack value = exp(x.v);
  return x.chained(value, value);
}

template <int Directions>
[[nodiscard, gnu::always_inline]] inline jet<Directions> log(const jet<Directions>& x) noexcept {
  return x.chained(log(x.v), pack(1.0) / x.v);
}

template <int Directions>
[[nodiscard, gnu::always_inline]] inline jet<Directions> exp_of_negative(const jet<Directions>& x) noexcept {
  const pack value = exp_of_negative(x.v);
  return x.chained(value, value);
}

template <int Directions>
[[nodiscard, gnu::always_inline]] inline jet<Directions> log_of_sum(const jet<Directions>& x) noexcept {
  return x.chained(log_of_sum(x.v), pack(1.0) / x.v);
}

template <int Directions>
[[nodiscard, gnu::always_inline]] inline jet<Directions> expm1(const jet<Directions>& x) noexcept {
  const pack value = expm1(x.v);
  return x.chained(value, value + 1.0);
}

}  // namespace smelt::law
