// What does a token receive of what was done to a latent? The latent's increment, times a coefficient.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>
#include <vector>

namespace smelt::reference_ops {

/// Added to the mean square of a receiver's weights under the root that they are divided by.
inline constexpr double normalised_eps = 1e-12;

namespace detail {

template <class Scalar>
void check_write_back(const char* op, const write_back_shape& s, matrix_view<const Scalar> tokens, const char* name,
                      matrix_view<const Scalar> d, matrix_view<const Scalar> w, std::span<const std::int32_t> first,
                      std::int64_t begin, std::int64_t length) {
  check_at_least(op, "width", s.width, 1);
  check_at_least(op, "factor", s.factor, 1);
  check_at_least(op, "begin", begin, 0);
  check_shape(op, name, tokens, tokens.rows, s.width);
  if (begin > 0 && !first.empty()) {
    throw error(errc::invalid_argument, std::string(op) + ": begin is " + std::to_string(begin) +
                                            ", needs 0 where there are documents (first is not empty)");
  }
  check_optional_first(op, first, tokens.rows, length);
  check_shape(op, "d", d, tokens.rows / length * ((begin + length) / s.factor), s.width);
  switch (s.writeback) {
    case writeback_kind::direct:
      check_shape(op, "w", w, 0, w.cols);  // a view without elements may have any width
      break;
    case writeback_kind::scalar:
      check_shape(op, "w", w, 1, s.factor);
      break;
    default:
      check_shape(op, "w", w, s.factor, s.width);
  }
}

/// What a row of the batch receives.
struct received {
  std::int64_t latent;    ///< row of d
  std::int64_t receiver;  ///< number of the coefficient, 0 to factor - 1
};

/// Of row `t` of sequences of `length` rows, the first of which has position `begin`; nothing for the first
/// `factor` - 1 positions and where the row does not see the last row that the latent stands for.
[[nodiscard]] inline std::optional<received> received_by(std::int64_t t, std::int64_t factor, std::int64_t begin,
                                                         std::int64_t length,
                                                         std::span<const std::int32_t> first) noexcept {
  const std::int64_t past = begin + t % length + 1;  // positions up to the row's own
  if (past < factor) return std::nullopt;
  const std::int64_t receiver = past % factor;
  if (!first.empty() && first[t] > t - receiver) return std::nullopt;
  return received{t / length * ((begin + length) / factor) + past / factor - 1, receiver};
}

// 1 / rms of each row of the weights of normalised coefficients.
template <std::floating_point Scalar>
[[nodiscard]] std::vector<Scalar> inverse_sizes(matrix_view<const Scalar> w) {
  std::vector<Scalar> sizes;
  for (std::int64_t i = 0; i < w.rows; ++i) {
    Scalar squares = 0;
    for (std::int64_t h = 0; h < w.cols; ++h) squares += w(i, h) * w(i, h);
    sizes.push_back(Scalar{1} / std::sqrt(squares / static_cast<Scalar>(w.cols) + static_cast<Scalar>(normalised_eps)));
  }
  return sizes;
}

// The coefficients [c, H] of all receivers.
template <std::floating_point Scalar>
[[nodiscard]] std::vector<Scalar> coefficients(const write_back_shape& s, matrix_view<const Scalar> w) {
  std::vector<Scalar> all;
  std::vector<Scalar> sizes;
  if (s.writeback == writeback_kind::normalised) sizes = inverse_sizes(w);
  for (std::int64_t i = 0; i < s.factor; ++i) {
    for (std::int64_t h = 0; h < s.width; ++h) {
      all.push_back(s.writeback == writeback_kind::direct   ? Scalar{1}
                    : s.writeback == writeback_kind::scalar ? w(0, i)
                    : s.writeback == writeback_kind::scaled ? w(i, h)
                                                            : w(i, h) * sizes[i]);
    }
  }
  return all;
}

}  // namespace detail

/// out[S * length, H] = h plus what the rows receive; `out` may be h. Counted from 0 in its sequence, row
/// c (j + 1) - 1 + i (0 <= i < c = factor) receives d[j], which stands for rows cj to c (j + 1) - 1, times coefficient
/// i, unless it does not see the last of these, because first[row] lies behind it (an empty `first`: it does). direct:
/// the coefficient is 1 and w empty; scaled: w[i] of w[c,H]; scalar: w[i] of w[1,c]; normalised: w[i] of w[c,H] divided
/// by sqrt(mean(w[i]^2) + 1e-12). The first row of each sequence has position `begin` in the whole sequence, from whose
/// start d[S * ((begin + length) / c), H] counts. Throws as attention does, and for a `first` where begin > 0.
template <std::floating_point Scalar, ShapeOf<write_back_shape> Shape>
void write_back(Shape shape, matrix_view<const Scalar> h, matrix_view<const Scalar> d, matrix_view<const Scalar> w,
                std::span<const std::int32_t> first, std::int64_t begin, std::int64_t length, matrix_view<Scalar> out) {
  const write_back_shape s = shape;
  detail::check_write_back<Scalar>("write_back", s, h, "h", d, w, first, begin, length);
  check_shape("write_back", "out", out, h.rows, s.width);
  const std::vector<Scalar> coefficients = detail::coefficients(s, w);
  for (std::int64_t t = 0; t < h.rows; ++t) {
    const std::optional<detail::received> from = detail::received_by(t, s.factor, begin, length, first);
    for (std::int64_t i = 0; i < s.width; ++i) {
      out(t, i) = h(t, i);
      if (from) out(t, i) += coefficients[from->receiver * s.width + i] * d(from->latent, i);
    }
  }
}

/// dd (overwritten) and dw += (of w's shape) from dout[S * length, H], for begin = 0. The gradient of h is dout.
template <std::floating_point Scalar, ShapeOf<write_back_shape> Shape>
void write_back_backward(Shape shape, matrix_view<const Scalar> d, matrix_view<const Scalar> w,
                         std::span<const std::int32_t> first, std::int64_t length, matrix_view<const Scalar> dout,
                         matrix_view<Scalar> dd, matrix_view<Scalar> dw) {
  const write_back_shape s = shape;
  detail::check_write_back<Scalar>("write_back_backward", s, dout, "dout", d, w, first, 0, length);
  check_shape("write_back_backward", "dd", dd, d.rows, s.width);
  check_shape("write_back_backward", "dw", dw, w.rows, w.rows == 0 ? dw.cols : w.cols);
  const std::vector<Scalar> coefficients = detail::coefficients(s, w);
  std::vector<Scalar> gradient(coefficients.size());  // of the coefficients
  set_zero(dd);
  for (std::int64_t t = 0; t < dout.rows; ++t) {
    const std::optional<detail::received> from = detail::received_by(t, s.factor, 0, length, first);
    if (!from) continue;
    for (std::int64_t i = 0; i < s.width; ++i) {
      dd(from->latent, i) += coefficients[from->receiver * s.width + i] * dout(t, i);
      gradient[from->receiver * s.width + i] += d(from->latent, i) * dout(t, i);
    }
  }
  if (s.writeback == writeback_kind::direct) return;
  std::vector<Scalar> sizes;
  if (s.writeback == writeback_kind::normalised) sizes = detail::inverse_sizes(w);
  for (std::int64_t i = 0; i < s.factor; ++i) {
    // Normalised, n = w / rms: dw = (dn - n mean(dn n)) / rms.
    Scalar projection = 0;
    for (std::int64_t h = 0; h < s.width; ++h) projection += gradient[i * s.width + h] * coefficients[i * s.width + h];
    projection /= static_cast<Scalar>(s.width);
    for (std::int64_t h = 0; h < s.width; ++h) {
      const Scalar g = gradient[i * s.width + h];
      if (s.writeback == writeback_kind::scalar) {
        dw(0, i) += g;
      } else if (s.writeback == writeback_kind::scaled) {
        dw(i, h) += g;
      } else {
        dw(i, h) += sizes[i] * (g - coefficients[i * s.width + h] * projection);
      }
    }
  }
}

}  // namespace smelt::reference_ops
