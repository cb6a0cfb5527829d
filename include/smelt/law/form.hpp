// What is a scaling law to the fit? Named inputs, named coefficients with bounds, a value with its gradient, and where
// to start. Any type that satisfies `Form` can be fitted; the laws of this library have a file each under forms/.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <smelt/law/log_sum_exp.hpp>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

namespace smelt::law {

/// Which numbers an input can be.
enum class domain {
  positive,      ///< x > 0
  at_least_one,  ///< x >= 1
  zero_to_one,   ///< 0 <= x < 1
  any,           ///< every finite number
  not_negative,  ///< x >= 0
};

/// One column of the data.
struct input {
  std::string_view name;  ///< as in the law's equation, and as a column is called
  domain where = domain::positive;
  std::string_view unit = "";  ///< in which the law's coefficients are usually given
  int scale = -1;              ///< inputs of one scale are measured in one unit; -1: a pure number
};

inline constexpr double unbounded = (std::numeric_limits<double>::infinity)();

/// One coefficient. Amplitudes are fitted by their logarithms, which keeps them positive and of one size.
struct coefficient {
  std::string_view name;     ///< as in the law's equation
  bool logarithmic = false;  ///< the fitted number is ln of the named one
  double least = -unbounded;
  double most = unbounded;  ///< of the fitted number
};

/// What is fitted: the logarithm of the observation (losses), or the observation itself (scores).
enum class response {
  logarithm,
  plain,
};

/// What a start may know of the data, all of it independent of the order of rows and, for inputs that have a scale, of
/// their units: see Form.
template <std::size_t Prepared>
struct data_summary {
  std::array<double, Prepared> centre{};  ///< the mean of each prepared input
  std::array<double, Prepared> least{};
  std::array<double, Prepared> most{};
  double least_response = 0;  ///< of ln loss, or of the score
  double mean_response = 0;
  double most_response = 0;
};

namespace detail {

template <class F>
inline constexpr std::size_t input_count = F::inputs.size();
template <class F>
inline constexpr std::size_t coefficient_count = F::coefficients.size();
template <class F>
inline constexpr std::size_t prepared_count =
    std::tuple_size_v<decltype(F::prepare(std::declval<const std::array<double, input_count<F>>&>()))>;
template <class F>
inline constexpr std::size_t start_dimensions = F::start_levels.size();

}  // namespace detail

/// A form's coefficients as fitted (logarithms where so marked), in the order of Form::coefficients.
template <class F>
using coefficients_of = std::array<double, detail::coefficient_count<F>>;

/// One row's inputs, in the order of Form::inputs.
template <class F>
using inputs_of = std::array<double, detail::input_count<F>>;

/// One row's inputs as prepared once before the fit.
template <class F>
using prepared_of = std::array<double, detail::prepared_count<F>>;

/// A law that can be fitted:
///
///     struct my_form {
///       static constexpr std::string_view name = "my-form";
///       static constexpr std::array inputs{input{"D", domain::positive, "tokens", 0}};
///       static constexpr std::array coefficients{coefficient{"E", true}, coefficient{"K", true}, coefficient{"c"}};
///       static constexpr response fitted = response::logarithm;
///       // once a row: whatever of the inputs the law needs, such as logarithms
///       static std::array<double, 1> prepare(const std::array<double, 1>& x) { return {std::log(x[0])}; }
///       // the value (ln L when the response is a logarithm) and its gradient
///       template <class C, class X>
///       static C evaluate(const std::array<C, 3>& p, const std::array<X, 1>& x, std::array<C, 3>& gradient);
///       // a point of the unit cube to a start; the default grid has start_levels points along each side
///       static constexpr std::array start_levels{3, 3};
///       static std::array<double, 3> start(const data_summary<1>& data, const std::array<double, 2>& at);
///       // the coefficients for D multiplied by e^log_factor[0]; not needed where no input has a scale
///       static std::array<double, 3> rescaled(std::array<double, 3> p, const std::array<double, 1>& log_factor);
///     };
///
/// A form that is ln(sum_k e^(m_k p)) may also give its second derivatives, which cost less than those found by jets:
///
///       // sum_k share_k m_k m_k^T, which is the Hessian but for -g g^T: where it is not 0, and what it is there
///       static constexpr std::array curved{triangle_at(0, 0), triangle_at(1, 1), triangle_at(2, 1)};
///       template <class C, class X>
///       static std::array<C, 3> curvature(const std::array<X, 1>& x, const std::array<C, 3>& gradient);
///
/// and a form that is another with its last coefficients fixed may say so, and need not be compiled again:
///
///       using general = my_longer_form;  // takes the same inputs and prepares them alike
///       static constexpr std::array fixed{0.0};
///
/// The fit measures inputs that have a scale in units in which the mean of ln x is 20, whatever units they arrive in:
/// that is what prepare and start see. `evaluate` is compiled for plain doubles, for packs of rows, and (for the
/// Hessian, where there is no `curvature`) for packs with a derivative.
template <class F>
concept Form = requires(const inputs_of<F>& raw, const prepared_of<F>& x, const coefficients_of<F>& p,
                        coefficients_of<F>& gradient, const data_summary<detail::prepared_count<F>>& data,
                        const std::array<double, detail::start_dimensions<F>>& at) {
  { F::name } -> std::convertible_to<std::string_view>;
  { F::inputs[0] } -> std::convertible_to<input>;
  { F::coefficients[0] } -> std::convertible_to<coefficient>;
  { F::fitted } -> std::convertible_to<response>;
  { F::prepare(raw) } -> std::same_as<prepared_of<F>>;
  { F::evaluate(p, x, gradient) } -> std::same_as<double>;
  { F::start_levels[0] } -> std::convertible_to<int>;
  { F::start(data, at) } -> std::same_as<coefficients_of<F>>;
};

namespace detail {

/// How many units of measure the inputs have between them.
template <class F>
inline constexpr std::size_t scale_count = [] {
  int count = 0;
  for (const input& x : F::inputs) count = x.scale >= count ? x.scale + 1 : count;
  return static_cast<std::size_t>(count);
}();

}  // namespace detail

/// The logarithm of a factor for each scale of a form's inputs.
template <class F>
using scales_of = std::array<double, detail::scale_count<F>>;

/// A form whose inputs have units: it knows its coefficients for inputs in other units.
template <class F>
concept ScaledForm =
    Form<F> && detail::scale_count<F> != 0 && requires(const coefficients_of<F>& p, const scales_of<F>& log_factor) {
      { F::rescaled(p, log_factor) } -> std::same_as<coefficients_of<F>>;
    };

/// The coefficients that say of inputs multiplied by e^log_factor what p says of the inputs themselves.
template <Form F>
[[nodiscard]] coefficients_of<F> rescaled(const coefficients_of<F>& p, const scales_of<F>& log_factor) {
  if constexpr (detail::scale_count<F> == 0) {
    return p;
  } else {
    static_assert(ScaledForm<F>, "a form whose inputs have scales must have rescaled(p, log_factor)");
    return F::rescaled(p, log_factor);
  }
}

}  // namespace smelt::law
