// How does a gradient move a matrix? Muon: by its smoothed direction, with all singular values brought to 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/orthogonal.hpp>
#include <span>
#include <string>
#include <vector>

namespace smelt::reference_ops {

namespace detail {

// Throws unless the sizes agree and the matrices follow each other inside the buffers.
template <class Scalar>
void check_muon(std::span<const matrix_range> matrices, std::span<Scalar> gradient, std::span<Scalar> weight,
                std::span<Scalar> momentum) {
  const auto size = static_cast<std::int64_t>(weight.size());
  check_size("muon", "gradient", gradient, size);
  check_size("muon", "momentum", momentum, size);
  std::int64_t end = 0;
  for (const matrix_range& m : matrices) {
    if (m.first < end || m.rows < 1 || m.cols < 1 || m.rows > (size - m.first) / m.cols) [[unlikely]] {
      throw error(errc::invalid_argument, "muon: a matrix starts at " + std::to_string(m.first) + " and has " +
                                              std::to_string(m.rows) + " x " + std::to_string(m.cols) +
                                              " elements, needs to lie between " + std::to_string(end) + " and " +
                                              std::to_string(size));
    }
    end = m.first + m.rows * m.cols;
  }
}

// [n, m] times [m, k].
template <class Scalar>
[[nodiscard]] std::vector<Scalar> product(const std::vector<Scalar>& a, const std::vector<Scalar>& b, std::size_t n,
                                          std::size_t m, std::size_t k) {
  std::vector<Scalar> c(n * k, Scalar(0));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t l = 0; l < m; ++l)
      for (std::size_t j = 0; j < k; ++j) c[i * k + j] += a[i * m + l] * b[l * k + j];
  return c;
}

// The matrix [rows, cols] with its singular values brought to 1; of zeros, zeros.
template <class Scalar>
[[nodiscard]] std::vector<Scalar> orthogonal(std::vector<Scalar> x, std::size_t rows, std::size_t cols) {
  Scalar greatest = 0;
  for (const Scalar e : x) greatest = (std::max)(greatest, std::abs(e));
  if (greatest == 0) return x;
  for (Scalar& e : x) e /= greatest;  // so that no square overflows or vanishes
  for (const odd_quintic& step : orthogonal_steps) {
    std::vector<Scalar> transposed(x.size());
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < cols; ++j) transposed[j * rows + i] = x[i * cols + j];
    // X X^T or X^T X, the smaller one, and its polynomial.
    const bool wide = rows < cols;
    const std::size_t n = (std::min)(rows, cols);
    std::vector<Scalar> gram =
        wide ? product(x, transposed, rows, cols, rows) : product(transposed, x, cols, rows, cols);
    if (&step == &orthogonal_steps[0]) {
      // Its norm is at least the square of the greatest singular value.
      Scalar squares = 0;
      for (const Scalar e : gram) squares += e * e;
      const Scalar norm = std::sqrt(squares);
      for (Scalar& e : gram) e /= norm;
      for (Scalar& e : x) e /= std::sqrt(norm);
    }
    std::vector<Scalar> factor = product(gram, gram, n, n, n);
    for (std::size_t i = 0; i < factor.size(); ++i)
      factor[i] = static_cast<Scalar>(step.x5) * factor[i] + static_cast<Scalar>(step.x3) * gram[i];
    const std::vector<Scalar> higher =
        wide ? product(factor, x, rows, rows, cols) : product(x, factor, rows, cols, cols);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Scalar>(step.x) * x[i] + higher[i];
  }
  return x;
}

}  // namespace detail

/// One update of weight and momentum of the matrices, which ascend; their gradients become 0. With mu the momentum and
/// g the scaled gradient, m <- mu m + (1 - mu) g, and the weight moves by the learning rate times muon_scale times the
/// orthogonal direction of mu m + (1 - mu) g (Nesterov's look ahead), and decays. With a learning rate of 0 the weights
/// keep their bits, whatever the decay.
template <std::floating_point Scalar>
void muon(const muon_step& numbers, std::span<const matrix_range> matrices, std::span<Scalar> gradient,
          std::span<Scalar> weight, std::span<Scalar> momentum) {
  detail::check_muon(matrices, gradient, weight, momentum);
  const auto keep = static_cast<Scalar>(numbers.momentum);
  const auto take = static_cast<Scalar>(1 - numbers.momentum);
  for (const matrix_range& m : matrices) {
    const auto first = static_cast<std::size_t>(m.first);
    std::vector<Scalar> ahead(static_cast<std::size_t>(m.rows * m.cols));
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      const Scalar g = gradient[first + i] * static_cast<Scalar>(numbers.gradient_scale);
      gradient[first + i] = 0;
      momentum[first + i] = keep * momentum[first + i] + take * g;
      ahead[i] = keep * momentum[first + i] + take * g;
    }
    if (numbers.learning_rate == 0) continue;
    const std::vector<Scalar> direction =
        detail::orthogonal(ahead, static_cast<std::size_t>(m.rows), static_cast<std::size_t>(m.cols));
    const auto scale = static_cast<Scalar>(muon_scale(m));
    for (std::size_t i = 0; i < direction.size(); ++i) {
      Scalar& w = weight[first + i];
      w -= static_cast<Scalar>(numbers.learning_rate) *
           (scale * direction[i] + static_cast<Scalar>(numbers.weight_decay) * w);
    }
  }
}

}  // namespace smelt::reference_ops
