// In which numbers and with which instructions do the kernels of a command compute? As two options say.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace smelt::tool {

/// What a command line asks of the CPU backend; see make_backend.
struct compute_choice {
  std::string dtype = "fp32";   ///< of the products' operands: fp32 or bf16
  std::string instruction_set;  ///< empty: the widest one that the machine and the build have
};

/// Adds --dtype and --instruction-set to a command.
inline void add_compute_options(CLI::App& command, compute_choice& choice) {
  command
      .add_option("--dtype", choice.dtype,
                  "What matrix products multiply: fp32 (default), or bf16 with sums and weights in fp32")
      ->type_name("NAME");
  command
      .add_option("--instruction-set", choice.instruction_set,
                  "baseline, avx2, avx512 or avx512_bf16 (default: the machine's widest; see smelt info)")
      ->type_name("NAME");
}

}  // namespace smelt::tool
