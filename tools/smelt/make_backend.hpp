// Which backend do the commands run on? The CPU's, as the command line chose it.
#pragma once

#include <cstdint>
#include <smelt/core/error.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <string>

#include "compute_option.hpp"
#include "machine.hpp"

namespace smelt::tool {

using cpu_backend = cpu<cpu_default_executor>;

/// The type of products called `name`. Throws errc::invalid_argument with the names there are.
[[nodiscard]] inline compute_type compute_type_of(const std::string& name) {
  for (const compute_type type : {compute_type::fp32, compute_type::bf16})
    if (name == name_of(type)) return type;
  throw error(errc::invalid_argument, "--dtype must be fp32 or bf16; found \"" + name + "\"");
}

/// A backend with `threads` worker threads, 0 for one a core. Throws errc::invalid_argument for names that are none,
/// errc::unsupported for what the machine or the build lacks.
[[nodiscard]] inline cpu_backend make_backend(std::int64_t threads, const compute_choice& choice) {
  const compute_type compute = compute_type_of(choice.dtype);
  const instruction_set set =
      choice.instruction_set.empty() ? best_instruction_set() : usable_instruction_set(choice.instruction_set);
  return cpu_backend(cpu_default_executor(static_cast<int>(threads > 0 ? threads : cores())), compute, set);
}

}  // namespace smelt::tool
