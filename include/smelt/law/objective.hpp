// What is minimised? The Huber loss of the residuals, summed over the rows, with its gradient and its Hessian: eight
// rows at once, nothing allocated, every sum in one fixed order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <smelt/law/form_view.hpp>
#include <smelt/law/instruction_choice.hpp>
#include <smelt/law/pack.hpp>
#include <span>
#include <vector>

namespace smelt::law {

/// The objective at one point.
struct objective_sums {
  double value = 0;           ///< sum_i w_i huber(r_i), huber(r) = r^2/2 inside delta, delta (|r| - delta/2) outside
  coefficient_list gradient;  ///< sum_i w_i psi(r_i) g_i, psi(r) = r limited to [-delta, delta]
};

/// The lower triangle of a symmetric matrix, row by row.
using triangle = std::array<double, triangle_at(most_coefficients, 0)>;

namespace detail {

/// Blocks that are evaluated before they are summed: what they are evaluated to stays close to the processor.
inline constexpr std::size_t blocks_at_once = 8;

/// Sums over blocks that a kernel has evaluated.
struct row_sums {
  const pack* targets;  ///< of the first block: what is fitted, then the weight
  std::size_t row_size;
  const pack* parts;  ///< of the first block: value, gradient, Hessian
  std::size_t part_size;
  std::size_t blocks;
  const form_view& form;
  double delta;
  pack* totals;  ///< value, gradient, triangle
};

enum class curvature_of { none, majorant, hessian };

/// The majorant is sum_i w_i min(1, delta / |r_i|) g_i g_i^T: the quadratic that touches the objective from above, up
/// to the form's own curvature. The Hessian is sum_i w_i (inside_i g_i g_i^T + psi_i d2 f_i).
template <curvature_of Which>
[[gnu::always_inline]] inline void add_body(const row_sums& s) {
  std::array<pack, blocks_at_once> pull;
  std::array<pack, blocks_at_once> weight;
  pack value = s.totals[0];
  for (std::size_t b = 0; b < s.blocks; ++b) {
    const pack& w = s.targets[b * s.row_size + 1];
    const pack residual = s.parts[b * s.part_size] - s.targets[b * s.row_size];
    const pack psi = limited(residual, -s.delta, s.delta);
    pull[b] = psi * w;
    value += pull[b] * (residual - psi * 0.5);
    if constexpr (Which == curvature_of::majorant) {
      // psi / r, which is 1 at r = 0
      weight[b] = choose(abs(residual).v <= pack(s.delta).v, w.v, (pull[b] / residual).v);
    } else if constexpr (Which == curvature_of::hessian) {
      weight[b] = within(residual, s.delta) * w;
      if (s.form.sum_of_powers) weight[b] = weight[b] - pull[b];
    }
  }
  s.totals[0] = value;
  const pack* const slopes = s.parts + 1;
  const std::size_t n = s.form.size();
  pack* out = s.totals + 1;
  for (std::size_t j = 0; j < n; ++j, ++out) {
    pack total = *out;
    for (std::size_t b = 0; b < s.blocks; ++b) total += pull[b] * slopes[b * s.part_size + j];
    *out = total;
  }
  if constexpr (Which != curvature_of::none) {
    pack* const matrix = out;
    for (std::size_t j = 0; j < n; ++j) {
      std::array<pack, blocks_at_once> weighted;
      for (std::size_t b = 0; b < s.blocks; ++b) weighted[b] = weight[b] * slopes[b * s.part_size + j];
      for (std::size_t i = 0; i <= j; ++i, ++out) {
        pack total = *out;
        for (std::size_t b = 0; b < s.blocks; ++b) total += weighted[b] * slopes[b * s.part_size + i];
        *out = total;
      }
    }
    if constexpr (Which == curvature_of::hessian) {
      const pack* second = slopes + n;
      for (const std::size_t at : s.form.curved) {
        pack total = matrix[at];
        for (std::size_t b = 0; b < s.blocks; ++b) total += pull[b] * second[b * s.part_size];
        matrix[at] = total;
        ++second;
      }
    }
  }
}

[[gnu::always_inline]] inline void add_by(const row_sums& s, curvature_of which) {
  if (which == curvature_of::none) return add_body<curvature_of::none>(s);
  if (which == curvature_of::majorant) return add_body<curvature_of::majorant>(s);
  return add_body<curvature_of::hessian>(s);
}

[[gnu::flatten]] inline void add_baseline(const row_sums& s, curvature_of which) {
  add_by(s, which);
}
#if SMELT_LAW_AVX2
[[gnu::target("avx2,fma"), gnu::flatten]] inline void add_avx2(const row_sums& s, curvature_of which) {
  add_by(s, which);
}
#endif
#if SMELT_LAW_AVX512
[[gnu::target("avx2,fma,avx512f,avx512dq,avx512vl"), gnu::flatten]] inline void add_avx512(const row_sums& s,
                                                                                           curvature_of which) {
  add_by(s, which);
}
#endif

inline void add_rows(vectors instructions, const row_sums& s, curvature_of which) {
#if SMELT_LAW_AVX512
  if (instructions == vectors::avx512) return add_avx512(s, which);
#endif
#if SMELT_LAW_AVX2
  if (instructions == vectors::avx2) return add_avx2(s, which);
#endif
  static_cast<void>(instructions);
  add_baseline(s, which);
}

}  // namespace detail

/// The objective over rows as row_table::fill arranges them. The rows are borrowed. One thread uses one objective.
class objective {
 public:
  objective(const form_view& form, std::span<const pack> rows, double delta)
      : form_(&form),
        rows_(rows),
        delta_(delta),
        vectors_(detail::widest_vectors()),
        parts_(detail::blocks_at_once * (1 + form.size() + form.curved.size())),
        totals_(1 + form.size() + form.triangle()) {}

