// Which backends must a test of an op's behaviour hold for? Those that run on any host.
#pragma once

#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/reference/backend.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace smelt::test {

using cpu_backend = cpu<threads_executor>;

/// An instruction set and a type of products that the CPU backend can be asked for.
struct cpu_variant {
  instruction_set set;
  compute_type compute;
  [[nodiscard]] std::string name() const { return std::string(name_of(set)) + " " + std::string(name_of(compute)); }
};

/// Those that run on this machine.
[[nodiscard]] inline std::vector<cpu_variant> usable_variants() {
  std::vector<cpu_variant> variants;
  for (const instruction_set set : all_instruction_sets) {
    if (!is_usable(set)) continue;
    variants.push_back({set, set == instruction_set::avx512_bf16 ? compute_type::bf16 : compute_type::fp32});
  }
  return variants;
}

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
