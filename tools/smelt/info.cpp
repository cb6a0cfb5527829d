// smelt info: what can this program do on this machine, and how fast is the machine at its best?
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <smelt/kernels/policy/cpu_caches.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "bandwidth.hpp"
#include "command.hpp"
#include "host_backend.hpp"
#include "machine.hpp"
#include "table.hpp"

#ifndef SMELT_CXX_FLAGS
#define SMELT_CXX_FLAGS "unknown"
#endif

namespace smelt::tool {

namespace {

/// An instruction set as the program and the machine know it; peaks in FLOP/s of one core, NaN where it cannot run.
struct set_info {
  instruction_set set{};
  bool built = false;
  bool machine = false;
  double fp32_peak = std::numeric_limits<double>::quiet_NaN();
  double bf16_peak = std::numeric_limits<double>::quiet_NaN();
};

/// FLOP/s of one core: the best of many short looks, since a disturbed one only looks slower.
double peak_of(compute_type compute, instruction_set set) {
  const host_backend backend(1, compute, set);
  double best = 0;
  for (int i = 0; i < 100; ++i) best = (std::max)(best, backend.core_peak());
  return best;
}

std::vector<set_info> sets() {
  std::vector<set_info> all;
  for (const instruction_set set : all_instruction_sets) {
    set_info s{.set = set, .built = build_has(set), .machine = machine_has(set)};
    if (is_usable(set)) {
      s.fp32_peak = peak_of(compute_type::fp32, set);
      if (set == instruction_set::avx512_bf16) s.bf16_peak = peak_of(compute_type::bf16, set);
    }
    all.push_back(s);
  }
  return all;
}

/// The system's choice about huge pages: the word in brackets of "always [madvise] never"; "unknown" elsewhere.
std::string huge_pages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(in, line);
  const auto open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "unknown";
  return line.substr(open + 1, close - open - 1);
}

constexpr const char* executor_name() {
  return std::is_same_v<cpu_default_executor, threads_executor> ? "std::jthread" : "oneTBB";
}

int info(const common_options& common) {
  const std::vector<set_info> all = sets();
  const instruction_set best = best_instruction_set();
  const bool bf16 = best == instruction_set::avx512_bf16;
  const int threads = static_cast<int>(common.threads > 0 ? common.threads : cores());
  const read_buffer buffer(static_cast<std::size_t>(measured_memory()));
  const std::vector<memory_level> one = memory_levels(buffer, 1);
  const std::vector<memory_level> together = threads == 1 ? one : memory_levels(buffer, threads);
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));

  if (common.json) {
    nlohmann::ordered_json j;
    j["version"] = SMELT_VERSION;
    j["compiler"] = compiler();
    j["flags"] = SMELT_CXX_FLAGS;
    j["executor"] = executor_name();
    j["processor"] = processor();
    j["cores"] = cores();
    j["memory_bytes"] = physical_memory();
    j["instruction_set"] = name_of(best);
    j["bf16"] = bf16;
    j["instruction_sets"] = nlohmann::ordered_json::array();
    for (const set_info& s : all)
      j["instruction_sets"].push_back({{"name", name_of(s.set)},
                                       {"build", s.built},
                                       {"machine", s.machine},
                                       {"fp32_peak_flop_per_second", s.fp32_peak},
                                       {"bf16_peak_flop_per_second", s.bf16_peak}});
    j["caches_assumed"] = {{"first_level_bytes", policy::first_level_cache},
                           {"second_level_bytes", policy::second_level_cache}};
    j["caches_reported"] = {{"first_level_bytes", reported_cache(1)},
                            {"second_level_bytes", reported_cache(2)},
                            {"third_level_bytes", reported_cache(3)}};
    j["page_bytes"] = page;
    j["huge_pages"] = huge_pages();
    j["threads"] = threads;
    j["read_bytes_per_second"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < one.size(); ++i)
      j["read_bytes_per_second"].push_back(
          {{"from", one[i].name}, {"one_core", one[i].bandwidth}, {"together", together[i].bandwidth}});
    std::cout << j.dump(2) << "\n";
    return exit_fine;
  }

  const auto reported = [](int level) {
    const std::int64_t bytes = reported_cache(level);
    return bytes > 0 ? binary_bytes(static_cast<double>(bytes)) : std::string("unknown");
  };
  table t{"", {{"", false}, {"", false}}, {}};
  t.rows = {
      {"version", SMELT_VERSION},
      {"compiler", compiler()},
      {"flags", SMELT_CXX_FLAGS},
      {"executor", executor_name()},
      {"processor", processor()},
      {"cores", std::to_string(cores())},
      {"memory", binary_bytes(static_cast<double>(physical_memory()))},
      {"caches", "sizes chosen for " + binary_bytes(static_cast<double>(policy::first_level_cache)) + " and " +
                     binary_bytes(static_cast<double>(policy::second_level_cache)) + " a core; reported " +
                     reported(1) + ", " + reported(2) + ", " + reported(3)},
      {"pages", grouped(page) + " bytes; transparent huge pages: " + huge_pages()},
      {"kernels", std::string(name_of(best)) + ", bf16 products: " + (bf16 ? "yes" : "no")},
  };
  std::string text = to_text(t);
  // A table of names and values needs no heading.
  for (int i = 0; i < 2; ++i) text.erase(0, text.find('\n') + 1);
  table peaks{"\nPeak of one core's multiply-adds",
              {{"instruction set", false},
               {"in the build", false},
               {"on the machine", false},
               {"fp32 GFLOP/s"},
               {"bf16 GFLOP/s"}},
              {}};
  const auto rate = [](double flop) { return flop > 0 ? fixed(flop * 1e-9, 0) : std::string(); };
  for (const set_info& s : all)
    peaks.rows.push_back({std::string(name_of(s.set)), s.built ? "yes" : "no", s.machine ? "yes" : "no",
                          rate(s.fp32_peak), rate(s.bf16_peak)});
  table reads{"\nReads, GB/s",
              {{"from", false}, {"one core"}, {std::to_string(threads) + (threads == 1 ? " thread" : " threads")}},
              {}};
  for (std::size_t i = 0; i < one.size(); ++i)
    reads.rows.push_back({one[i].name, fixed(one[i].bandwidth * 1e-9, 1), fixed(together[i].bandwidth * 1e-9, 1)});
  std::cout << text << to_text(peaks) << to_text(reads);
  return exit_fine;
}

}  // namespace

void add_info(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("info", "Print what the program can do on this machine, and its speed limits");
  command->footer(
      "Limits are measured, which takes about a second: what one core multiplies and adds in registers, and how fast\n"
      "caches and memory are read by one core and by --threads of them.\n"
      "\nExamples:\n  smelt info\n  smelt info --json");
  command->callback([&common, &chosen] { chosen = [&common] { return info(common); }; });
}

}  // namespace smelt::tool
