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
#include <smelt/law/objective.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace smelt::law {

namespace detail {

/// A number as messages show it.
[[nodiscard]] inline std::string shown(double x) {
  std::array<char, 40> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.10g", x);
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

/// The rows of a fit.
template <Form F>
class observations {
 public:
  /// inputs[i] and responses[i] (a loss above 0, or a score) are row i. Throws not_finite or invalid_argument, naming
  /// row, input and value, for what the law cannot take.
  observations(std::vector<inputs_of<F>> inputs, std::vector<double> responses, fit_units units = fit_units::centred)
      : units_(units), inputs_(std::move(inputs)), responses_(std::move(responses)) {
    if (inputs_.size() != responses_.size()) {
      throw error(errc::mismatch, std::string(F::name) + ": as many responses as rows of inputs are needed, found " +
                                      std::to_string(responses_.size()) + " and " + std::to_string(inputs_.size()));
    }
    const std::size_t count = inputs_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::int64_t>(i);
      check_inputs<F>(inputs_[i], row);
      constexpr bool logs = F::fitted == response::logarithm;
      detail::check_input(F::name, {logs ? "loss" : "score", logs ? domain::positive : domain::any}, responses_[i],
                          row);
      fitted_.push_back(logs ? std::log(responses_[i]) : responses_[i]);
    }
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::sort(order_, [&](std::size_t a, std::size_t b) {
      if (inputs_[a] != inputs_[b]) return inputs_[a] < inputs_[b];
      return responses_[a] != responses_[b] ? responses_[a] < responses_[b] : a < b;
    });
    for (std::size_t k = 0; k < detail::scale_count<F>; ++k) {
      const std::size_t j = first_of_scale(k);
      for (const std::size_t i : order_) mean_log_[k] += std::log(inputs_[i][j]) / static_cast<double>(count);
    }
    prepared_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) prepared_.push_back(F::prepare(scaled(inputs_[i], 20)));
  }

  /// The coefficients for the units of the fit, in which the mean of ln x is 20, from those for the units of the data.
  [[nodiscard]] coefficients_of<F> to_fit_units(const coefficients_of<F>& p) const {
    return rescaled<F>(p, factors(20));
  }
  /// And back.
  [[nodiscard]] coefficients_of<F> to_data_units(const coefficients_of<F>& p) const {
    scales_of<F> back = factors(20);
    for (double& f : back) f = -f;
    return rescaled<F>(p, back);
  }

  /// A row in units in which the mean of ln x is `centre`, prepared; and the coefficients for them.
  [[nodiscard]] prepared_of<F> prepared_around(std::size_t row, double centre) const {
    return F::prepare(scaled(inputs_[row], centre));
  }
  [[nodiscard]] coefficients_of<F> to_units_around(const coefficients_of<F>& p, double centre) const {
    return rescaled<F>(p, factors(centre));
  }

  [[nodiscard]] std::size_t size() const noexcept { return inputs_.size(); }
  [[nodiscard]] const inputs_of<F>& inputs(std::size_t row) const { return inputs_[row]; }
  [[nodiscard]] double response_of(std::size_t row) const { return responses_[row]; }
  [[nodiscard]] const prepared_of<F>& prepared(std::size_t row) const { return prepared_[row]; }
  /// The rows in the order of sums.
  [[nodiscard]] std::span<const std::size_t> order() const noexcept { return order_; }
  /// ln loss, or the score
  [[nodiscard]] double fitted(std::size_t row) const { return fitted_[row]; }
  [[nodiscard]] const std::vector<double>& responses() const noexcept { return responses_; }

