// Which arrays is an op given? Those of its arguments, whatever views and structs they come in.
#pragma once

#include <concepts>
#include <cstddef>
#include <ranges>

namespace smelt::detail {

template <class T>
concept IsMatrix = requires(const T& m) {
  m.data;
  m.rows;
  m.cols;
};

/// Calls f(address, bytes) for every array among the arguments of an op.
template <class F, class... Arguments>
void for_each_array(F&& f, const Arguments&... arguments) {
  const auto look = [&](const auto& a, const auto& self) {
    if constexpr (requires { a.query_norm; }) {
      for (const auto& part : {a.norm, a.query_norm, a.key_norm}) self(part, self);
      for (const auto& part : {a.query, a.key, a.value}) self(part, self);
    } else if constexpr (requires { a.raw_query; }) {
      for (const auto& part : {a.inv_rms, a.query_inv_rms, a.key_inv_rms}) self(part, self);
      for (const auto& part : {a.raw_query, a.raw_key}) self(part, self);
    } else if constexpr (requires { a.query; }) {
      for (const auto& part : {a.query, a.key, a.value}) self(part, self);
    } else if constexpr (requires { a.assignment; }) {
      for (const auto& part : {a.offsets, a.assignment, a.row}) self(part, self);
    } else if constexpr (IsMatrix<decltype(a)>) {
      f(static_cast<const void*>(a.data), static_cast<std::size_t>(a.size()) * sizeof(*a.data));
    } else if constexpr (std::ranges::contiguous_range<decltype(a)>) {
      f(static_cast<const void*>(std::ranges::data(a)), std::ranges::size(a) * sizeof(*std::ranges::data(a)));
    }
  };
  (look(arguments, look), ...);
}

}  // namespace smelt::detail
