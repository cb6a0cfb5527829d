// smelt fit: which law do these runs follow?
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/io/atomic_file.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fitted_runs.hpp"
#include "law_plots.hpp"
#include "law_report.hpp"
#include "law_table.hpp"
#include "number.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

struct fit_command_options {
  std::string data;
  std::vector<std::string> forms{"smelt"};
  row_choice rows;
  std::vector<std::string> hold;
  std::string loss = "huber";
  double delta = 1e-3;
  std::int64_t starts = 0;
  std::string bootstrap;
  double level = 0.95;
  std::optional<double> sparsity;
  std::string out;
};

law::fit_options fit_options_of(const common_options& common, const fit_command_options& o) {
  law::fit_options options;
  options.delta = o.delta;
  options.random_starts = o.starts;
  options.seed = static_cast<std::uint64_t>(common.seed);
  options.threads = static_cast<std::size_t>(common.threads);
  if (o.loss == "lad") {
    options.loss = law::residual_loss::least_absolute;
  } else if (o.loss == "squares") {
    options.loss = law::residual_loss::least_squares;
  } else if (o.loss != "huber") {
    throw error(errc::invalid_argument, "--loss must be huber, lad or squares, found '" + o.loss + "'");
  }
  for (const std::string& h : o.hold) {
    const auto [name, value] = split_pair(h, "--hold");
    options.hold.emplace_back(name, parse_real(value, "--hold " + name));
  }
  return options;
}

/// A name as a part of a file's name.
std::string file_part(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  return name;
}

/// What the files of a group end in. Groups whose names differ in other characters alone get a number.
std::string file_tail(const fitted_law& f, std::size_t group) {
  if (f.groups.size() == 1) return "";
  const std::string part = file_part(f.groups[group].name);
  const auto before = std::count_if(f.groups.begin(), f.groups.begin() + static_cast<std::ptrdiff_t>(group),
                                    [&](const fitted_group& g) { return file_part(g.name) == part; });
  return "-" + part + (before > 0 ? "-" + std::to_string(before + 1) : "");
}

/// Nothing when the command was asked to stop.
std::optional<fitted_law> fitted_to(const csv_table& table, const law_description& law, const fit_command_options& o,
                                    const law::fit_options& options, const std::optional<bootstrap_request>& request,
                                    const interrupt_guard& interrupt) {
  fitted_law f{law, choose_runs(table, law, o.rows), {}};
  for (auto& [name, runs] : f.chosen.groups) {
    fitted_group g{name, runs, {}, {}, {}, {}, {}, {}};
    try {
      g.fit = fit_law(law.name, runs.rows, options);
    } catch (const error& e) {
      if (o.rows.group.empty()) throw;
      throw error(e.code(), "group '" + name + "': " + e.what());
    }
    g.predictions = predict_law(law.name, g.fit.fitted, runs.rows.inputs);
    if (!runs.held_out.inputs.empty()) {
      g.held_out = errors_of_law(law.name, g.fit.fitted, runs.held_out);
      g.held_out_predictions = predict_law(law.name, g.fit.fitted, runs.held_out.inputs);
    }
    if (request) {
      const bool by_cell = request->unit == "cells" || (request->unit == "leave-out" && !o.rows.cells.empty());
      auto draws = bootstrapped(law.name, name, runs.rows, runs.units, f.chosen.cell_count, g.fit, options, *request,
                                by_cell, options.seed, interrupt);
      if (!draws) return std::nullopt;
      g.resampled = std::move(*draws);
      const auto failed = std::ranges::count_if(g.resampled, [](const auto& p) { return p.empty(); });
      if (failed > 0) {
        g.fit.warnings.push_back(std::to_string(failed) + " of " + std::to_string(g.resampled.size()) +
                                 " resamples failed and are not in the intervals");
      }
      // each end of an interval needs a draw beyond it
      const auto needed = static_cast<std::ptrdiff_t>(std::ceil(2 / (1 - o.level) - 1e-9));
      if (const auto left = std::ssize(g.resampled) - failed; left < needed) {
        g.fit.warnings.push_back(std::to_string(left) + " resamples are too few for intervals that hold " +
                                 significant(100 * o.level) + " %, which need " + std::to_string(needed));
      }
    }
    if (!o.out.empty() && g.fit.objective > 1e-12)
      g.profiles = profiles_of(law.name, runs.rows, g.fit, options, interrupt);
    for (const coefficient_profile& p : g.profiles)
      for (const auto& [value, objective] : p.points)
        if (objective < g.fit.objective * (1 - 1e-3)) {
          g.fit.warnings.push_back("with " + detail::coefficient_label(law.coefficients[p.coefficient]) + " at " +
                                   significant(value) + " the objective is " + significant(objective) +
                                   ", less than the fit's: there is a better minimum; add --starts N");
        }
    if (interrupt.asked()) return std::nullopt;
    f.groups.push_back(std::move(g));
  }
  return f;
}

