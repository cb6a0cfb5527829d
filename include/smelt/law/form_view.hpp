// What does the fit know of a form? Its names and numbers, and functions over plain arrays: the fit itself is compiled
// once for all forms, and a form brings no more than the loops over rows that compute its value and its derivatives.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <smelt/law/form.hpp>
#include <smelt/law/instruction_choice.hpp>
#include <smelt/law/jet.hpp>
#include <smelt/law/pack.hpp>
#include <span>
#include <string_view>
#include <type_traits>

namespace smelt::law {

/// The most coefficients that a form may have.
inline constexpr std::size_t most_coefficients = 24;

/// Coefficients of any form, as fitted; those past its last are not read.
using coefficient_list = std::array<double, most_coefficients>;

/// A data_summary of any form.
struct summary_view {
  std::span<const double> centre;
  std::span<const double> least;
  std::span<const double> most;
  double least_response = 0;
  double mean_response = 0;
  double most_response = 0;
};

/// Evaluates a form for blocks of eight rows. `rows` holds a block's prepared inputs, then two more packs; `parts` gets
/// a block's value, gradient and, where asked for, second derivatives.
using row_kernel = void (*)(const double* p, const pack* rows, std::size_t blocks, pack* parts);

/// A form, its type forgotten.
struct form_view {
  std::string_view name;
  std::span<const input> inputs;
  std::span<const coefficient> coefficients;
  response fitted = response::logarithm;
  std::size_t prepared = 0;  ///< numbers that a row is prepared to
  std::size_t scales = 0;    ///< units of measure that inputs have between them
  std::span<const int> start_levels;
  bool sum_of_powers = false;  ///< the Hessian costs little more than the gradient: it is what `curves` finds - g g^T
  std::span<const std::size_t> curved;  ///< places of the lower triangle that `curves` finds

  void (*prepare)(const double* x, double* prepared) = nullptr;
  void (*rescale)(double* p, const double* log_factor) = nullptr;  ///< in place
  void (*start)(const summary_view& data, const double* at, double* p) = nullptr;
  std::array<row_kernel, 3> slopes{};  ///< value and gradient, by detail::vectors
  std::array<row_kernel, 3> curves{};  ///< and second derivatives

  [[nodiscard]] constexpr std::size_t size() const noexcept { return coefficients.size(); }
  [[nodiscard]] constexpr std::size_t triangle() const noexcept { return size() * (size() + 1) / 2; }
};

namespace detail {

template <class F>
concept SumOfPowers = requires { F::curved.size(); };

/// The places of the lower triangle that a form's loop finds the curvature at: all, but for a sum of powers.
template <class F>
inline constexpr auto curved_of = [] {
  if constexpr (SumOfPowers<F>) {
    return F::curved;
  } else {
    std::array<std::size_t, triangle_at(coefficient_count<F>, 0)> all{};
    for (std::size_t j = 0; j < all.size(); ++j) all[j] = j;
    return all;
  }
}();

template <Form F>
[[gnu::always_inline]] inline std::array<pack, prepared_count<F>> inputs_at(const pack* row) noexcept {
  std::array<pack, prepared_count<F>> x;
  for (std::size_t j = 0; j < x.size(); ++j) x[j] = row[j];
  return x;
}

template <Form F>
[[gnu::always_inline]] inline void slopes_body(const double* p, const pack* rows, std::size_t blocks, pack* parts) {
  constexpr std::size_t n = coefficient_count<F>;
  std::array<pack, n> c;
  for (std::size_t j = 0; j < n; ++j) c[j] = pack(p[j]);
  for (std::size_t b = 0; b < blocks; ++b, rows += prepared_count<F> + 2, parts += 1 + n) {
    std::array<pack, n> slope;
    parts[0] = F::evaluate(c, inputs_at<F>(rows), slope);
    for (std::size_t j = 0; j < n; ++j) parts[1 + j] = slope[j];
  }
}

template <Form F>
[[gnu::always_inline]] inline void curves_body(const double* p, const pack* rows, std::size_t blocks, pack* parts) {
  constexpr std::size_t n = coefficient_count<F>;
  constexpr std::size_t row_size = prepared_count<F> + 2;
  constexpr std::size_t part_size = 1 + n + curved_of<F>.size();
  if constexpr (SumOfPowers<F>) {
    std::array<pack, n> c;
    for (std::size_t j = 0; j < n; ++j) c[j] = pack(p[j]);
    for (std::size_t b = 0; b < blocks; ++b, rows += row_size, parts += part_size) {
      const std::array<pack, prepared_count<F>> x = inputs_at<F>(rows);
      std::array<pack, n> slope;
      parts[0] = F::evaluate(c, x, slope);
      for (std::size_t j = 0; j < n; ++j) parts[1 + j] = slope[j];
      const std::array<pack, curved_of<F>.size()> second = F::curvature(x, slope);
      for (std::size_t j = 0; j < second.size(); ++j) parts[1 + n + j] = second[j];
    }
  } else {
    // a column of the Hessian at a time
    std::array<jet, n> c;
    for (std::size_t j = 0; j < n; ++j) c[j] = jet(p[j]);
    for (std::size_t i = 0; i < n; ++i) {
      c[i].d = pack(1.0);
      for (std::size_t b = 0; b < blocks; ++b) {
        std::array<jet, n> slope;
        pack* const part = parts + b * part_size;
        part[0] = F::evaluate(c, inputs_at<F>(rows + b * row_size), slope).v;
        for (std::size_t j = 0; j < n; ++j) part[1 + j] = slope[j].v;
        for (std::size_t j = i; j < n; ++j) part[1 + n + triangle_at(j, i)] = slope[j].d;
      }
      c[i].d = pack(0.0);
    }
  }
}

// One copy an instruction set. A copy takes everything it calls into itself, forms included, so that they too are
// compiled for its vectors.
#define SMELT_LAW_COPIES(suffix, ...)                                                                    \
  template <Form F>                                                                                      \
  __VA_ARGS__ void slopes_##suffix(const double* p, const pack* rows, std::size_t blocks, pack* parts) { \
    slopes_body<F>(p, rows, blocks, parts);                                                              \
  }                                                                                                      \
  template <Form F>                                                                                      \
  __VA_ARGS__ void curves_##suffix(const double* p, const pack* rows, std::size_t blocks, pack* parts) { \
    curves_body<F>(p, rows, blocks, parts);                                                              \
  }
