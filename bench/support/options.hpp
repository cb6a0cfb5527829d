// What can a benchmark with a main of its own be told?
#pragma once

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <string>
#include <string_view>

namespace smelt::bench {

struct options {
  bool quick = false;  ///< one short pass that only shows that everything runs
  instruction_set set = instruction_set::baseline;
  std::string json;  ///< a file for the figures; empty is none
  std::string spec;  ///< a file, for the benchmarks of whole models
};

/// What the arguments say; nothing, behind a line of help, when they cannot be understood or ask for it. Throws
/// errc::unsupported and errc::invalid_argument for an instruction set that cannot be used.
[[nodiscard]] inline std::optional<options> parse_options(int count, char** arguments, bool of_model = false) {
  options chosen;
  chosen.set = best_instruction_set();
  const auto help = [&] {
    std::fprintf(stderr, "usage: %s%s [--quick] [--instruction-set NAME] [--json FILE]\n", arguments[0],
                 of_model ? " SPEC.json" : "");
  };
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--quick") {
      chosen.quick = true;
    } else if (argument == "--json" && i + 1 < count) {
      chosen.json = arguments[++i];
    } else if (argument == "--instruction-set" && i + 1 < count) {
      chosen.set = usable_instruction_set(arguments[++i]);
    } else if (of_model && chosen.spec.empty() && !argument.starts_with("--")) {
      chosen.spec = argument;
    } else {
      help();
      return std::nullopt;
    }
  }
  if (of_model && chosen.spec.empty()) {
    help();
    return std::nullopt;
  }
  return chosen;
}

/// Writes the document where the options say. Throws errc::io.
inline void write_json(const options& chosen, const nlohmann::json& document) {
  if (chosen.json.empty()) return;
  std::ofstream file(chosen.json);
  file << document.dump(1) << '\n';
  if (!file.flush()) throw error(errc::io, "--json must name a file that can be written; found '" + chosen.json + "'");
}

}  // namespace smelt::bench
