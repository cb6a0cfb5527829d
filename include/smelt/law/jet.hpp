// How does a form get its second derivatives? It writes value and gradient once, for any kind of number; numbers that
// carry a derivative along then turn the gradient into a column of the exact Hessian.
#pragma once

#include <smelt/law/pack.hpp>

namespace smelt::law {

/// A pack and its derivative in one direction.
struct jet {
  pack v;
  pack d;

  jet() = default;
  [[gnu::always_inline]] jet(const pack& value, const pack& derivative) noexcept : v(value), d(derivative) {}
  [[gnu::always_inline]] jet(const pack& constant) noexcept : v(constant), d(0.0) {}
  [[gnu::always_inline]] jet(double constant) noexcept : v(constant), d(0.0) {}

  [[gnu::always_inline]] friend jet operator+(const jet& a, const jet& b) noexcept { return {a.v + b.v, a.d + b.d}; }
  [[gnu::always_inline]] friend jet operator-(const jet& a, const jet& b) noexcept { return {a.v - b.v, a.d - b.d}; }
  [[gnu::always_inline]] friend jet operator*(const jet& a, const jet& b) noexcept {
    return {a.v * b.v, a.v * b.d + b.v * a.d};
  }
  [[gnu::always_inline]] friend jet operator/(const jet& a, const jet& b) noexcept {
    const pack inverse = pack(1.0) / b.v;
    const pack value = a.v * inverse;
    return {value, (a.d - value * b.d) * inverse};
  }
  [[gnu::always_inline]] friend jet operator-(const jet& a) noexcept { return {-a.v, -a.d}; }

  // With a constant on one side nothing is multiplied by its zero derivative.
  [[gnu::always_inline]] friend jet operator+(const jet& a, const pack& b) noexcept { return {a.v + b, a.d}; }
  [[gnu::always_inline]] friend jet operator+(const pack& a, const jet& b) noexcept { return {a + b.v, b.d}; }
  [[gnu::always_inline]] friend jet operator-(const jet& a, const pack& b) noexcept { return {a.v - b, a.d}; }
  [[gnu::always_inline]] friend jet operator-(const pack& a, const jet& b) noexcept { return {a - b.v, -b.d}; }
  [[gnu::always_inline]] friend jet operator*(const jet& a, const pack& b) noexcept { return {a.v * b, a.d * b}; }
  [[gnu::always_inline]] friend jet operator*(const pack& a, const jet& b) noexcept { return {a * b.v, a * b.d}; }
  [[gnu::always_inline]] friend jet operator/(const jet& a, const pack& b) noexcept { return a * (pack(1.0) / b); }
  [[gnu::always_inline]] friend jet operator+(const jet& a, double b) noexcept { return a + pack(b); }
  [[gnu::always_inline]] friend jet operator+(double a, const jet& b) noexcept { return pack(a) + b; }
  [[gnu::always_inline]] friend jet operator-(const jet& a, double b) noexcept { return a - pack(b); }
  [[gnu::always_inline]] friend jet operator-(double a, const jet& b) noexcept { return pack(a) - b; }
  [[gnu::always_inline]] friend jet operator*(const jet& a, double b) noexcept { return a * pack(b); }
  [[gnu::always_inline]] friend jet operator*(double a, const jet& b) noexcept { return b * pack(a); }
  [[gnu::always_inline]] friend jet operator/(double a, const jet& b) noexcept {
    const pack inverse = pack(1.0) / b.v;
    const pack value = a * inverse;
    return {value, -(value * b.d) * inverse};
  }
};

[[nodiscard, gnu::always_inline]] inline jet exp(const jet& x) noexcept {
  const pack value = exp(x.v);
  return {value, value * x.d};
}

[[nodiscard, gnu::always_inline]] inline jet log(const jet& x) noexcept {
  return {log(x.v), x.d / x.v};
}

[[nodiscard, gnu::always_inline]] inline jet exp_of_negative(const jet& x) noexcept {
  const pack value = exp_of_negative(x.v);
  return {value, value * x.d};
}

[[nodiscard, gnu::always_inline]] inline jet log_of_sum(const jet& x) noexcept {
  return {log_of_sum(x.v), x.d / x.v};
}

[[nodiscard, gnu::always_inline]] inline jet expm1(const jet& x) noexcept {
  const pack value = expm1(x.v);
  return {value, (value + 1.0) * x.d};
}

}  // namespace smelt::law