nlohmann::ordered_json document_of(const common_options& common, const fit_command_options& o, const csv_table& table,
                                   const fitted_law& f, double sparsity) {
  char hash[32];
  std::snprintf(hash, sizeof hash, "xxh64:%016llx", static_cast<unsigned long long>(table.hash));
  nlohmann::ordered_json j{
      {"format", "smelt-fit-1"},
      {"form", f.law.name},
      {"equation", f.law.equation},
      {"conventions",
       {{"residual", f.law.losses ? "ln loss" : "score"},
        {"loss", o.loss},
        {"delta", o.loss == "huber" ? nlohmann::ordered_json(o.delta) : nullptr},
        {"objective", "sum"},
        {"hold", o.hold}}},
      {"provenance",
       {{"command", common.command_line},
        {"version", SMELT_VERSION},
        {"data", o.data},
        {"hash", hash},
        {"rows", {{"read", f.chosen.read}, {"fitted", f.chosen.used}, {"held out", f.chosen.held_out}}},
        {"left_out", nlohmann::ordered_json::object()},
        {"where", o.rows.where},
        {"hold_out", o.rows.hold_out},
        {"group", o.rows.group},
        {"columns", nlohmann::ordered_json::object()},
        {"units", nlohmann::ordered_json::object()}}}};
  if (!f.law.map.empty()) j["map"] = f.law.map;
  for (const auto& [why, count] : f.chosen.left_out) j["provenance"]["left_out"][why] = count;
  for (std::size_t k = 0; k < f.law.inputs.size(); ++k) {
    const std::string name(f.law.inputs[k].name);
    j["provenance"]["columns"][name] = f.chosen.sources[k].text;
    if (!f.law.inputs[k].unit.empty()) j["provenance"]["units"][name] = f.law.inputs[k].unit;
  }
  j["provenance"]["columns"][f.law.losses ? "loss" : "score"] = f.chosen.sources.back().text;
  if (!o.bootstrap.empty())
    j["bootstrap"] = {{"scheme", o.bootstrap}, {"seed", common.seed}, {"cell", o.rows.cells}, {"level", o.level}};
  if (o.bootstrap.starts_with("cells")) j["bootstrap"]["cells"] = f.chosen.cell_count;
  for (const fitted_group& g : f.groups) j["groups"][g.name] = to_json(f, g, sparsity, o.level);
  return j;
}

/// What is odd about the units of a frontier's inputs.
std::string unit_warning(const fitted_law& f) {
  if (!has_frontier(f.law.name)) return "";
  for (const fitted_group& g : f.groups) {
    const law::compute_window w = window_of(f.law.name, g.runs.rows);
    if (w.most < 1e12)
      return "the most training compute of the runs of " + g.name + " is " + significant(w.most, 3) +
             " FLOPs; if the columns are in billions, say so with --column " + std::string(f.law.inputs.front().name) +
             "=" + f.chosen.sources.front().text + "*1e9, for budgets are in FLOPs";
  }
  return "";
}

void write_plots(const std::filesystem::path& out, const fitted_law& f, const std::string& suffix, double sparsity,
                 double level) {
  for (std::size_t k = 0; k < f.groups.size(); ++k) {
    const fitted_group& g = f.groups[k];
    const std::string tail = suffix + file_tail(f, k) + ".svg";
    write_file(out / ("slices" + tail), to_svg(slices_plot(f, g)));
    if (const plot_grid v = visits_plot({{&f.law, &g}}); !v.panels.empty())
      write_file(out / ("visits" + tail), to_svg(v));
    if (const plot_grid c = clouds_plot(f, g); !c.panels.empty()) write_file(out / ("clouds" + tail), to_svg(c));
    if (const plot_grid p = profiles_plot(f, g); !p.panels.empty()) write_file(out / ("profiles" + tail), to_svg(p));
  }
  if (has_frontier(f.law.name))
    write_file(out / ("frontier" + suffix + ".svg"), to_svg(frontier_plot(f, sparsity, level)));
  write_file(out / ("residuals" + suffix + ".svg"), to_svg(residuals_plot(f)));
}

