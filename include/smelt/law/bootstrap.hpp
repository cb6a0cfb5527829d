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

/// Refits `full` (made with `options`) to every draw: coefficients as fitted, for the data's units; NaN where the draw
/// failed. unit_of_row[i] is the unit that row i belongs to; empty: each row is a unit. Throws mismatch when units and
/// rows do not fit together.
[[nodiscard]] inline std::vector<coefficient_list> bootstrap(const row_table& data, const fit_result& full,
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
  const form_view& form = data.form();
  const bounds limits = detail::in_fit_units(data, detail::limits_of(form, options));
  const std::size_t free = limits.free();
  coefficient_list start = detail::coefficients_from(form, full);
  data.to_units_around(start.data(), 20);

  coefficient_list none;
  none.fill((std::numeric_limits<double>::quiet_NaN)());
  std::vector<coefficient_list> fits(draws.draws, none);
  for_indices(draws.draws, options.threads, [&] {
    return [&, blocks = std::vector<pack>(), counts = std::vector<double>(data.size()),
            f = objective(form, {}, full.delta)](std::size_t b) mutable {
      std::size_t different = 0;
      for (std::size_t i = 0; i < data.size(); ++i) {
        counts[i] = draws.count(b, unit_of_row.empty() ? i : unit_of_row[i]);
        different += counts[i] > 0 ? 1u : 0u;
      }
      if (different < free) return;
      data.fill(blocks, counts);
      f.set_rows(blocks);
      const solution end = detail::settle(f, limits, start, full.delta, 1);
      if (!std::isfinite(end.value)) return;
      fits[b] = end.p;
      data.to_data_units(fits[b].data());
    };
  });
  return fits;
}
template <Form F>
[[nodiscard]] bootstrap_result<F> bootstrap(const observations<F>& data, const fit_result& full,
                                            const resampling& draws, const fit_options& options = {},
                                            std::span<const std::size_t> unit_of_row = {}) {
  bootstrap_result<F> r;
  for (const coefficient_list& p : bootstrap(data.table(), full, draws, options, unit_of_row)) {
    r.fits.push_back(detail::array_from<detail::coefficient_count<F>>(p.data()));
    r.failed += std::isfinite(p[0]) ? 0 : 1;
  }
  return r;
}

}  // namespace smelt::law
