// Which rows is a law fitted to? Checked, prepared once, and put in an order of their own, so that neither the order in
// which rows arrive nor the number of threads changes any digit of a fit.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <smelt/core/error.hpp>
#include <smelt/law/form.hpp>
#include <smelt/law/form_view.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace smelt::law {

namespace detail {

/// A number as messages show it, to so many significant digits.
[[nodiscard]] inline std::string shown(double x, int digits = 10) {
  std::array<char, 40> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.*g", digits, x);
  return {text.data(), static_cast<std::size_t>(length)};
}

[[nodiscard]] inline bool lies_in(double x, domain where) noexcept {
  switch (where) {
    case domain::positive:
      return x > 0;
    case domain::not_negative:
      return x >= 0;
    case domain::at_least_one:
      return x >= 1;
    case domain::zero_to_one:
      return x >= 0 && x < 1;
    case domain::any:
      return true;
  }
  return false;
}

[[nodiscard]] inline std::string_view words_for(domain where) noexcept {
  switch (where) {
    case domain::positive:
      return "above 0";
    case domain::not_negative:
      return "at least 0";
    case domain::at_least_one:
      return "at least 1";
    case domain::zero_to_one:
      return "at least 0 and below 1";
    case domain::any:
      return "a number";
  }
  return "";
}

inline void check_input(std::string_view law, const input& column, double value, std::int64_t row) {
  const auto found = [&] {
    return std::string(law) + ": input " + std::string(column.name) +
           (row < 0 ? "" : " of row " + std::to_string(row)) + " must be " + std::string(words_for(column.where)) +
           ", found " + shown(value);
  };
  if (!std::isfinite(value)) throw error(errc::not_finite, found());
  if (!lies_in(value, column.where)) throw error(errc::invalid_argument, found());
}

template <std::size_t N>
[[nodiscard]] std::vector<double> flat(const std::vector<std::array<double, N>>& rows) {
  std::vector<double> all;
  all.reserve(rows.size() * N);
  for (const std::array<double, N>& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace detail

/// Throws invalid_argument or not_finite, naming the input, when a law is asked outside of its domain.
template <Form F>
void check_inputs(const inputs_of<F>& x, std::int64_t row = -1) {
  for (std::size_t j = 0; j < x.size(); ++j) detail::check_input(F::name, F::inputs[j], x[j], row);
}

/// The units in which a fit sees inputs that have a scale.
enum class fit_units {
  centred,   ///< the mean of ln x is 20: the fit does not depend on the data's units
  as_given,  ///< those of the data: an amplitude can be held while the exponent that belongs to it is fitted
};

/// The rows of a fit of any form.
class row_table {
 public:
  /// `inputs` are [rows, form.inputs], responses (losses above 0, or scores) one a row. Throws not_finite or
  /// invalid_argument, naming row, input and value, for what the law cannot take.
  row_table(const form_view& form, std::vector<double> inputs, std::vector<double> responses,
            fit_units units = fit_units::centred)
      : form_(&form), units_(units), inputs_(std::move(inputs)), responses_(std::move(responses)) {
    const std::size_t width = form.inputs.size();
    if (inputs_.size() != responses_.size() * width) {
      throw error(errc::mismatch, std::string(form.name) + ": as many responses as rows of inputs are needed, found " +
                                      std::to_string(responses_.size()) + " and " +
                                      std::to_string(inputs_.size() / width));
    }
    const std::size_t count = responses_.size();
    const bool logs = form.fitted == response::logarithm;
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::int64_t>(i);
      for (std::size_t j = 0; j < width; ++j) detail::check_input(form.name, form.inputs[j], input_at(i, j), row);
      detail::check_input(form.name, {logs ? "loss" : "score", logs ? domain::positive : domain::any}, responses_[i],
                          row);
      fitted_.push_back(logs ? std::log(responses_[i]) : responses_[i]);
    }
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      for (std::size_t j = 0; j < width; ++j)
        if (input_at(a, j) != input_at(b, j)) return input_at(a, j) < input_at(b, j);
      return responses_[a] != responses_[b] ? responses_[a] < responses_[b] : a < b;
    });
    for (std::size_t k = 0; k < form.scales; ++k) {
      std::size_t j = 0;
      while (form.inputs[j].scale != static_cast<int>(k)) ++j;
      mean_log_.push_back(0);
      for (const std::size_t i : order_) mean_log_[k] += std::log(input_at(i, j)) / static_cast<double>(count);
    }
    prepared_.resize(count * form.prepared);
    for (std::size_t i = 0; i < count; ++i) prepare(i, 20, prepared_.data() + i * form.prepared);
  }