/// The folder of a fit, made before the work so that one that cannot be made is found before it. If it was made here
/// and the work leaves nothing in it, it goes again.
class output_folder {
 public:
  explicit output_folder(const std::filesystem::path& path) : path_(path) {
    std::error_code failure;
    made_ = std::filesystem::create_directories(path, failure);
    if (failure || !std::filesystem::is_directory(path))
      throw error(errc::io,
                  "cannot make the folder '" + path.string() + "'" + (failure ? ": " + failure.message() : ""));
  }
  output_folder(const output_folder&) = delete;
  output_folder& operator=(const output_folder&) = delete;
  ~output_folder() {
    std::error_code failure;  // a folder that holds something stays
    if (made_) std::filesystem::remove(path_, failure);
  }

 private:
  std::filesystem::path path_;
  bool made_ = false;
};

int run_fit(const common_options& common, fit_command_options o) {
  const interrupt_guard interrupt;
  const law::fit_options options = fit_options_of(common, o);
  if (!(o.level > 0 && o.level < 1))
    throw error(errc::invalid_argument, "--level must lie between 0 and 1, found " + law::detail::shown(o.level));
  if (o.sparsity && !(*o.sparsity >= 0 && *o.sparsity < 1))
    throw error(errc::invalid_argument,
                "--sparsity must be at least 0 and below 1, found " + law::detail::shown(*o.sparsity));
  std::optional<bootstrap_request> request;
  if (!o.bootstrap.empty()) request = bootstrap_in(o.bootstrap);
  std::vector<law_description> laws;
  for (const std::string& form : o.forms) {
    laws.push_back(law_called(form));
    if (std::ranges::count(laws, laws.back().name, &law_description::name) > 1)
      throw error(errc::invalid_argument, "--form has " + laws.back().name + " twice");
  }
  if (o.sparsity && std::ranges::none_of(laws, [](const law_description& l) { return needs_sparsity(l.name); }))
    throw error(errc::invalid_argument, "--sparsity: the law " + laws.front().name + " has none");
  const csv_table table = read_csv(o.data);
  if (request && request->unit == "cells" && o.rows.cells.empty()) {
    if (table.has("cell")) {
      o.rows.cells = {"cell"};
    } else {
      o.rows.cells_by_inputs = true;
    }
  }
  const std::filesystem::path out = o.out;
  std::optional<output_folder> folder;
  if (!o.out.empty()) folder.emplace(out);

  std::vector<fitted_law> fits;
  for (const law_description& law : laws) {
    auto f = fitted_to(table, law, o, options, request, interrupt);
    if (!f) {
      std::cerr << "smelt: note: stopped; nothing was written\n";
      return exit_interrupted;
    }
    fits.push_back(std::move(*f));
  }
  double sparsity = 0;
  std::vector<nlohmann::ordered_json> documents;
  for (const fitted_law& f : fits) {
    if (needs_sparsity(f.law.name)) sparsity = o.sparsity.value_or(median_input(f.groups.front().runs.rows, 1));
    documents.push_back(document_of(common, o, table, f, sparsity));
    if (const std::string w = unit_warning(f); !w.empty()) std::cerr << "smelt: warning: " << w << "\n";
  }
  nlohmann::ordered_json document = documents.front();
  if (fits.size() > 1)
    document = {{"format", "smelt-fits-1"}, {"comparison", comparison_json(documents)}, {"fits", documents}};

  if (!o.out.empty()) {
    for (std::size_t i = 0; i < fits.size(); ++i) {
      const std::string suffix = fits.size() > 1 ? "-" + file_part(fits[i].law.name) : "";
      write_plots(out, fits[i], suffix, sparsity, o.level);
      write_file(out / ("fit" + suffix + ".json"), documents[i].dump(2) + "\n");
    }
    if (fits.size() > 1) write_file(out / "fit.json", document.dump(2) + "\n");
    write_file(out / "report.html", fit_report(fits, documents, sparsity, o.level));
  }
  if (common.json) {
    std::cout << document.dump(2) << "\n";
    return exit_fine;
  }
  for (const nlohmann::ordered_json& d : documents) {
    if (fits.size() > 1) std::cout << d["form"].get<std::string>() << "\n\n";
    for (const auto& [name, g] : d["groups"].items()) {
      std::cout << to_text(coefficients_table(name, g)) << "\n";
      if (g.contains("frontier")) std::cout << to_text(frontier_table(g["frontier"])) << "\n";
    }
  }
  if (fits.size() > 1) std::cout << to_text(comparison_table(document["comparison"])) << "\n";
  for (const table_source& s : fits.front().chosen.sources)
    if (!s.column) std::cout << "computed: " << s.text << "\n";
  if (request && request->unit == "cells")
    std::cout << "cells: " << fits.front().chosen.cell_count << ", "
              << (o.rows.cells_by_inputs ? "runs that differ in D alone\n" : "by column\n");
  for (const auto& [why, count] : fits.front().chosen.left_out)
    std::cout << "left out: " << count << " of " << fits.front().chosen.read << " rows, " << why << "\n";
  if (!o.out.empty()) std::cout << "report: " << (out / "report.html").string() << "\n";
  return exit_fine;
}

}  // namespace

