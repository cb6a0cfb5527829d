// What stands for a chunk of tokens? A latent, made of those that its last token sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <vector>

namespace smelt::reference_ops {

namespace detail {

/// Rows of the encoder's weights: none for the mean.
[[nodiscard]] constexpr std::int64_t encoder_rows(const pool_shape& s) noexcept {
  return s.encoder == encoder_kind::conv ? s.factor : s.encoder == encoder_kind::softmax ? 1 : 0;
}

template <class Scalar>
void check_pool(const char* op, const pool_shape& s, matrix_view<const Scalar> x, matrix_view<const Scalar> w,
                std::span<const std::int32_t> first, std::int64_t length, matrix_view<const Scalar> z) {
  check_at_least(op, "width", s.width, 1);
  check_at_least(op, "factor", s.factor, 1);
  check_shape(op, "x", x, x.rows, s.width);
  check_optional_first(op, first, x.rows, length);
  // A view without elements may have any width.
  const std::int64_t rows = encoder_rows(s);
  check_shape(op, "w", w, rows, rows == 0 ? w.cols : s.width);
  check_shape(op, "z", z, x.rows / length * (length / s.factor), s.width);
}

// The rows of a batch that a latent is made of.
struct latent_rows {
  std::int64_t chunk;  // the first row of the latent's chunk
  std::int64_t begin;  // the first one that enters
  std::int64_t end;
};

// Of latent `number` of the batch. `first` may be empty.
[[nodiscard]] inline latent_rows rows_of_latent(std::int64_t number, std::int64_t factor, std::int64_t length,
                                                std::span<const std::int32_t> first) noexcept {
  const std::int64_t latents = length / factor;
  const std::int64_t chunk = number / latents * length + number % latents * factor;
  const std::int64_t last = chunk + factor - 1;
  return {chunk, first.empty() ? chunk : (std::max)(chunk, std::int64_t{first[last]}), last + 1};
}

// The share of every row that enters, in order of the rows.
template <std::floating_point Scalar>
[[nodiscard]] std::vector<Scalar> softmax_shares(matrix_view<const Scalar> x, matrix_view<const Scalar> w,
                                                 const latent_rows& rows) {
  std::vector<Scalar> shares;
  Scalar greatest = -std::numeric_limits<Scalar>::infinity();
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    Scalar score = 0;
    for (std::int64_t h = 0; h < x.cols; ++h) score += w(0, h) * x(t, h);
    greatest = (std::max)(greatest, score);
    shares.push_back(score);
  }
  Scalar sum = 0;
  for (Scalar& share : shares) sum += share = std::exp(share - greatest);
  for (Scalar& share : shares) share /= sum;
  return shares;
}

}  // namespace detail

/// z[S * (length / c), H] from x[S * length, H]: a latent for every whole chunk of c = factor rows of a sequence. A row
/// enters it if the chunk's last row sees it: its number is first[last] or greater (an empty `first`: all enter);
/// others are never read. mean: the mean of the rows that enter, w is empty; conv: their sum, each times its row of
/// w[c,H]; softmax: their mean weighted by the softmax of their products with w[1,H]. Throws as attention does.
template <std::floating_point Scalar, ShapeOf<pool_shape> Shape>
void pool(Shape shape, matrix_view<const Scalar> x, matrix_view<const Scalar> w, std::span<const std::int32_t> first,
          std::int64_t length, matrix_view<Scalar> z) {
  const pool_shape s = shape;
  detail::check_pool<Scalar>("pool", s, x, w, first, length, z);
  for (std::int64_t j = 0; j < z.rows; ++j) {
    const detail::latent_rows rows = detail::rows_of_latent(j, s.factor, length, first);
    std::vector<Scalar> shares;
    if (s.encoder == encoder_kind::softmax) shares = detail::softmax_shares(x, w, rows);
    for (std::int64_t h = 0; h < s.width; ++h) {
      Scalar sum = 0;
      for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        if (s.encoder == encoder_kind::conv) {
          sum += w(t - rows.chunk, h) * x(t, h);
        } else if (s.encoder == encoder_kind::softmax) {
          sum += shares[t - rows.begin] * x(t, h);
        } else {
          sum += x(t, h);
        }
      }
      z(j, h) = s.encoder == encoder_kind::mean ? sum / static_cast<Scalar>(rows.end - rows.begin) : sum;
    }
  }
}

/// dx[S * length, H] += and dw += (of w's shape) from dz. The shares of a softmax are computed again.
template <std::floating_point Scalar, ShapeOf<pool_shape> Shape>
void pool_backward(Shape shape, matrix_view<const Scalar> x, matrix_view<const Scalar> w,
                   std::span<const std::int32_t> first, std::int64_t length, matrix_view<const Scalar> dz,
                   matrix_view<Scalar> dx, matrix_view<Scalar> dw) {
  const pool_shape s = shape;
  detail::check_pool<Scalar>("pool_backward", s, x, w, first, length, dz);
  check_shape("pool_backward", "dx", dx, x.rows, s.width);
  check_shape("pool_backward", "dw", dw, w.rows, w.rows == 0 ? dw.cols : w.cols);
  for (std::int64_t j = 0; j < dz.rows; ++j) {
    const detail::latent_rows rows = detail::rows_of_latent(j, s.factor, length, first);
    std::vector<Scalar> shares;
    std::vector<Scalar> pulls;  // gradients of the shares
    Scalar mean = 0;
    if (s.encoder == encoder_kind::softmax) {
      shares = detail::softmax_shares(x, w, rows);
      for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        Scalar pull = 0;
        for (std::int64_t h = 0; h < s.width; ++h) pull += dz(j, h) * x(t, h);
        mean += shares[t - rows.begin] * pull;
        pulls.push_back(pull);
      }
    }
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      for (std::int64_t h = 0; h < s.width; ++h) {
        if (s.encoder == encoder_kind::conv) {
          dx(t, h) += w(t - rows.chunk, h) * dz(j, h);
          dw(t - rows.chunk, h) += x(t, h) * dz(j, h);
        } else if (s.encoder == encoder_kind::softmax) {
          const Scalar dscore = shares[t - rows.begin] * (pulls[t - rows.begin] - mean);
          dx(t, h) += shares[t - rows.begin] * dz(j, h) + dscore * w(0, h);
          dw(0, h) += dscore * x(t, h);
        } else {
          dx(t, h) += dz(j, h) / static_cast<Scalar>(rows.end - rows.begin);
        }
      }
    }
  }
}

}  // namespace smelt::reference_ops
