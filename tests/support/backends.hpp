// Which backends must a test of an op's behaviour hold for? Those that run on any host.
#pragma once

#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/reference/backend.hpp>
#include <type_traits>

namespace smelt::test {

using cpu_backend = cpu<threads_executor>;

template <class B>
[[nodiscard]] B make_backend() {
  if constexpr (std::is_same_v<B, cpu_backend>) {
    return cpu_backend{threads_executor(2)};
  } else {
    return B{};
  }
}

}  // namespace smelt::test

/// The backends, for TEMPLATE_TEST_CASE.
#define SMELT_HOST_BACKENDS smelt::reference<double>, smelt::reference<float>, smelt::test::cpu_backend
