// What is asked of a fit, and what does it answer? Options and results, without what computes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace smelt::law {

/// How a residual is counted.
enum class residual_loss {
  huber,           ///< r^2/2 up to delta, delta (|r| - delta/2) beyond
  least_absolute,  ///< |r|: the limit of Huber's loss / delta for delta -> 0, taken at delta = 1e-8
  least_squares,   ///< r^2/2: the limit for delta -> infinity
};

/// Whether the objective that is reported is a sum or a mean over rows. The fit is the same.
enum class reduction { sum, mean };

/// What a fit is asked for.
struct fit_options {
  residual_loss loss = residual_loss::huber;
  double delta = 1e-3;             ///< of Huber's loss, in units of ln loss (or of the score)
  std::int64_t random_starts = 0;  ///< 0: the form's grid; else so many points drawn in the same box
  std::uint64_t seed = 0;          ///< of random starts
  std::vector<std::pair<std::string, double>> hold{};  ///< coefficients that are not fitted, as named and shown
  std::size_t threads = 0;                             ///< 0: one a core. Results do not depend on it
  reduction report = reduction::sum;                   ///< of the objective shown
  double factor = 1;                                   ///< on the objective shown
};

/// Where a coefficient ended.
enum class coefficient_state { inside, at_least, at_most, held };

/// A minimum other than the best.
struct basin {
  double objective = 0;
  std::vector<double> values;
};

/// A fitted law.
struct fit_result {
  std::string form;
  std::vector<std::string> names;
  std::vector<double> values;  ///< as in the equation: A, not ln A; for inputs in the data's units
  std::vector<double> fitted;  ///< as fitted: ln A
  std::vector<coefficient_state> states;

  residual_loss loss = residual_loss::huber;
  double delta = 0;
  double objective = 0;        ///< the sum
  double shown_objective = 0;  ///< sum or mean, times the factor asked for
  double gradient = 0;         ///< largest part of the sum's gradient, along coefficients that are free
  double rmse_log = 0;         ///< of ln loss (0 for scores)
  double rmse = 0;             ///< of the loss or score
  double r_squared = 0;        ///< of the loss or score
  double mean_absolute_log = 0;
  double condition = 0;  ///< of the Jacobian, inputs centred, columns of length 1
  std::int64_t rows = 0;
  std::int64_t inside_delta = 0;  ///< rows with |r| <= delta

  std::int64_t starts = 0;
  std::int64_t agreeing = 0;  ///< starts that ended within 0.1 % of the best objective
  std::int64_t failed = 0;    ///< starts at which the objective is not finite
  std::optional<basin> next_best;
  std::vector<std::string> warnings;

  /// The value of a coefficient. Throws invalid_argument for a name the form does not have.
  [[nodiscard]] double value(std::string_view name) const {
    for (std::size_t j = 0; j < names.size(); ++j)
      if (names[j] == name) return values[j];
    const std::vector<std::string> nearest = nearest_names(name, names, 1);
    throw error(errc::invalid_argument, form + " has no coefficient '" + std::string(name) + "'" +
                                            (nearest.empty() ? "" : "; did you mean " + nearest.front() + "?"));
  }
};

/// Above this condition some combination of coefficients is not determined by the data.
inline constexpr double condition_limit = 1e4;

/// How well coefficients (in the data's units) describe rows. R^2 is 1 - sum (y - f)^2 / sum (y - mean)^2.
struct fit_errors {
  double rmse_log = 0;
  double rmse = 0;
  double bias = 0;  ///< mean of prediction - observation
  double r_squared = 0;
  double mean_absolute_log = 0;
};

}  // namespace smelt::law
