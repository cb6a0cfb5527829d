// Does a law hold where it was not fitted? A fit to the rows that a filter keeps, judged on the others.
#pragma once

#include <cstddef>
#include <smelt/core/error.hpp>
#include <smelt/law/fit.hpp>
#include <span>
#include <string>

namespace smelt::law {

/// A fit, its errors on the rows it saw and on those it did not.
struct hold_out_result {
  fit_result fit;
  fit_errors kept;
  fit_errors held_out;
  std::size_t rows_held_out = 0;
};

/// Fits to the rows for which keep(row) holds. Throws invalid_argument when none is left to judge by.
template <Form F, class Keep>
[[nodiscard]] hold_out_result fit_holding_out(const observations<F>& data, Keep&& keep, const fit_options& options = {},
                                              std::span<const coefficients_of<F>> starts = {}) {
  const observations<F> seen = data.subset(keep);
  const observations<F> rest = data.subset([&](std::size_t i) { return !keep(i); });
  if (rest.size() == 0)
    throw error(errc::invalid_argument,
                std::string(F::name) + ": a hold-out needs rows that are not fitted, found none");
  hold_out_result r;
  r.fit = fit<F>(seen, options, starts);
  const coefficients_of<F> p = coefficients_from<F>(r.fit);
  r.kept = errors_of(seen, p);
  r.held_out = errors_of(rest, p);
  r.rows_held_out = rest.size();
  return r;
}

}  // namespace smelt::law
