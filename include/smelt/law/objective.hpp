// What is minimised? The Huber loss of the residuals, summed over the rows, with its gradient and its Hessian: eight
// rows at once, nothing allocated, every sum in one fixed order.
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <cstdint>
#include <smelt/law/form.hpp>
#include <smelt/law/instruction_choice.hpp>
#include <smelt/law/jet.hpp>
#include <smelt/law/pack.hpp>
#include <span>
#include <vector>

namespace smelt::law {

/// Eight rows as the sums read them.
template <Form F>
struct row_block {
  std::array<pack, detail::prepared_count<F>> x;
  pack y;       ///< what is fitted: ln loss, or the score
  pack weight;  ///< how often the row counts; 0 fills the last block
};

template <Form F>
inline constexpr int coefficient_total = static_cast<int>(detail::coefficient_count<F>);
template <Form F>
using coefficient_vector = Eigen::Matrix<double, coefficient_total<F>, 1>;
template <Form F>
using coefficient_matrix = Eigen::Matrix<double, coefficient_total<F>, coefficient_total<F>>;

/// The objective at one point.
template <Form F>
struct objective_sums {
  double value = 0;  ///< sum_i w_i huber(r_i), huber(r) = r^2/2 inside delta, delta (|r| - delta/2) outside
  coefficient_vector<F> gradient;  ///< sum_i w_i psi(r_i) g_i, psi(r) = r limited to [-delta, delta]
};

namespace detail {

template <Form F, class C>
[[gnu::always_inline]] inline std::array<C, coefficient_count<F>> spread(const coefficients_of<F>& p) noexcept {
  std::array<C, coefficient_count<F>> all;
  for (std::size_t j = 0; j < p.size(); ++j) all[j] = C(p[j]);
  return all;
}

template <Form F>
[[gnu::always_inline]] inline void gradient_body(std::span<const row_block<F>> rows, const coefficients_of<F>& p,
                                                 double delta, objective_sums<F>& out) noexcept {
  constexpr std::size_t n = coefficient_count<F>;
  const std::array<pack, n> c = spread<F, pack>(p);
  pack value(0.0);
  std::array<pack, n> gradient;
  for (pack& g : gradient) g = pack(0.0);
  for (const row_block<F>& row : rows) {
    std::array<pack, n> slope;
    const pack residual = F::evaluate(c, row.x, slope) - row.y;
    const pack psi = limited(residual, -delta, delta);
    const pack pull = psi * row.weight;
    value += pull * (residual - psi * 0.5);
    for (std::size_t j = 0; j < n; ++j) gradient[j] += pull * slope[j];
  }
  out.value = sum_of(value);
  for (std::size_t j = 0; j < n; ++j) out.gradient[static_cast<int>(j)] = sum_of(gradient[j]);
}

/// The gradient, and sum_i w_i min(1, delta / |r_i|) g_i g_i^T: the quadratic that touches the objective from above,
/// up to the form's own curvature. Lower triangle.
template <Form F>
[[gnu::always_inline]] inline void majorant_body(std::span<const row_block<F>> rows, const coefficients_of<F>& p,
                                                 double delta, objective_sums<F>& out,
                                                 coefficient_matrix<F>& matrix) noexcept {
  constexpr std::size_t n = coefficient_count<F>;
  const std::array<pack, n> c = spread<F, pack>(p);
  pack value(0.0);
  std::array<pack, n> gradient;
  std::array<pack, n*(n + 1) / 2> products;
  for (pack& g : gradient) g = pack(0.0);
  for (pack& g : products) g = pack(0.0);
  for (const row_block<F>& row : rows) {
    std::array<pack, n> slope;
    const pack residual = F::evaluate(c, row.x, slope) - row.y;
    const pack psi = limited(residual, -delta, delta);
    const pack pull = psi * row.weight;
    value += pull * (residual - psi * 0.5);
    // psi / r, which is 1 at r = 0
    const pack size = abs(residual);
    const pack curvature = choose(size.v <= pack(delta).v, row.weight.v, (pull / residual).v);
    std::size_t at = 0;
    for (std::size_t j = 0; j < n; ++j) {
      gradient[j] += pull * slope[j];
      const pack scaled = curvature * slope[j];
      for (std::size_t i = 0; i <= j; ++i) products[at++] += scaled * slope[i];
    }
  }
  out.value = sum_of(value);
  std::size_t at = 0;
  for (std::size_t j = 0; j < n; ++j) {
    out.gradient[static_cast<int>(j)] = sum_of(gradient[j]);
    for (std::size_t i = 0; i <= j; ++i) matrix(static_cast<int>(j), static_cast<int>(i)) = sum_of(products[at++]);
  }
}

template <Form F>
inline constexpr int jet_directions = coefficient_total<F> <= 6 ? coefficient_total<F> : 1;

/// The exact Hessian: sum_i w_i (inside_i g_i g_i^T + psi_i d2 f_i). All of it.
template <Form F>
[[gnu::always_inline]] inline void hessian_body(std::span<const row_block<F>> rows, const coefficients_of<F>& p,
                                                double delta, coefficient_matrix<F>& hessian) noexcept {
  constexpr int n = coefficient_total<F>;
  constexpr int directions = jet_directions<F>;
  using number = jet<directions>;
  for (int first = 0; first < n; first += directions) {
    std::array<number, static_cast<std::size_t>(n)> c = spread<F, number>(p);
    for (int i = 0; i < directions && first + i < n; ++i) c[static_cast<std::size_t>(first + i)].d[i] = pack(1.0);
    std::array<std::array<pack, static_cast<std::size_t>(directions)>, static_cast<std::size_t>(n)> sums;
    for (auto& line : sums)
      for (pack& s : line) s = pack(0.0);
    for (const row_block<F>& row : rows) {
      std::array<number, static_cast<std::size_t>(n)> slope;
      const number value = F::evaluate(c, row.x, slope);
      const pack residual = value.v - row.y;
      const pack pull = limited(residual, -delta, delta) * row.weight;
      const pack inside = within(residual, delta) * row.weight;
      for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j)
        for (std::size_t i = 0; i < static_cast<std::size_t>(directions); ++i)
          sums[j][i] += inside * slope[j].v * value.d[i] + pull * slope[j].d[i];
    }
    for (int i = 0; i < directions && first + i < n; ++i)
      for (int j = 0; j < n; ++j)
        hessian(j, first + i) = sum_of(sums[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)]);
  }
}

