// What does the program `smelt` do with its arguments? Hands them to one command and turns failures into one line.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <new>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"

namespace {

/// A message as one line, whatever its source wrote: "differ:\n  a\n  b" is "differ: a; b".
std::string one_line(std::string text) {
  for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) {
    const auto next = (std::min)(text.find_first_not_of(" \n", at), text.size());
    const bool ends = at > 0 && (text[at - 1] == ':' || text[at - 1] == ';');
    text.replace(at, next - at, next == text.size() ? "" : ends ? " " : "; ");
  }
  return text;
}

/// The arguments as a shell takes them.
std::string quoted(int argc, char** argv) {
  std::string line = "smelt";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                                "-_=./,:+%@") == std::string::npos) {
      line += " " + word;
      continue;
    }
    line += " '";
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  return line;
}

/// Says below every command that the program's options go with it: CLI11 lists them for the program alone.
void name_common_options(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    command->footer("--json, --threads N and --seed N go with every command (see smelt --help).\n\n" +
                    command->get_footer());
    name_common_options(*command);
  }
}

/// The command whose help tells what was asked for wrongly.
std::string help_of(const CLI::App& app) {
  const CLI::App* at = &app;
  std::string words = "smelt";
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return "(see " + words + " --help)";
}

int fail(const std::string& message, int code = smelt::tool::exit_wrong_input) {
  std::cerr << "smelt: error: " << one_line(message) << "\n";
  return code;
}

/// `code`, unless what was printed did not arrive.
int written(int code) {
  std::cout.flush();
  return std::cout ? code : fail("standard output cannot be written to");
}

}  // namespace

int main(int argc, char** argv) {
  using namespace smelt::tool;
  CLI::App app("smelt: looped mixture-of-experts language models, their budgets, and matched comparisons", "smelt");
  common_options common;
  action chosen;
  common.command_line = quoted(argc, argv);
  app.fallthrough();
  app.require_subcommand(1);
  // The last one counts, so that a script's options can be followed by others that correct them.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_version_flag("--version", "smelt " SMELT_VERSION);
  app.add_flag("--json", common.json, "Print one JSON document for machines");
  add_count(app, "--threads", common.threads, 1, "Worker threads; results do not depend on it (default: one a core)",
            max_threads);
  add_count(app, "--seed", common.seed, 0, "Seed of the initial weights and of the order of data (default: 0)");
  app.footer(
      "A SPEC is a preset's name (see `smelt specs`) or a JSON file.\n"
      "Exit codes: 0 fine, 1 a check that does not hold, 2 wrong input, 130 stopped by Ctrl-C with everything saved.\n"
      "\nExamples:\n"
      "  smelt specs\n"
      "  smelt budget nano-smelt --against nano\n"
      "  smelt match nano --loop middle:2 --json\n"
      "  smelt compare nano nano-smelt --data builtin --tokens 2M --out runs/nano");
  add_specs(app, common, chosen);
  add_budget(app, common, chosen);
  add_match(app, common, chosen);
  add_train(app, common, chosen);
  add_eval(app, common, chosen);
  add_compare(app, common, chosen);
  add_probe(app, common, chosen);
  add_info(app, common, chosen);
  add_bench(app, common, chosen);
#if SMELT_HAS_LAWS
  add_fit(app, common, chosen);
  add_gain(app, common, chosen);
  add_plan(app, common, chosen);
  add_law(app, common, chosen);
#endif
  name_common_options(app);

  try {
    app.parse(argc, argv);
    return written(chosen());
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return written(app.exit(e));
    // CLI11 only says that there is no command; the word that was meant as one is worth naming.
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
#if !SMELT_HAS_LAWS
      for (const std::string_view left_out : {"fit", "gain", "plan", "law"})
        if (std::find(argv + 1, argv + argc, left_out) != argv + argc)
          return fail("this build leaves out \"" + std::string(left_out) +
                      "\" and the other commands of scaling laws; build with -DSMELT_BUILD_LAWS=ON for them");
#endif
      std::vector<std::string> commands;
      for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
      return fail("there is no command \"" + std::string(argv[1]) + "\"; did you mean \"" +
                  smelt::nearest_names(argv[1], commands, 1).front() + "\"? (see smelt --help)");
    }
    return fail(std::string(e.what()) + " " + help_of(app));
  } catch (const smelt::error& e) {
    // Numbers that stop being finite are no fault of the input: a run that diverges is a check that does not hold.
    return fail(e.what(), e.code() == smelt::errc::not_finite ? exit_check_failed : exit_wrong_input);
  } catch (const std::bad_alloc&) {
    return fail("there is not enough memory");
  } catch (const std::exception& e) {
    return fail(e.what());
  }
}
