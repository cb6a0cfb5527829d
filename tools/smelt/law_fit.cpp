// Every law the program knows, fitted: compiled with the build's optimisation.
#include "law_fit.hpp"

#include <algorithm>
#include <cmath>
#include <smelt/core/nearest_name.hpp>
#include <smelt/law/bootstrap.hpp>

#include "law_catalogue.hpp"

namespace smelt::tool {

namespace {

template <class F>
law::observations<F> observations_of(const law_rows& rows, law::fit_units units = law::fit_units::centred) {
  std::vector<law::inputs_of<F>> x(rows.inputs.size());
  for (std::size_t i = 0; i < x.size(); ++i) std::ranges::copy(rows.inputs[i], x[i].begin());
  return {std::move(x), rows.responses, units};
}

/// Calls use(tag of the form) for the law of that name.
template <class Use>
void with_law(const std::string& name, Use&& use) {
  const std::string& wanted = law_called(name).name;
  for_laws([&](const std::string& law, std::string_view, auto tag) {
    if (law == wanted) use(tag);
  });
}

template <class F>
law::coefficients_of<F> coefficients_in(const std::vector<double>& fitted) {
  law::coefficients_of<F> p{};
  if (fitted.size() != p.size()) {
    throw error(errc::mismatch, std::string(F::name) + " has " + std::to_string(p.size()) + " coefficients, found " +
                                    std::to_string(fitted.size()));
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
  law::fit_result fitted;
  with_law(name, [&](auto tag) {
    using form = typename decltype(tag)::form;
    std::vector<law::coefficients_of<form>> from;
    for (const auto& start : starts) from.push_back(coefficients_in<form>(start));
    fitted = law::fit<form>(observations_of<form>(rows), options, from);
  });
  return fitted;
}

std::vector<std::vector<double>> bootstrap_law(const std::string& name, const law_rows& rows,
                                               const law::fit_result& full, const law::fit_options& options,
                                               const law::resampling& draws,
                                               const std::vector<std::size_t>& unit_of_row) {
  std::vector<std::vector<double>> all;
  with_law(name, [&](auto tag) {
    using form = typename decltype(tag)::form;
    for (const auto& p : law::bootstrap<form>(observations_of<form>(rows), full, draws, options, unit_of_row).fits)
      all.push_back(std::isfinite(p[0]) ? std::vector<double>(p.begin(), p.end()) : std::vector<double>());
  });
  return all;
}

std::vector<double> predict_law(const std::string& name, const std::vector<double>& fitted,
                                const std::vector<std::vector<double>>& inputs) {
  std::vector<double> all;
  with_law(name, [&](auto tag) {
    using form = typename decltype(tag)::form;
    const auto p = coefficients_in<form>(fitted);
    for (const std::vector<double>& row : inputs) {
      law::inputs_of<form> x{};
      std::ranges::copy(row, x.begin());
      all.push_back(law::predict<form>(p, x));
    }
  });
  return all;
}

law::fit_errors errors_of_law(const std::string& name, const std::vector<double>& fitted, const law_rows& rows) {
  law::fit_errors errors;
  with_law(name, [&](auto tag) {
    using form = typename decltype(tag)::form;
    errors = law::errors_of(observations_of<form>(rows), coefficients_in<form>(fitted));
  });
  return errors;
}

std::vector<double> profile_of_law(const std::string& name, const law_rows& rows, const law::fit_result& full,
                                   law::fit_options options, std::size_t coefficient, const std::vector<double>& values,
                                   double enough) {
  std::vector<double> objectives;
  with_law(name, [&](auto tag) {
    using form = typename decltype(tag)::form;
    const auto data = observations_of<form>(rows, law::fit_units::as_given);
    const law::coefficient& held = form::coefficients[coefficient];
    auto start = coefficients_in<form>(full.fitted);
    for (const double value : values) {
      law::fit_options here = options;
      std::erase_if(here.hold, [&](const auto& h) { return h.first == held.name; });
      here.hold.emplace_back(held.name, held.logarithmic ? std::exp(value) : value);
      start[coefficient] = value;
      const law::fit_result r = law::fit<form>(data, here, std::span(&start, 1));
      objectives.push_back(r.objective);
      if (!(r.objective <= enough)) break;
      start = law::coefficients_from<form>(r);
    }
  });
  return objectives;
}

}  // namespace smelt::tool