  /// The rows for the objective. counts[i], where given, is how often row i counts; rows that count 0 times are left
  /// out.
  void fill(std::vector<row_block<F>>& blocks, std::span<const double> counts = {}) const {
    std::size_t used = 0;
    for (const std::size_t i : order_) used += counts.empty() || counts[i] > 0 ? 1u : 0u;
    constexpr std::size_t lanes = pack::lanes;
    blocks.resize((used + lanes - 1) / lanes);
    std::size_t at = 0;
    const auto put = [&](std::size_t row, double weight) {
      row_block<F>& block = blocks[at / lanes];
      const std::size_t lane = at++ % lanes;
      for (std::size_t j = 0; j < block.x.size(); ++j) block.x[j].v[lane] = prepared_[row][j];
      block.y.v[lane] = fitted_[row];
      block.weight.v[lane] = weight;
    };
    std::size_t last = 0;
    for (const std::size_t i : order_) {
      if (!counts.empty() && counts[i] <= 0) continue;
      put(i, counts.empty() ? 1.0 : counts[i]);
      last = i;
    }
    while (at < blocks.size() * lanes) put(last, 0.0);
  }

  [[nodiscard]] std::vector<row_block<F>> blocks(std::span<const double> counts = {}) const {
    std::vector<row_block<F>> all;
    fill(all, counts);
    return all;
  }

  /// Means and extremes, summed in the order of the rows' own.
  [[nodiscard]] data_summary<detail::prepared_count<F>> summary() const {
    data_summary<detail::prepared_count<F>> s;
    if (order_.empty()) return s;
    s.least = s.most = prepared_[order_.front()];
    s.least_response = s.most_response = fitted_[order_.front()];
    for (const std::size_t i : order_) {
      for (std::size_t j = 0; j < s.centre.size(); ++j) {
        s.centre[j] += prepared_[i][j];
        s.least[j] = (std::min)(s.least[j], prepared_[i][j]);
        s.most[j] = (std::max)(s.most[j], prepared_[i][j]);
      }
      s.mean_response += fitted_[i];
      s.least_response = (std::min)(s.least_response, fitted_[i]);
      s.most_response = (std::max)(s.most_response, fitted_[i]);
    }
    for (double& c : s.centre) c /= static_cast<double>(size());
    s.mean_response /= static_cast<double>(size());
    return s;
  }

  /// The rows for which `keep(row)` holds.
  template <class Keep>
  [[nodiscard]] observations subset(Keep&& keep) const {
    std::vector<inputs_of<F>> x;
    std::vector<double> y;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!keep(i)) continue;
      x.push_back(inputs_[i]);
      y.push_back(responses_[i]);
    }
    return {std::move(x), std::move(y)};
  }

 private:
  [[nodiscard]] static std::size_t first_of_scale(std::size_t k) noexcept {
    std::size_t j = 0;
    while (F::inputs[j].scale != static_cast<int>(k)) ++j;
    return j;
  }

  [[nodiscard]] scales_of<F> factors(double centre) const {
    scales_of<F> f{};
    if (units_ == fit_units::as_given) return f;
    for (std::size_t k = 0; k < f.size(); ++k) f[k] = centre - mean_log_[k];
    return f;
  }

  [[nodiscard]] inputs_of<F> scaled(inputs_of<F> x, double centre) const {
    const scales_of<F> f = factors(centre);
    for (std::size_t j = 0; j < x.size(); ++j)
      if (F::inputs[j].scale >= 0) x[j] *= std::exp(f[static_cast<std::size_t>(F::inputs[j].scale)]);
    return x;
  }

  fit_units units_;
  scales_of<F> mean_log_{};
  std::vector<inputs_of<F>> inputs_;
  std::vector<double> responses_;
  std::vector<prepared_of<F>> prepared_;
  std::vector<double> fitted_;
  std::vector<std::size_t> order_;
};

/// What the law says at one row: a loss or a score, in the units of the data. Throws for inputs outside of its domain.
template <Form F>
[[nodiscard]] double predict(const coefficients_of<F>& p, const inputs_of<F>& x) {
  check_inputs<F>(x);
  coefficients_of<F> gradient;
  const double value = F::evaluate(p, F::prepare(x), gradient);
  return F::fitted == response::logarithm ? std::exp(value) : value;
}

}  // namespace smelt::law
