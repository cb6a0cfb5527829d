// Which instructions does this machine have, and which of them did the build compile the ops for?
#pragma once

#include <array>
#include <ranges>
#include <smelt/core/error.hpp>
#include <smelt/kernels/cpu/operators.hpp>
#include <string>
#include <string_view>

namespace smelt {

/// Sets of vector instructions, each one more than the one before it.
enum class instruction_set : std::uint8_t {
  baseline,     ///< what every machine of the architecture has: SSE2, NEON
  avx2,         ///< AVX2 and FMA
  avx512,       ///< AVX-512 F, BW, DQ and VL
  avx512_bf16,  ///< and products of bf16
};

inline constexpr std::array all_instruction_sets{instruction_set::baseline, instruction_set::avx2,
                                                 instruction_set::avx512, instruction_set::avx512_bf16};

[[nodiscard]] constexpr std::string_view name_of(instruction_set set) noexcept {
  constexpr std::array<std::string_view, 4> names{"baseline", "avx2", "avx512", "avx512_bf16"};
  return names[static_cast<std::size_t>(set)];
}

/// The number types that matrix products multiply in. Sums, activations, weights and gradients are float32 either way.
enum class compute_type : std::uint8_t {
  fp32,
  bf16,  ///< operands rounded to bf16, products summed in float32
};

[[nodiscard]] constexpr std::string_view name_of(compute_type type) noexcept {
  return type == compute_type::fp32 ? "fp32" : "bf16";
}

/// Does the machine that runs this have the instructions?
[[nodiscard]] inline bool machine_has(instruction_set set) noexcept {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (set) {
    case instruction_set::baseline:
      return true;
    case instruction_set::avx2:
      return avx2;
    case instruction_set::avx512:
      return avx512;
    case instruction_set::avx512_bf16:
      return avx512 && __builtin_cpu_supports("avx512bf16");
  }
  return false;
#else
  return set == instruction_set::baseline;
#endif
}

/// Does this build hold the ops for the set?
[[nodiscard]] constexpr bool build_has(instruction_set set) noexcept {
  switch (set) {
#if SMELT_HAS_BASELINE
    case instruction_set::baseline:
      return true;
#endif
#if SMELT_HAS_AVX2
    case instruction_set::avx2:
      return true;
#endif
#if SMELT_HAS_AVX512
    case instruction_set::avx512:
      return true;
#endif
#if SMELT_HAS_AVX512_BF16
    case instruction_set::avx512_bf16:
      return true;
#endif
    default:
      return false;
  }
}

/// Can ops of the set run here?
[[nodiscard]] inline bool is_usable(instruction_set set) noexcept {
  return build_has(set) && machine_has(set);
}

/// The widest set that can run here. Throws errc::unsupported when the build was made for another machine.
[[nodiscard]] inline instruction_set best_instruction_set() {
  for (const instruction_set set : std::views::reverse(all_instruction_sets))
    if (is_usable(set)) return set;
  std::string built;
  for (const instruction_set set : all_instruction_sets)
    if (build_has(set)) built += (built.empty() ? "" : ", ") + std::string(name_of(set));
  throw error(errc::unsupported, "this program was compiled for " + built +
                                     " alone, which this machine does not have; compile it without -march, or here");
}

/// The set of this name. Throws errc::invalid_argument for a name that is none, errc::unsupported for a set that cannot
/// run here.
[[nodiscard]] inline instruction_set usable_instruction_set(std::string_view name) {
  for (const instruction_set set : all_instruction_sets) {
    if (name_of(set) != name) continue;
    if (!build_has(set))
      throw error(errc::unsupported, "this program was compiled without the instruction set '" + std::string(name) +
                                         "'; a build without -march holds all of them");
    if (!machine_has(set))
      throw error(errc::unsupported, "this machine does not have the instruction set '" + std::string(name) + "'");
    return set;
  }
  throw error(errc::invalid_argument, "'" + std::string(name) +
                                          "' is not an instruction set, needs one of baseline, avx2, avx512, "
                                          "avx512_bf16");
}

}  // namespace smelt