// One copy an instruction set. A copy takes everything it calls into itself, forms included, so that they too are
// compiled for its vectors.
#define SMELT_LAW_COPIES(suffix, ...)                                                                               \
  template <Form F>                                                                                                 \
  __VA_ARGS__ void gradient_##suffix(std::span<const row_block<F>> rows, const coefficients_of<F>& p, double delta, \
                                     objective_sums<F>& out) noexcept {                                             \
    gradient_body<F>(rows, p, delta, out);                                                                          \
  }                                                                                                                 \
  template <Form F>                                                                                                 \
  __VA_ARGS__ void majorant_##suffix(std::span<const row_block<F>> rows, const coefficients_of<F>& p, double delta, \
                                     objective_sums<F>& out, coefficient_matrix<F>& matrix) noexcept {              \
    majorant_body<F>(rows, p, delta, out, matrix);                                                                  \
  }                                                                                                                 \
  template <Form F>                                                                                                 \
  __VA_ARGS__ void hessian_##suffix(std::span<const row_block<F>> rows, const coefficients_of<F>& p, double delta,  \
                                    coefficient_matrix<F>& hessian) noexcept {                                      \
    hessian_body<F>(rows, p, delta, hessian);                                                                       \
  }
SMELT_LAW_COPIES(baseline, [[gnu::flatten]])
#if defined(__x86_64__)
SMELT_LAW_COPIES(avx2, [[gnu::target("avx2,fma"), gnu::flatten]])
SMELT_LAW_COPIES(avx512, [[gnu::target("avx2,fma,avx512f,avx512dq,avx512vl"), gnu::flatten]])
#endif
#undef SMELT_LAW_COPIES

}  // namespace detail

/// The objective over rows prepared for one form. The rows are borrowed.
template <Form F>
class objective {
 public:
  objective(std::span<const row_block<F>> rows, double delta) noexcept
      : rows_(rows), delta_(delta), vectors_(detail::widest_vectors()) {}

  [[nodiscard]] double delta() const noexcept { return delta_; }
  void set_delta(double delta) noexcept { delta_ = delta; }
  [[nodiscard]] std::span<const row_block<F>> rows() const noexcept { return rows_; }

  /// Value and gradient.
  void evaluate(const coefficients_of<F>& p, objective_sums<F>& out) const noexcept {
#if defined(__x86_64__)
    if (vectors_ == detail::vectors::avx512) return detail::gradient_avx512<F>(rows_, p, delta_, out);
    if (vectors_ == detail::vectors::avx2) return detail::gradient_avx2<F>(rows_, p, delta_, out);
#endif
    detail::gradient_baseline<F>(rows_, p, delta_, out);
  }

  /// Value, gradient and the lower triangle of the majorant.
  void evaluate(const coefficients_of<F>& p, objective_sums<F>& out, coefficient_matrix<F>& matrix) const noexcept {
#if defined(__x86_64__)
    if (vectors_ == detail::vectors::avx512) return detail::majorant_avx512<F>(rows_, p, delta_, out, matrix);
    if (vectors_ == detail::vectors::avx2) return detail::majorant_avx2<F>(rows_, p, delta_, out, matrix);
#endif
    detail::majorant_baseline<F>(rows_, p, delta_, out, matrix);
  }

  /// The exact Hessian.
  void hessian(const coefficients_of<F>& p, coefficient_matrix<F>& matrix) const noexcept {
#if defined(__x86_64__)
    if (vectors_ == detail::vectors::avx512) return detail::hessian_avx512<F>(rows_, p, delta_, matrix);
    if (vectors_ == detail::vectors::avx2) return detail::hessian_avx2<F>(rows_, p, delta_, matrix);
#endif
    detail::hessian_baseline<F>(rows_, p, delta_, matrix);
  }

 private:
  std::span<const row_block<F>> rows_;
  double delta_;
  detail::vectors vectors_;
};

}  // namespace smelt::law