  [[nodiscard]] const form_view& form() const noexcept { return *form_; }
  [[nodiscard]] std::size_t size() const noexcept { return responses_.size(); }
  [[nodiscard]] std::span<const double> inputs_at(std::size_t row) const {
    return std::span(inputs_).subspan(row * form_->inputs.size(), form_->inputs.size());
  }
  [[nodiscard]] std::span<const double> prepared_at(std::size_t row) const {
    return std::span(prepared_).subspan(row * form_->prepared, form_->prepared);
  }
  [[nodiscard]] double response_of(std::size_t row) const { return responses_[row]; }
  [[nodiscard]] const std::vector<double>& responses() const noexcept { return responses_; }
  /// ln loss, or the score
  [[nodiscard]] double fitted(std::size_t row) const { return fitted_[row]; }
  /// The rows in the order of sums.
  [[nodiscard]] std::span<const std::size_t> order() const noexcept { return order_; }

  /// In place: coefficients for the units of the data become those for units in which the mean of ln x is `centre` (20:
  /// the units of the fit), and back.
  void to_units_around(double* p, double centre) const { move(p, centre, 1); }
  void to_data_units(double* p) const { move(p, 20, -1); }

  /// The rows for the objective, in blocks of eight: prepared inputs, what is fitted, how often the row counts.
  /// counts[i], where given, is how often row i counts; rows that count 0 times are left out. Inputs are measured in
  /// units in which the mean of ln x is `centre`.
  void fill(std::vector<pack>& blocks, std::span<const double> counts = {}, double centre = 20) const {
    constexpr std::size_t lanes = pack::lanes;
    const std::size_t width = form_->prepared;
    std::size_t used = 0;
    for (const std::size_t i : order_) used += counts.empty() || counts[i] > 0 ? 1u : 0u;
    blocks.resize((used + lanes - 1) / lanes * (width + 2));
    std::vector<double> elsewhere(centre == 20 ? 0 : width);
    std::size_t at = 0;
    const auto put = [&](std::size_t row, double weight) {
      pack* const block = blocks.data() + at / lanes * (width + 2);
      const std::size_t lane = at++ % lanes;
      const double* x = prepared_.data() + row * width;
      if (!elsewhere.empty()) {
        prepare(row, centre, elsewhere.data());
        x = elsewhere.data();
      }
      for (std::size_t j = 0; j < width; ++j) block[j].v[lane] = x[j];
      block[width].v[lane] = fitted_[row];
      block[width + 1].v[lane] = weight;
    };
    std::size_t last = 0;
    for (const std::size_t i : order_) {
      if (!counts.empty() && counts[i] <= 0) continue;
      put(i, counts.empty() ? 1.0 : counts[i]);
      last = i;
    }
    while (at % lanes != 0) put(last, 0.0);
  }

  /// Means and extremes of prepared inputs, summed in the order of the rows' own: [centre, least, most].
  [[nodiscard]] std::vector<double> extremes() const {
    const std::size_t width = form_->prepared;
    std::vector<double> s(3 * width, 0.0);
    for (std::size_t k = 0; k < size(); ++k) {
      const double* x = prepared_.data() + order_[k] * width;
      for (std::size_t j = 0; j < width; ++j) {
        s[j] += x[j];
        s[width + j] = k == 0 ? x[j] : (std::min)(s[width + j], x[j]);
        s[2 * width + j] = k == 0 ? x[j] : (std::max)(s[2 * width + j], x[j]);
      }
    }
    for (std::size_t j = 0; j < width && size() > 0; ++j) s[j] /= static_cast<double>(size());
    return s;
  }

  /// What a start may know. `extremes` must outlive it.
  [[nodiscard]] summary_view summary(std::span<const double> extremes) const {
    const std::size_t width = form_->prepared;
    summary_view s{extremes.first(width), extremes.subspan(width, width), extremes.last(width)};
    for (std::size_t k = 0; k < size(); ++k) {
      const double y = fitted_[order_[k]];
      s.mean_response += y;
      s.least_response = k == 0 ? y : (std::min)(s.least_response, y);
      s.most_response = k == 0 ? y : (std::max)(s.most_response, y);
    }
    if (size() > 0) s.mean_response /= static_cast<double>(size());
    return s;
  }

 private:
  [[nodiscard]] double input_at(std::size_t row, std::size_t j) const {
    return inputs_[row * form_->inputs.size() + j];
  }

  [[nodiscard]] std::vector<double> factors(double centre) const {
    std::vector<double> f(form_->scales, 0.0);
    for (std::size_t k = 0; k < f.size() && units_ == fit_units::centred; ++k) f[k] = centre - mean_log_[k];
    return f;
  }

  void move(double* p, double centre, double sign) const {
    std::vector<double> f = factors(centre);
    for (double& x : f) x *= sign;
    form_->rescale(p, f.data());
  }

  void prepare(std::size_t row, double centre, double* prepared) const {
    const std::vector<double> f = factors(centre);
    std::vector<double> x(inputs_at(row).begin(), inputs_at(row).end());
    for (std::size_t j = 0; j < x.size(); ++j)
      if (form_->inputs[j].scale >= 0) x[j] *= std::exp(f[static_cast<std::size_t>(form_->inputs[j].scale)]);
    form_->prepare(x.data(), prepared);
  }

