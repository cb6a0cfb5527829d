// How does a sublayer's output enter the residual stream? Times its visit's coefficient.
#pragma once

#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/cpu/context.hpp>
#include <smelt/kernels/cpu/simd.hpp>
#include <smelt/kernels/policy/cpu_tasks.hpp>

namespace smelt::cpu_ops {

/// target += scale * source.
template <class Executor>
void add_scaled(context<Executor>& c, double scale, matrix_view<const float> source, matrix_view<float> target) {
  check_shape("add_scaled", "target", target, source.rows, source.cols);
  const auto factor = static_cast<float>(scale);
  c.for_chunks(source.size(), policy::flat_elements, [&](std::int64_t first, std::int64_t last) {
    const float* from = source.data + first;
    float* to = target.data + first;
    for_vectors(last - first, [&](auto get, auto put) { put(to, get(to) + factor * get(from)); });
  });
}

/// target = scale * source.
template <class Executor>
void copy_scaled(context<Executor>& c, double scale, matrix_view<const float> source, matrix_view<float> target) {
  check_shape("copy_scaled", "target", target, source.rows, source.cols);
  const auto factor = static_cast<float>(scale);
  c.for_chunks(source.size(), policy::flat_elements, [&](std::int64_t first, std::int64_t last) {
    const float* from = source.data + first;
    float* to = target.data + first;
    for_vectors(last - first, [&](auto get, auto put) { put(to, factor * get(from)); });
  });
}

}  // namespace smelt::cpu_ops
