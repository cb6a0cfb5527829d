// What does a person or a program read about budgets at run time? The checks' own rows, with names and words.
#pragma once

#include <cstdint>
#include <cstdio>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/compare.hpp>
#include <smelt/core/error.hpp>
#include <smelt/spec/validate.hpp>
#include <string>
#include <vector>

namespace smelt {

/// One row of the table: a budget of the first architecture against the second's.
struct table_row {
  std::string metric;         ///< flops, params or kv_cache
  std::int64_t actual = 0;    ///< the first architecture's figure
  std::int64_t expected = 0;  ///< the second's
  double ratio = 0;           ///< actual / expected
  double tolerance = 0;       ///< allowed |ratio - 1|
  bool ok = false;
  std::string note;  ///< why a row that cannot be counted is not ok; empty otherwise
};

/// The rows of a comparison and the accounting they were counted in.
struct budget_table {
  std::vector<table_row> rows;
  bool ok = false;
  std::string convention;  ///< name of the FLOPs convention
  std::string parameters;  ///< which parameters are compared
};

/// Returns `figure`. Throws errc::overflow when it does not fit in 64 bits, naming `what`.
inline std::int64_t require_fits(std::int64_t figure, const char* what) {
  if (!fits(figure))
    throw error(errc::overflow, std::string("budget: ") + what +
                                    " does not fit in 64 bits (limit 9223372036854775806); shrink the architecture");
  return figure;
}

/// The budgets of `s` at run time. Throws errc::invalid_spec for a spec that cannot exist and errc::overflow for a
/// figure that does not fit.
inline budget_figures require_figures(const spec& s, const accounting& a = {}) {
  const budget_figures f = figures_of(validate(s), a);
  require_fits(f.flops, "flops");
  require_fits(f.params, "params");
  require_fits(f.kv_cache, "kv_cache");
  return f;
}

/// The comparison of `actual` against `expected` as a table. Throws as `require_figures`.
inline budget_table table_of(const spec& actual, const spec& expected, const within& w = {}, const accounting& a = {}) {
  const budget_comparison c = compare(require_figures(actual, a), require_figures(expected, a), w);
  budget_table t;
  t.ok = c.ok;
  t.convention = name_of(a.flops);
  t.parameters = name_of(a.params);
  for (const budget_row* r : {&c.flops, &c.params, &c.kv_cache}) {
    const bool uncovered = r->what == metric::flops && c.gap != coverage_gap::none;
    t.rows.push_back({name_of(r->what), r->actual, r->expected, static_cast<double>(r->ratio()) / 1e6,
                      r->tolerance.as_fraction(), r->ok, uncovered ? describe(c.gap) : ""});
  }
  return t;
}

/// The table as text, one line a budget, numbers aligned.
inline std::string to_text(const budget_table& t) {
  std::string text;
  char line[160];
  std::snprintf(line, sizeof line, "%-10s %20s %20s %9s %9s\n", "budget", "actual", "expected", "ratio", "tolerance");
  text += line;
  for (const table_row& r : t.rows) {
    std::snprintf(line, sizeof line, "%-10s %20lld %20lld %9.4f %8.2f%% %s", r.metric.c_str(),
                  static_cast<long long>(r.actual), static_cast<long long>(r.expected), r.ratio, 100 * r.tolerance,
                  r.ok ? "ok" : "BROKEN");
    text += line;
    if (!r.note.empty()) text += " (" + r.note + ")";
    text += '\n';
  }
  return text + "FLOPs: training, a token, convention '" + t.convention + "'; parameters: " + t.parameters + "\n";
}

}  // namespace smelt
