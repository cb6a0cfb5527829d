// Every law the program knows, fitted: compiled with the build's optimisation.
#include "law_fit.hpp"

#include <algorithm>
#include <cmath>
#include <smelt/core/nearest_name.hpp>
#include <smelt/law/bootstrap.hpp>

#include "law_catalogue.hpp"

namespace smelt::tool {

namespace {

law::row_table table_of(const law::form_view& form, const law_rows& rows,
                        law::fit_units units = law::fit_units::centred) {
  std::vector<double> inputs;
  for (const std::vector<double>& row : rows.inputs) inputs.insert(inputs.end(), row.begin(), row.end());
  return {form, std::move(inputs), rows.responses, units};
}

/// The form of the law of that name.
const law::form_view& form_of(const std::string& name) {
  const std::string& wanted = law_called(name).name;
  const law::form_view* found = nullptr;
  for_laws([&](const std::string& law, std::string_view, auto tag) {
    if (law == wanted) found = &law::view_of<typename decltype(tag)::form>();
  });
  return *found;
}

law::coefficient_list coefficients_in(const law::form_view& form, const std::vector<double>& fitted) {
  law::coefficient_list p{};
  if (fitted.size() != form.size()) {
    throw error(errc::mismatch, std::string(form.name) + " has " + std::to_string(form.size()) +
                                    " coefficients, found " + std::to_string(fitted.size()));
  }
  std::ranges::copy(fitted, p.begin());
  return p;
}

}  // namespace

const std::vector<law_description>& known_laws() {
  static const std::vector<law_description> all = [] {
    std::vector<law_description> laws;
    for_laws([&](const std::string& name, std::string_view map, auto tag) {
      using form = typename decltype(tag)::form;
      laws.push_back({name,
                      form::equation,
                      map,
                      {form::inputs.begin(), form::inputs.end()},
                      {form::coefficients.begin(), form::coefficients.end()},
                      form::fitted == law::response::logarithm});
    });
    return laws;
  }();
  return all;
}

const law_description& law_called(const std::string& name) {
  const std::string wanted = name == "looped-moe" ? "looped-moe:bounded-sparsity" : name;
  std::vector<std::string> known;
  for (const law_description& l : known_laws()) {
    if (l.name == wanted) return l;
    known.push_back(l.name);
  }
  throw error(errc::invalid_argument, "there is no law '" + name + "'; did you mean '" +
                                          nearest_names(wanted, known, 1).front() + "'? (see smelt law list)");
}

law::fit_result fit_law(const std::string& name, const law_rows& rows, const law::fit_options& options,
                        const std::vector<std::vector<double>>& starts) {
  const law::form_view& form = form_of(name);
  std::vector<law::coefficient_list> from;
  for (const auto& start : starts) from.push_back(coefficients_in(form, start));
  return law::fit(table_of(form, rows), options, from);
}

std::vector<std::vector<double>> bootstrap_law(const std::string& name, const law_rows& rows,
                                               const law::fit_result& full, const law::fit_options& options,
                                               const law::resampling& draws,
                                               const std::vector<std::size_t>& unit_of_row) {
  const law::form_view& form = form_of(name);
  std::vector<std::vector<double>> all;
  for (const auto& p : law::bootstrap(table_of(form, rows), full, draws, options, unit_of_row)) {
    all.emplace_back();
    if (std::isfinite(p[0])) all.back().assign(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(form.size()));
  }
  return all;
}

std::vector<double> predict_law(const std::string& name, const std::vector<double>& fitted,
                                const std::vector<std::vector<double>>& inputs) {
  const law::form_view& form = form_of(name);
  const law::coefficient_list p = coefficients_in(form, fitted);
  std::vector<double> all;
  for (const std::vector<double>& row : inputs) all.push_back(law::predict(form, p, row));
  return all;
}

law::fit_errors errors_of_law(const std::string& name, const std::vector<double>& fitted, const law_rows& rows) {
  const law::form_view& form = form_of(name);
  return law::errors_of(table_of(form, rows), coefficients_in(form, fitted));
}

std::vector<double> profile_of_law(const std::string& name, const law_rows& rows, const law::fit_result& full,
                                   const law::fit_options& options, std::size_t coefficient,
                                   const std::vector<double>& values, double enough) {
  const law::form_view& form = form_of(name);
  const law::row_table data = table_of(form, rows, law::fit_units::as_given);
  const law::coefficient& held = form.coefficients[coefficient];
  law::coefficient_list start = coefficients_in(form, full.fitted);
  std::vector<double> objectives;
  for (const double value : values) {
    law::fit_options here = options;
    std::erase_if(here.hold, [&](const auto& h) { return h.first == held.name; });
    here.hold.emplace_back(held.name, held.logarithmic ? std::exp(value) : value);
    start[coefficient] = value;
    const law::fit_result r = law::fit(data, here, std::span(&start, 1));
    objectives.push_back(r.objective);
    if (!(r.objective <= enough)) break;
    start = coefficients_in(form, r.fitted);
  }
  return objectives;
}

}  // namespace smelt::tool
