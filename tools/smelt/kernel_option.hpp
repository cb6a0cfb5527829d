// Which kernels does a command compute with? A type of products and an instruction set, by name.
#pragma once

#include <CLI/CLI.hpp>
#include <smelt/core/error.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <string>

namespace smelt::tool {

/// The names on the command line; an empty instruction set is the best one of the machine.
struct kernel_option {
  std::string dtype = "fp32";
  std::string instruction_set;
};

/// What they stand for here.
struct kernel_choice {
  compute_type compute = compute_type::fp32;
  instruction_set set = instruction_set::baseline;
};

/// Adds --dtype and --instruction-set to a command.
inline void add_kernel_options(CLI::App& command, kernel_option& option) {
  const std::string kernels = "Kernels";
  command
      .add_option(
          "--dtype", option.dtype,
          "What matrix products multiply in: fp32 (default), bf16 (sums, activations and weights stay fp32), or "
          "auto: bf16 where the machine has its instructions")
      ->type_name("NAME")
      ->group(kernels);
  command
      .add_option("--instruction-set", option.instruction_set,
                  "baseline, avx2, avx512 or avx512_bf16 (default: the machine's best)")
      ->type_name("NAME")
      ->group(kernels);
}

/// The choice that the names stand for on this machine. Throws errc::invalid_argument for a name that is none, and
/// errc::unsupported for what the machine or the build lacks.
[[nodiscard]] inline kernel_choice choice_of(const kernel_option& option) {
  const instruction_set set =
      option.instruction_set.empty() ? best_instruction_set() : usable_instruction_set(option.instruction_set);
  const bool bf16 = set == instruction_set::avx512_bf16;
  if (option.dtype == "auto") return {bf16 ? compute_type::bf16 : compute_type::fp32, set};
  if (option.dtype == name_of(compute_type::fp32)) return {compute_type::fp32, set};
  if (option.dtype != name_of(compute_type::bf16))
    throw error(errc::invalid_argument, "--dtype must be one of fp32, bf16, auto; found \"" + option.dtype + "\"");
  if (!bf16)
    throw error(errc::unsupported, "--dtype bf16 needs the instruction set avx512_bf16; " +
                                       std::string(option.instruction_set.empty() ? "the best of this machine is "
                                                                                  : "--instruction-set is ") +
                                       std::string(name_of(set)) + "; fp32 runs everywhere");
  return {compute_type::bf16, set};
}

}  // namespace smelt::tool
