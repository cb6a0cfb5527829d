// Every law the program knows, fitted: compiled with the build's optimisation.
#include "law_fit.hpp"

#include <algorithm>
#include <cmath>
#include <smelt/law/bootstrap.hpp>

#include "law_catalogue.hpp"

namespace smelt::tool {

law_columns columns_of_law(const std::string& law) {
  law_columns columns;
  with_law(law, [&](auto tag) {
    using form = typename decltype(tag)::form;
    for (const law::input& x : form::inputs) columns.inputs.emplace_back(x.name);
    columns.losses = form::fitted == law::response::logarithm;
  });
  return columns;
}

law_fit_outcome fit_law(const std::string& law, const std::vector<std::vector<double>>& inputs,
                        const std::vector<double>& responses, const law::fit_options& options,
                        const std::optional<law::resampling>& draws, const std::vector<std::size_t>& unit_of_row) {
  law_fit_outcome outcome;
  with_law(law, [&](auto tag) {
    using form = typename decltype(tag)::form;
    std::vector<law::inputs_of<form>> x(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) std::ranges::copy(inputs[i], x[i].begin());
    const law::observations<form> data(x, responses);
    outcome.fit = law::fit<form>(data, options);
    const auto p = law::coefficients_from<form>(outcome.fit);
    for (const auto& row : x) outcome.predictions.push_back(law::predict<form>(p, row));
    if (draws) {
      for (const auto& q : law::bootstrap<form>(data, outcome.fit, *draws, options, unit_of_row).fits)
        outcome.resampled.emplace_back(std::isfinite(q[0]) ? std::vector<double>(q.begin(), q.end())
                                                           : std::vector<double>());
    }
    outcome.fit.form = law;
  });
  return outcome;
}

}  // namespace smelt::tool
