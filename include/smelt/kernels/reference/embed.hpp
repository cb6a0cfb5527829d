// What is the vector of a token? A row of the table.
#pragma once

#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <span>

namespace smelt::reference_ops {

/// out[T,H] = table[ids[t]]. Throws invalid_argument for an id outside the table before anything is written.
template <std::floating_point Scalar>
void embed(matrix_view<const Scalar> table, std::span<const std::int32_t> ids, matrix_view<Scalar> out) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  check_shape("embed", "table", table, table.rows, table.cols);
  check_shape("embed", "out", out, tokens, table.cols);
  check_ids("embed", "ids", ids, 0, table.rows);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < table.cols; ++h) out(t, h) = table(ids[t], h);
  }
}

/// dtable[V,H] += rows of dout[T,H].
template <std::floating_point Scalar>
void embed_backward(matrix_view<const Scalar> dout, std::span<const std::int32_t> ids, matrix_view<Scalar> dtable) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  check_shape("embed_backward", "dtable", dtable, dtable.rows, dtable.cols);
  check_shape("embed_backward", "dout", dout, tokens, dtable.cols);
  check_ids("embed_backward", "ids", ids, 0, dtable.rows);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < dtable.cols; ++h) dtable(ids[t], h) += dout(t, h);
  }
}

}  // namespace smelt::reference_ops
