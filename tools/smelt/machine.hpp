// On what was it measured? The processor, its cores and memory, and the compiler that made the program.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#include "number.hpp"

namespace smelt::tool {

/// Bytes of physical memory; 0 when the system does not say.
[[nodiscard]] inline std::int64_t physical_memory() {
  const auto pages = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  return pages > 0 && page > 0 ? pages * page : 0;
}

/// Cores that may be used; at least 1.
[[nodiscard]] inline std::int64_t cores() {
  return (std::max)(1u, std::thread::hardware_concurrency());
}

/// The processor's name.
[[nodiscard]] inline std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
    break;
  }
  return "processor of unknown make";
}

/// The compiler that made the program.
[[nodiscard]] inline std::string compiler() {
#if defined(__clang__)
  return "clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__);
#else
  return "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__);
#endif
}

/// The machine in one line.
[[nodiscard]] inline std::string machine() {
  return processor() + ", " + std::to_string(cores()) + " cores, " +
         binary_bytes(static_cast<double>(physical_memory())) + " memory, compiled by " + compiler();
}

}  // namespace smelt::tool
