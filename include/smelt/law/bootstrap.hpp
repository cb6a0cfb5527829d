// How much do the coefficients move with the rows that happened to be run? The law refitted to every draw of a
// resampling, from the fit to all rows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/law/fit.hpp>
#include <smelt/law/intervals.hpp>
#include <smelt/law/parallel.hpp>
#include <smelt/law/resample.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt::law {

/// One fit a draw. Draws of the same resampling are paired: draw i of one architecture belongs to draw i of another.
template <Form F>
struct bootstrap_result {
  std::vector<coefficients_of<F>> fits;  ///< as fitted, for the data's units; NaN where the draw failed
  std::int64_t failed = 0;  ///< draws with fewer different rows than coefficients to fit, or no finite minimum

  /// A number computed from each fit; NaN where the draw failed or the number is refused.
  template <class Number>
  [[nodiscard]] std::vector<double> map(Number&& number) const {
    std::vector<double> all;
    all.reserve(fits.size());
    for (const coefficients_of<F>& p : fits) {
      double value = (std::numeric_limits<double>::quiet_NaN)();
      try {
        if (std::isfinite(p[0])) value = number(p);
      } catch (const error&) {  // outside of the number's domain in this draw: counted as failed by the interval
        value = (std::numeric_limits<double>::quiet_NaN)();
      }
      all.push_back(value);
    }
    return all;
  }

  /// The interval of one coefficient as written (A, not ln A).
  [[nodiscard]] interval of_coefficient(std::size_t j, double level = 0.95) const {
    return percentile_interval(
        map([j](const coefficients_of<F>& p) { return F::coefficients[j].logarithmic ? std::exp(p[j]) : p[j]; }),
        level);
  }
};

/// Refits `full` (made with `options`) to every draw. unit_of_row[i] is the unit that row i belongs to; empty: each row
/// is a unit. Throws mismatch when units and rows do not fit together.
template <Form F>
[[nodiscard]] bootstrap_result<F> bootstrap(const observations<F>& data, const fit_result& full,
                                            const resampling& draws, const fit_options& options = {},
                                            std::span<const std::size_t> unit_of_row = {}) {
  if (unit_of_row.empty() ? draws.units != data.size() : unit_of_row.size() != data.size()) {
    throw error(errc::mismatch, "a bootstrap needs a unit for each of " + std::to_string(data.size()) +
                                    " rows, found " +
                                    std::to_string(unit_of_row.empty() ? draws.units : unit_of_row.size()));
  }
  for (const std::size_t unit : unit_of_row) {
    if (unit >= draws.units) {
      throw error(errc::mismatch, "units of a bootstrap must be below " + std::to_string(draws.units) + ", found " +
                                      std::to_string(unit));
    }
  }
  const bounds<F> limits = detail::in_fit_units(data, detail::limits_of<F>(options));
  std::size_t free = 0;
  for (std::size_t j = 0; j < limits.least.size(); ++j) free += limits.least[j] < limits.most[j] ? 1u : 0u;
  const coefficients_of<F> start = data.to_fit_units(coefficients_from<F>(full));

  bootstrap_result<F> r;
  coefficients_of<F> none;
  none.fill((std::numeric_limits<double>::quiet_NaN)());
  r.fits.assign(draws.draws, none);
  for_indices(draws.draws, options.threads, [&] {
    return [&, blocks = std::vector<row_block<F>>(), counts = std::vector<double>(data.size())](std::size_t b) mutable {
      std::size_t different = 0;
      for (std::size_t i = 0; i < data.size(); ++i) {
        counts[i] = draws.count(b, unit_of_row.empty() ? i : unit_of_row[i]);
        different += counts[i] > 0 ? 1u : 0u;
      }
      if (different < free) return;
      data.fill(blocks, counts);
      objective<F> f(blocks, full.delta);
      const solution<F> end = detail::settle(f, limits, start, full.delta);
      if (std::isfinite(end.value)) r.fits[b] = data.to_data_units(end.p);
    };
  });
  for (const coefficients_of<F>& p : r.fits) r.failed += std::isfinite(p[0]) ? 0 : 1;
  return r;
}

}  // namespace smelt::law
