// On what was it measured? The processor, its cores and memory, and the compiler that made the program.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
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

/// Cores that this process may use; at least 1. The standard library may count those of the whole machine.
[[nodiscard]] inline std::int64_t cores() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) > 0) return CPU_COUNT(&allowed);
#endif
  return (std::max)(1u, std::thread::hardware_concurrency());
}

/// Bytes of the first core's data cache of a level as the system reports them, which inside a virtual machine may be
/// wrong; 0 when it does not.
[[nodiscard]] inline std::int64_t reported_cache(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const auto line_of = [&](const char* file) {
      std::ifstream in(folder + file);
      std::string line;
      std::getline(in, line);
      return line;
    };
    if (line_of("level") != std::to_string(level) || line_of("type") == "Instruction") continue;
    std::string size = line_of("size");  // such as 1024K
    if (!size.ends_with('K')) return 0;
    size.pop_back();
    return read_count(size).value_or(0) * 1'024;
  }
  return 0;
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