SMELT_LAW_COPIES(baseline, [[gnu::flatten]])
#if SMELT_LAW_AVX2
SMELT_LAW_COPIES(avx2, [[gnu::target("avx2,fma"), gnu::flatten]])
#endif
#if SMELT_LAW_AVX512
SMELT_LAW_COPIES(avx512, [[gnu::target("avx2,fma,avx512f,avx512dq,avx512vl"), gnu::flatten]])
#endif
#undef SMELT_LAW_COPIES

template <std::size_t N>
[[nodiscard]] std::array<double, N> array_from(const double* x) noexcept {
  std::array<double, N> all;
  std::copy_n(x, N, all.data());
  return all;
}

template <Form F>
void prepare_row(const double* x, double* prepared) {
  const prepared_of<F> all = F::prepare(array_from<input_count<F>>(x));
  std::copy_n(all.data(), all.size(), prepared);
}

template <Form F>
void rescale_in_place(double* p, const double* log_factor) {
  const coefficients_of<F> moved =
      rescaled<F>(array_from<coefficient_count<F>>(p), array_from<scale_count<F>>(log_factor));
  std::copy_n(moved.data(), moved.size(), p);
}

template <std::size_t Prepared>
[[nodiscard]] data_summary<Prepared> summary_from(const summary_view& data) noexcept {
  return {array_from<Prepared>(data.centre.data()),
          array_from<Prepared>(data.least.data()),
          array_from<Prepared>(data.most.data()),
          data.least_response,
          data.mean_response,
          data.most_response};
}

template <Form F>
void start_at(const summary_view& data, const double* at, double* p) {
  const coefficients_of<F> all = F::start(summary_from<prepared_count<F>>(data), array_from<start_dimensions<F>>(at));
  std::copy_n(all.data(), all.size(), p);
}

/// A form that is another one with its last coefficients fixed.
template <class F>
concept FixesAnother = requires {
  typename F::general;
  F::fixed.size();
} && !std::is_same_v<F, typename F::general>;

template <Form F, vectors Instructions, bool Curves>
[[nodiscard]] constexpr row_kernel kernel_of() noexcept;

/// Its loops over rows are the other's.
template <Form F, vectors Instructions, bool Curves>
void by_the_general(const double* p, const pack* rows, std::size_t blocks, pack* parts) {
  constexpr std::size_t n = coefficient_count<F>;
  constexpr std::size_t all = coefficient_count<typename F::general>;
  static_assert(!SumOfPowers<typename F::general> && n + F::fixed.size() == all &&
                prepared_count<F> == prepared_count<typename F::general>);
  std::array<double, all> q;
  std::copy_n(p, n, q.data());
  std::copy_n(F::fixed.data(), F::fixed.size(), q.data() + n);
  std::array<pack, 1 + all + (Curves ? triangle_at(all, 0) : 0)> part;
  for (std::size_t b = 0; b < blocks; ++b, rows += prepared_count<F> + 2) {
    kernel_of<typename F::general, Instructions, Curves>()(q.data(), rows, 1, part.data());
    parts = std::copy_n(part.data(), 1 + n, parts);
    if constexpr (Curves) parts = std::copy_n(part.data() + 1 + all, triangle_at(n, 0), parts);
  }
}

template <Form F, vectors Instructions, bool Curves>
constexpr row_kernel kernel_of() noexcept {
  if constexpr (FixesAnother<F>) return by_the_general<F, Instructions, Curves>;
#if SMELT_LAW_AVX2
  else if constexpr (Instructions == vectors::avx2)
    return Curves ? curves_avx2<F> : slopes_avx2<F>;
#endif
#if SMELT_LAW_AVX512
  else if constexpr (Instructions == vectors::avx512)
    return Curves ? curves_avx512<F> : slopes_avx512<F>;
#endif
  else
    return Curves ? curves_baseline<F> : slopes_baseline<F>;
}

template <Form F, bool Curves>
inline constexpr std::array<row_kernel, 3> kernels_of{kernel_of<F, vectors::baseline, Curves>(),
                                                      kernel_of<F, vectors::avx2, Curves>(),
                                                      kernel_of<F, vectors::avx512, Curves>()};

template <Form F>
inline constexpr form_view view_of_form{
    F::name,
    F::inputs,
    F::coefficients,
    F::fitted,
    prepared_count<F>,
    scale_count<F>,
    F::start_levels,
    SumOfPowers<F>,
    curved_of<F>,
    prepare_row<F>,
    rescale_in_place<F>,
    start_at<F>,
    kernels_of<F, false>,
    kernels_of<F, true>,
};

}  // namespace detail

/// The form as the fit sees it.
template <Form F>
[[nodiscard]] constexpr const form_view& view_of() noexcept {
  static_assert(detail::coefficient_count<F> <= most_coefficients, "a form has too many coefficients for the fit");
  return detail::view_of_form<F>;
}

}  // namespace smelt::law