void add_fit(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("fit", "Fit a scaling law to a table of runs");
  const auto o = std::make_shared<fit_command_options>();
  // a word behind a list's own is not of the list
  const auto all = [](CLI::Option* option) {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  };
  command->add_option("DATA", o->data, "A CSV file with a line of column names")->required()->type_name("");
  command->add_option("--form", o->forms, "The law, or several to compare (default: smelt; see smelt law list)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command->add_option("--group", o->rows.group, "Fit each value of this column on its own")->type_name("COLUMN");
  all(command->add_option("--where", o->rows.where, "Only rows such as S>0.5 or arch=smelt; all of several must hold")
          ->type_name("TEST"));
  all(command->add_option("--hold-out", o->rows.hold_out, "Do not fit rows such as R>8, but judge the fit on them")
          ->type_name("TEST"));
  all(command
          ->add_option("--column", o->rows.columns,
                       "The column of an input, or a formula, such as N='Model Size', N=params*1e9, D='C/(6*N)'")
          ->type_name("INPUT=COLUMN"));
  command->add_option("--response", o->rows.response, "The column that is fitted (default: loss, or score)")
      ->type_name("COLUMN");
  command->add_flag("--drop-incomplete", o->rows.drop_incomplete, "Leave out rows in which a number is missing");
  command->add_option("--loss", o->loss, "huber (default), lad or squares")->type_name("NAME");
  command->add_option("--delta", o->delta, "Of Huber's loss, in ln loss (default: 1e-3)")->type_name("X");
  all(command->add_option("--hold", o->hold, "A coefficient that is not fitted, such as E_max=256")
          ->type_name("NAME=VALUE"));
  add_count(*command, "--starts", o->starts, 1, "Random starts in place of the law's grid", 10'000'000);
  command
      ->add_option("--bootstrap", o->bootstrap,
                   "rows:2000, cells:2000, leave-out:0.1:2000, or numpy:4000 (rows as NumPy's RandomState(seed) draws)")
      ->type_name("SCHEME");
  command
      ->add_option("--cell", o->rows.cells,
                   "The columns that make a cell, such as size,S (default: cell, or all inputs but D)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command->add_option("--level", o->level, "What intervals hold (default: 0.95)")->type_name("X");
  command->add_option("--sparsity", o->sparsity, "S of the frontiers (default: the middle of the runs)")
      ->type_name("X");
  command->add_option("--out", o->out, "A folder for report.html, fit.json and the plots")->type_name("DIR");
  command->footer(
      "Losses are in nats a token. Inputs may be in any unit, and coefficients are for it; budgets are in FLOPs, so\n"
      "write --column N=N*1e9 where a column counts billions. A missing D is C/(6 N), a missing F is C/D.\n"
      "\nExamples:\n"
      "  smelt fit runs.csv --form smelt --group arch --where 'S>0.5' --bootstrap cells:2000 --out fits\n"
      "  smelt fit runs.csv --form chinchilla --column N='Model Size' --column C='Training FLOP' --json\n"
      "  smelt fit loops.csv --form looped-moe:linear,looped-moe:power,looped-moe:bounded --hold-out 'R>8' --out maps");
  command->callback([&, o] { chosen = [&, o] { return run_fit(common, *o); }; });
}

}  // namespace smelt::tool
