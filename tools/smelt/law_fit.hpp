// How does the program fit a law that it knows by name only? Rows in, a result out; the forms are compiled in one file.
#pragma once

#include <optional>
#include <smelt/law/fit.hpp>
#include <smelt/law/resample.hpp>
#include <string>
#include <vector>

namespace smelt::tool {

/// The columns a law reads, in order, and whether it is fitted to losses or to scores.
struct law_columns {
  std::vector<std::string> inputs;
  bool losses = true;
};

/// Throws invalid_argument for a law that does not exist.
[[nodiscard]] law_columns columns_of_law(const std::string& law);

/// What a fit gave.
struct law_fit_outcome {
  law::fit_result fit;
  std::vector<double> predictions;             ///< of the rows, in their order
  std::vector<std::vector<double>> resampled;  ///< coefficients as fitted, a draw each; empty where a draw failed
};

/// Fits a law to rows of its inputs. With `draws`, every draw too; units as in law::bootstrap.
[[nodiscard]] law_fit_outcome fit_law(const std::string& law, const std::vector<std::vector<double>>& inputs,
                                      const std::vector<double>& responses, const law::fit_options& options,
                                      const std::optional<law::resampling>& draws,
                                      const std::vector<std::size_t>& unit_of_row);

}  // namespace smelt::tool