  [[nodiscard]] const form_view& form() const noexcept { return *form_; }
  [[nodiscard]] double delta() const noexcept { return delta_; }
  void set_delta(double delta) noexcept { delta_ = delta; }
  /// Other rows of the same form.
  void set_rows(std::span<const pack> rows) noexcept { rows_ = rows; }

  /// The sum of the rows' weights.
  [[nodiscard]] double weight() const noexcept {
    double sum = 0;
    for (std::size_t b = 0; b < blocks(); ++b) sum += sum_of(rows_[(b + 1) * row_size() - 1]);
    return sum;
  }

  /// Value and gradient.
  void evaluate(const coefficient_list& p, objective_sums& out) { sum(p, out, nullptr, detail::curvature_of::none); }

  /// Value, gradient and the majorant's matrix.
  void with_majorant(const coefficient_list& p, objective_sums& out, triangle& matrix) {
    sum(p, out, matrix.data(), detail::curvature_of::majorant);
  }

  /// Value, gradient and the exact Hessian.
  void with_hessian(const coefficient_list& p, objective_sums& out, triangle& matrix) {
    sum(p, out, matrix.data(), detail::curvature_of::hessian);
  }

  /// The form's value at every row, in blocks' order, and its slopes where asked for: [rows, coefficients].
  void values(const coefficient_list& p, std::vector<double>& value, std::vector<double>* slopes = nullptr) {
    const std::size_t size = 1 + form_->size();
    value.clear();
    if (slopes != nullptr) slopes->clear();
    for (std::size_t b = 0; b < blocks(); ++b) {
      kernel(form_->slopes)(p.data(), rows_.data() + b * row_size(), 1, parts_.data());
      for (std::size_t lane = 0; lane < pack::lanes; ++lane) {
        if (rows_[(b + 1) * row_size() - 1].v[lane] == 0) continue;
        value.push_back(parts_[0].v[lane]);
        for (std::size_t j = 1; slopes != nullptr && j < size; ++j) slopes->push_back(parts_[j].v[lane]);
      }
    }
  }

 private:
  [[nodiscard]] std::size_t row_size() const noexcept { return form_->prepared + 2; }
  [[nodiscard]] std::size_t blocks() const noexcept { return rows_.size() / row_size(); }
  [[nodiscard]] row_kernel kernel(const std::array<row_kernel, 3>& copies) const noexcept {
    return copies[static_cast<std::size_t>(vectors_)];
  }

  void sum(const coefficient_list& p, objective_sums& out, double* matrix, detail::curvature_of which) {
    const std::size_t n = form_->size();
    const bool hessian = which == detail::curvature_of::hessian;
    const std::size_t totals = 1 + n + (which == detail::curvature_of::none ? 0 : form_->triangle());
    for (std::size_t j = 0; j < totals; ++j) totals_[j] = pack(0.0);
    detail::row_sums s{nullptr, row_size(), parts_.data(), 1 + n + (hessian ? form_->curved.size() : 0),
                       0,       *form_,     delta_,        totals_.data()};
    const row_kernel evaluate_rows = kernel(hessian ? form_->curves : form_->slopes);
    for (std::size_t b = 0; b < blocks(); b += detail::blocks_at_once) {
      const pack* const rows = rows_.data() + b * row_size();
      s.blocks = (std::min)(detail::blocks_at_once, blocks() - b);
      s.targets = rows + form_->prepared;
      evaluate_rows(p.data(), rows, s.blocks, parts_.data());
      detail::add_rows(vectors_, s, which);
    }
    out.value = sum_of(totals_[0]);
    for (std::size_t j = 0; j < n; ++j) out.gradient[j] = sum_of(totals_[1 + j]);
    for (std::size_t j = 1 + n; j < totals; ++j) matrix[j - 1 - n] = sum_of(totals_[j]);
  }

  const form_view* form_;
  std::span<const pack> rows_;
  double delta_;
  detail::vectors vectors_;
  std::vector<pack> parts_;
  std::vector<pack> totals_;
};

}  // namespace smelt::law
