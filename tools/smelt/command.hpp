// What do the commands of the program share? Their common options, exit codes, and how they read numbers.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "number.hpp"

namespace smelt::tool {

inline constexpr int exit_fine = 0;
inline constexpr int exit_check_failed = 1;   ///< a check that does not hold, such as budgets that do not match
inline constexpr int exit_wrong_input = 2;    ///< arguments or files that cannot be used
inline constexpr int exit_interrupted = 130;  ///< stopped by Ctrl-C, with everything saved

/// The most worker threads that can be asked for: more than any machine has cores.
inline constexpr std::int64_t max_threads = 4'096;

/// Options every command takes.
struct common_options {
  bool json = false;         ///< print one JSON document instead of tables
  std::int64_t threads = 0;  ///< worker threads; 0 is one a core. Results do not depend on it
  std::int64_t seed = 0;     ///< of initial weights and of the order of data
  std::string command_line;  ///< what was typed, quoted for a shell
};

/// What the chosen command does; returns the exit code.
using action = std::function<int()>;

/// Adds an option whose value is a whole number from `least` to `most`, such as 2M.
inline CLI::Option* add_count(CLI::App& app, const std::string& name, std::int64_t& value, std::int64_t least,
                              const std::string& description, std::int64_t most = any_count) {
  return app
      .add_option_function<std::string>(
          name, [&value, name, least, most](const std::string& text) { value = parse_count(text, name, least, most); },
          description)
      ->type_name("N");
}

// One a file. Each adds its command to `app`; when it is the one given, it sets `chosen`.
void add_specs(CLI::App& app, const common_options& common, action& chosen);
void add_budget(CLI::App& app, const common_options& common, action& chosen);
void add_match(CLI::App& app, const common_options& common, action& chosen);
void add_train(CLI::App& app, const common_options& common, action& chosen);
void add_eval(CLI::App& app, const common_options& common, action& chosen);
void add_compare(CLI::App& app, const common_options& common, action& chosen);
void add_probe(CLI::App& app, const common_options& common, action& chosen);
void add_info(CLI::App& app, const common_options& common, action& chosen);
void add_bench(CLI::App& app, const common_options& common, action& chosen);
void add_fit(CLI::App& app, const common_options& common, action& chosen);
void add_gain(CLI::App& app, const common_options& common, action& chosen);
void add_plan(CLI::App& app, const common_options& common, action& chosen);
void add_law(CLI::App& app, const common_options& common, action& chosen);
/// Of `smelt law`: downstream and paired.
void add_law_scores(CLI::App& law, const common_options& common, action& chosen);

}  // namespace smelt::tool
