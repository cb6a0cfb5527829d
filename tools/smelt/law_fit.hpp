// How does the program use a law that it knows by name only? Rows in, results out; the forms are compiled in one file.
#pragma once

#include <cstddef>
#include <optional>
#include <smelt/law/fit_result.hpp>
#include <smelt/law/form.hpp>
#include <smelt/law/resample.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace smelt::tool {

/// What there is to know of a law before it is fitted.
struct law_description {
  std::string name;
  std::string_view equation;
  std::string_view map;  ///< of the visits, for laws that have one
  std::vector<law::input> inputs;
  std::vector<law::coefficient> coefficients;
  bool losses = true;  ///< fitted to losses, or else to scores
};

/// Every law, in the order in which they are listed.
[[nodiscard]] const std::vector<law_description>& known_laws();

/// The law of that name; "looped-moe" alone is its bounded map with the sparsity exponent. Throws invalid_argument,
/// with the nearest name, for one that does not exist.
[[nodiscard]] const law_description& law_called(const std::string& name);

/// Rows of runs: inputs in the law's order, and a loss or score each.
struct law_rows {
  std::vector<std::vector<double>> inputs;
  std::vector<double> responses;
};

/// Fits a law; `starts`, where given, in place of its own: coefficients as fitted.
[[nodiscard]] law::fit_result fit_law(const std::string& name, const law_rows& rows, const law::fit_options& options,
                                      const std::vector<std::vector<double>>& starts = {});

/// The coefficients as fitted to every draw, from `full`; empty where a draw failed. Units as in law::bootstrap.
[[nodiscard]] std::vector<std::vector<double>> bootstrap_law(const std::string& name, const law_rows& rows,
                                                             const law::fit_result& full,
                                                             const law::fit_options& options,
                                                             const law::resampling& draws,
                                                             const std::vector<std::size_t>& unit_of_row);

/// What the law says at inputs, for coefficients as fitted. Throws for inputs outside of its domain.
[[nodiscard]] std::vector<double> predict_law(const std::string& name, const std::vector<double>& fitted,
                                              const std::vector<std::vector<double>>& inputs);

/// How well coefficients as fitted describe rows.
[[nodiscard]] law::fit_errors errors_of_law(const std::string& name, const std::vector<double>& fitted,
                                            const law_rows& rows);

/// The least objective with one coefficient held at each of the values (as fitted) and the others fitted again, each
/// from its neighbour's: the values must rise or fall away from the fit's. Ends behind the first above `enough`.
[[nodiscard]] std::vector<double> profile_of_law(const std::string& name, const law_rows& rows,
                                                 const law::fit_result& full, const law::fit_options& options,
                                                 std::size_t coefficient, const std::vector<double>& values,
                                                 double enough);

}  // namespace smelt::tool