  const form_view* form_;
  fit_units units_;
  std::vector<double> inputs_;
  std::vector<double> responses_;
  std::vector<double> mean_log_;
  std::vector<double> prepared_;
  std::vector<double> fitted_;
  std::vector<std::size_t> order_;
};

/// The rows of a fit of one form.
template <Form F>
class observations {
 public:
  /// inputs[i] and responses[i] (a loss above 0, or a score) are row i. Throws not_finite or invalid_argument, naming
  /// row, input and value, for what the law cannot take.
  observations(const std::vector<inputs_of<F>>& inputs, std::vector<double> responses,
               fit_units units = fit_units::centred)
      : table_(view_of<F>(), detail::flat(inputs), std::move(responses), units) {}

  [[nodiscard]] const row_table& table() const noexcept { return table_; }
  [[nodiscard]] std::size_t size() const noexcept { return table_.size(); }
  [[nodiscard]] inputs_of<F> inputs(std::size_t row) const {
    return detail::array_from<detail::input_count<F>>(table_.inputs_at(row).data());
  }
  [[nodiscard]] double response_of(std::size_t row) const { return table_.response_of(row); }
  [[nodiscard]] const std::vector<double>& responses() const noexcept { return table_.responses(); }
  /// ln loss, or the score
  [[nodiscard]] double fitted(std::size_t row) const { return table_.fitted(row); }

  /// A row as the fit sees it, and the coefficients for the fit's units, in which the mean of ln x is 20, from those
  /// for the units of the data.
  [[nodiscard]] prepared_of<F> prepared(std::size_t row) const {
    return detail::array_from<detail::prepared_count<F>>(table_.prepared_at(row).data());
  }
  [[nodiscard]] coefficients_of<F> to_fit_units(coefficients_of<F> p) const {
    table_.to_units_around(p.data(), 20);
    return p;
  }

  /// What a start may know of the rows.
  [[nodiscard]] data_summary<detail::prepared_count<F>> summary() const {
    const std::vector<double> extremes = table_.extremes();
    return detail::summary_from<detail::prepared_count<F>>(table_.summary(extremes));
  }

  /// The rows for which `keep(row)` holds.
  template <class Keep>
  [[nodiscard]] observations subset(Keep&& keep) const {
    std::vector<inputs_of<F>> x;
    std::vector<double> y;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!keep(i)) continue;
      x.push_back(inputs(i));
      y.push_back(response_of(i));
    }
    return {x, std::move(y)};
  }

 private:
  row_table table_;
};

/// Coefficients as fitted (ln A) from coefficients as written (A), and back. Throws invalid_argument for an amplitude
/// that is not above 0.
template <Form F>
[[nodiscard]] coefficients_of<F> fitted_from_values(coefficients_of<F> values) {
  for (std::size_t j = 0; j < values.size(); ++j) {
    if (!F::coefficients[j].logarithmic) continue;
    if (!(values[j] > 0)) {
      throw error(errc::invalid_argument, std::string(F::name) + ": coefficient " +
                                              std::string(F::coefficients[j].name) + " must be above 0, found " +
                                              detail::shown(values[j]));
    }
    values[j] = std::log(values[j]);
  }
  return values;
}
template <Form F>
[[nodiscard]] coefficients_of<F> values_from_fitted(coefficients_of<F> p) {
  for (std::size_t j = 0; j < p.size(); ++j)
    if (F::coefficients[j].logarithmic) p[j] = std::exp(p[j]);
  return p;
}

/// What the law says at one row: a loss or a score, in the units of the data. Throws for inputs outside of its domain.
template <Form F>
[[nodiscard]] double predict(const coefficients_of<F>& p, const inputs_of<F>& x) {
  check_inputs<F>(x);
  coefficients_of<F> gradient;
  const double value = F::evaluate(p, F::prepare(x), gradient);
  return F::fitted == response::logarithm ? std::exp(value) : value;
}

/// The same of a form whose type is not known: `p` as fitted and `x` have the form's numbers of coefficients and
/// inputs.
[[nodiscard]] inline double predict(const form_view& form, const coefficient_list& p, std::span<const double> x) {
  if (x.size() != form.inputs.size()) {
    throw error(errc::mismatch, std::string(form.name) + " takes " + std::to_string(form.inputs.size()) +
                                    " inputs, found " + std::to_string(x.size()));
  }
  for (std::size_t j = 0; j < x.size(); ++j) detail::check_input(form.name, form.inputs[j], x[j], -1);
  std::vector<double> prepared(form.prepared);
  form.prepare(x.data(), prepared.data());
  std::vector<pack> row(prepared.begin(), prepared.end());
  row.resize(form.prepared + 2, pack(0.0));
  std::vector<pack> parts(1 + form.size());
  form.slopes[0](p.data(), row.data(), 1, parts.data());
  return form.fitted == response::logarithm ? std::exp(parts[0].v[0]) : parts[0].v[0];
}

}  // namespace smelt::law
