// Which angles does a rotary embedding turn by? Cosines and sines by position, computed once.
#pragma once

#include <cmath>
#include <cstdint>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <vector>

namespace smelt::cpu_ops {

/// Cosine and sine of every pair's angle, for positions [0, positions): [positions][cosines, sines][head_dim / 2].
struct rotary_table {
  int base = 0;
  int head_dim = 0;
  std::int64_t positions = 0;
  std::vector<float> values;

  /// Cosines of a position; its sines follow them.
  [[nodiscard]] const float* at(std::int64_t position) const noexcept { return values.data() + position * head_dim; }
};

/// The tables of the rotary embeddings in use.
class rotary_tables {
 public:
  /// The table of a shape, for positions below `positions`.
  [[nodiscard]] const rotary_table& get(const rotary_shape& shape, std::int64_t positions) {
    for (rotary_table& table : tables_) {
      if (table.base == shape.base && table.head_dim == shape.head_dim) {
        extend(table, positions);
        return table;
      }
    }
    tables_.push_back({.base = shape.base, .head_dim = shape.head_dim, .positions = 0, .values = {}});
    extend(tables_.back(), positions);
    return tables_.back();
  }

 private:
  static void extend(rotary_table& table, std::int64_t positions) {
    if (positions <= table.positions) return;
    const std::int64_t half = table.head_dim / 2;
    table.values.resize(static_cast<std::size_t>(positions * table.head_dim));
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(double(table.base), -2.0 * double(i) / double(table.head_dim));
      for (std::int64_t p = table.positions; p < positions; ++p) {
        table.values[p * table.head_dim + i] = static_cast<float>(std::cos(double(p) * frequency));
        table.values[p * table.head_dim + half + i] = static_cast<float>(std::sin(double(p) * frequency));
      }
    }
    table.positions = positions;
  }

  std::vector<rotary_table> tables_;
};

}  // namespace smelt::cpu_ops
