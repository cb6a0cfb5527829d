// How long does a law take to fit? The published protocol: 4,500 starts on 240 rows, and 4,000 resamples; what one
// evaluation costs; and how the solver fares beside others on 72 rows and six coefficients.
//
//   law [--quick] [--threads N] [--rows FILE.csv] [--json FILE]
//
// The rows are those of FILE.csv (columns N, D, loss), else 240 drawn from a law with noise. law_scipy.py beside this
// file fits the same rows with SciPy and prints the ratios.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <smelt/law/bootstrap.hpp>
#include <smelt/law/fit.hpp>
#include <smelt/law/forms/chinchilla.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <smelt/law/published.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#if SMELT_BENCH_NLOPT
#include <nlopt.h>
#endif

#if SMELT_BENCH_LBFGSB
extern "C" void setulb_(int* n, int* m, double* x, double* l, double* u, int* nbd, double* f, double* g, double* factr,
                        double* pgtol, double* wa, int* iwa, char* task, int* iprint, char* csave, int* lsave,
                        int* isave, double* dsave, std::size_t task_length, std::size_t csave_length);
#endif

namespace {

using namespace smelt::law;

template <class Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Work>
double best_seconds(int rounds, Work&& work) {
  double best = seconds_of(work);
  for (int i = 1; i < rounds; ++i) best = (std::min)(best, seconds_of(work));
  return best;
}

observations<chinchilla> read_rows(const std::string& name) {
  std::ifstream file(name);
  std::string line;
  if (!std::getline(file, line))
    throw smelt::error(smelt::errc::io, "rows must be a file of N, D, loss; found '" + name + "'");
  std::vector<inputs_of<chinchilla>> x;
  std::vector<double> y;
  while (std::getline(file, line)) {
    double n = 0;
    double d = 0;
    double loss = 0;
    if (std::sscanf(line.c_str(), "%lf,%lf,%lf", &n, &d, &loss) != 3)
      throw smelt::error(smelt::errc::corrupt, name + ": a line must be N,D,loss; found '" + line + "'");
    x.push_back({n, d});
    y.push_back(loss);
  }
  return {x, y};
}

observations<chinchilla> drawn_rows() {
  const smelt::random_stream random(1, 0);
  std::vector<inputs_of<chinchilla>> x;
  std::vector<double> y;
  for (std::uint64_t i = 0; i < 240; ++i) {
    x.push_back({std::exp(17.5 + 6 * random.uniform(4 * i)), std::exp(21 + 5 * random.uniform(4 * i + 1))});
    y.push_back(predict<chinchilla>(published::hoffmann(), x.back()) * std::exp(6e-3 * random.normal(4 * i + 2)));
  }
  return {x, y};
}

/// The published starts over (ln A, ln B, ln E, alpha, beta).
std::vector<coefficients_of<chinchilla>> published_starts() {
  std::vector<coefficients_of<chinchilla>> all;
  for (int alpha = 0; alpha < 5; ++alpha)
    for (int beta = 0; beta < 5; ++beta)
      for (int e = 0; e < 5; ++e)
        for (int a = 0; a < 6; ++a)
          for (int b = 0; b < 6; ++b) all.push_back({5.0 * a, 5.0 * b, -1 + 0.5 * e, 0.5 * alpha, 0.5 * beta});
  return all;
}

/// 72 rows of the SMELT law with 0.15 % of noise.
observations<sparse_compute> sparse_rows() {
  const smelt::random_stream random(2, 0);
  std::vector<inputs_of<sparse_compute>> x;
  std::vector<double> y;
  std::uint64_t at = 0;
  for (const double f : {6.5e8, 1.28e9, 3.8e9, 1e10})
    for (const double s : {0.85, 0.95, 0.97})
      for (int i = 0; i < 6; ++i) {
        x.push_back(
            {f * (1 + 0.004 * random.normal(at)), s + 0.002 * random.normal(at + 1), 2e10 * std::pow(11, i / 5.0)});
        y.push_back(predict<sparse_compute>(published::smelt_baseline(), x.back()) *
                    std::exp(1.5e-3 * random.normal(at + 2)));
        at += 3;
      }
  return {x, y};
}

struct contestant {
  std::string name;
  double seconds = 0;
  int reached = 0;
  int failures = 0;
  std::int64_t evaluations = 0;
  double best = 1;
};

using sparse_point = coefficients_of<sparse_compute>;

contestant race(const std::string& name, objective& f, const std::vector<sparse_point>& starts, double least,
                auto&& solve) {
  contestant c{name};
  std::vector<double> ends;
  c.seconds = seconds_of([&] {
    for (const sparse_point& start : starts) {
      sparse_point p = start;
      if (!solve(p, c.evaluations)) ++c.failures;
      objective_sums sums;
      f.evaluate(detail::list_from(p), sums);
      ends.push_back(sums.value);
    }
  });
  for (const double end : ends) {
    c.reached += end <= least * 1.001 ? 1 : 0;
    c.best = std::fmin(c.best, end);
  }
  return c;
}

std::vector<contestant> compare_solvers(int start_count) {
  const auto data = sparse_rows();
  const fit_result full = fit<sparse_compute>(data, {.threads = 1});
  std::vector<pack> blocks;
  data.table().fill(blocks);
  objective f(view_of<sparse_compute>(), blocks, 1e-3);
  std::vector<sparse_point> starts;
  const smelt::random_stream random(3, 0);
  const auto summary = data.summary();
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(start_count); ++i) {
    std::array<double, 5> at{};
    for (std::uint64_t k = 0; k < 5; ++k) at[k] = random.uniform(i * 5 + k);
    starts.push_back(sparse_compute::start(summary, at));
  }
  const bounds limits = bounds::of_form(view_of<sparse_compute>());
  std::vector<contestant> all;
  all.push_back(race("smelt", f, starts, full.objective, [&](sparse_point& p, std::int64_t& evaluations) {
    const solution s = minimise(f, limits, detail::list_from(p), {.decrease = 1e-8});
    evaluations += s.steps + 1;
    std::copy_n(s.p.begin(), p.size(), p.begin());
    return s.converged;
  }));
  // the others are given the sum over delta^2: as it is, it is below what their tolerances take for zero
  [[maybe_unused]] constexpr double scale = 1e6;
#if SMELT_BENCH_NLOPT
  for (const auto& [name, algorithm] : {std::pair{"NLopt SLSQP", NLOPT_LD_SLSQP}, {"NLopt L-BFGS", NLOPT_LD_LBFGS}}) {
    all.push_back(
        race(name, f, starts, full.objective, [&, algorithm = algorithm](sparse_point& p, std::int64_t& evaluations) {
          struct state {
            objective* f;
            std::int64_t* evaluations;
          } s{&f, &evaluations};
          nlopt_opt solver = nlopt_create(algorithm, 6);
          nlopt_set_min_objective(
              solver,
              [](unsigned, const double* x, double* gradient, void* self) {
                const state& known = *static_cast<state*>(self);
                coefficient_list q{};
                std::copy(x, x + 6, q.begin());
                objective_sums sums;
                known.f->evaluate(q, sums);
                ++*known.evaluations;
                for (int j = 0; gradient != nullptr && j < 6; ++j) gradient[j] = scale * sums.gradient[j];
                return scale * sums.value;
              },
              &s);
          nlopt_set_lower_bounds(solver, limits.least.data());
          nlopt_set_upper_bounds(solver, limits.most.data());
          nlopt_set_ftol_rel(solver, 1e-10);
          nlopt_set_maxeval(solver, 5000);
          double value = 0;
          const nlopt_result result = nlopt_optimize(solver, p.data(), &value);
          nlopt_destroy(solver);
          return result > 0;
        }));
  }
#endif
#if SMELT_BENCH_LBFGSB
  all.push_back(race("L-BFGS-B 3.0", f, starts, full.objective, [&](sparse_point& p, std::int64_t& evaluations) {
    int n = 6;
    int m = 10;
    coefficient_list low = limits.least;
    coefficient_list high = limits.most;
    int kinds[6];
    for (std::size_t j = 0; j < 6; ++j) kinds[j] = std::isfinite(low[j]) ? 2 : 0;
    double value = 0;
    double gradient[6] = {};
    double factr = 1e3;
    double pgtol = 1e-7;
    std::vector<double> work(static_cast<std::size_t>(2 * m * n + 5 * n + 11 * m * m + 8 * m));
    std::vector<int> whole(static_cast<std::size_t>(3 * n));
    std::string task(60, ' ');
    std::string note(60, ' ');
    task.replace(0, 5, "START");
    int print = -1;
    int logical[4] = {};
    int integer[44] = {};
    double real[29] = {};
    for (int step = 0; step < 20'000; ++step) {
      setulb_(&n, &m, p.data(), low.data(), high.data(), kinds, &value, gradient, &factr, &pgtol, work.data(),
              whole.data(), task.data(), &print, note.data(), logical, integer, real, 60, 60);
      if (task.starts_with("FG")) {
        objective_sums sums;
        f.evaluate(detail::list_from(p), sums);
        ++evaluations;
        value = scale * sums.value;
        for (int j = 0; j < 6; ++j) gradient[j] = scale * sums.gradient[j];
      } else if (!task.starts_with("NEW_X")) {
        break;
      }
    }
    return task.starts_with("CONV");
  }));
#endif
  return all;
}

int run(int count, char** arguments) {
  bool quick = false;
  std::size_t threads = 1;
  std::string rows;
  std::string json;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--quick") {
      quick = true;
    } else if (argument == "--threads" && i + 1 < count) {
      threads = static_cast<std::size_t>(std::strtoul(arguments[++i], nullptr, 10));
    } else if (argument == "--rows" && i + 1 < count) {
      rows = arguments[++i];
    } else if (argument == "--json" && i + 1 < count) {
      json = arguments[++i];
    } else {
      std::fprintf(stderr, "usage: %s [--quick] [--threads N] [--rows FILE.csv] [--json FILE]\n", arguments[0]);
      return 2;
    }
  }
  const observations<chinchilla> data = rows.empty() ? drawn_rows() : read_rows(rows);
  const int rounds = quick ? 1 : 5;
  auto starts = published_starts();
  if (quick) starts.resize(100);
  const std::size_t draws = quick ? 40 : 4000;

  std::vector<pack> blocks;
  data.table().fill(blocks);
  objective f(view_of<chinchilla>(), blocks, 1e-3);
  const coefficient_list at = detail::list_from(data.to_fit_units(published::hoffmann()));
  objective_sums sums;
  triangle matrix;
  const int repeats = quick ? 100 : 20'000;
  const auto each = [&](auto&& work) {
    return best_seconds(rounds,
                        [&] {
                          for (int i = 0; i < repeats; ++i) work();
                        }) /
           repeats;
  };
  nlohmann::json out;
  out["rows"] = data.size();
  out["threads"] = threads;
  out["gradient_us"] = 1e6 * each([&] { f.evaluate(at, sums); });
  out["majorant_us"] = 1e6 * each([&] { f.with_majorant(at, sums, matrix); });
  out["hessian_us"] = 1e6 * each([&] { f.with_hessian(at, sums, matrix); });

  const fit_options options{.threads = threads};
  fit_result result;
  out["starts"] = starts.size();
  out["fit_s"] = best_seconds(rounds, [&] { result = fit<chinchilla>(data, options, starts); });
  out["objective"] = result.objective;
  out["agreeing"] = result.agreeing;
  for (std::size_t j = 0; j < result.names.size(); ++j) out["coefficients"][result.names[j]] = result.values[j];
  const resampling resamples = draw_as_numpy(data.size(), draws, 42);
  out["draws"] = draws;
  std::int64_t failed = 0;
  out["bootstrap_s"] =
      best_seconds(rounds, [&] { failed = bootstrap<chinchilla>(data, result, resamples, options).failed; });
  out["bootstrap_failed"] = failed;

  std::printf("%zu rows, %zu thread(s)\n", data.size(), threads);
  std::printf("value and gradient     %8.3f us\nwith the majorant      %8.3f us\nHessian                %8.3f us\n",
              out["gradient_us"].get<double>(), out["majorant_us"].get<double>(), out["hessian_us"].get<double>());
  std::printf("%5zu starts           %8.4f s   objective %.13g, %lld agree\n", starts.size(),
              out["fit_s"].get<double>(), result.objective, static_cast<long long>(result.agreeing));
  std::printf("%5zu resamples        %8.4f s   %lld failed\n", draws, out["bootstrap_s"].get<double>(),
              static_cast<long long>(failed));
  std::printf("\n72 rows, 6 coefficients, %d starts  reached  gave up  evaluations  seconds\n", quick ? 10 : 200);
  for (const contestant& c : compare_solvers(quick ? 10 : 200)) {
    std::printf("%-33s %8d %8d %12lld %8.4f\n", c.name.c_str(), c.reached, c.failures,
                static_cast<long long>(c.evaluations), c.seconds);
    out["solvers"][c.name] = {
        {"reached", c.reached}, {"gave_up", c.failures}, {"evaluations", c.evaluations}, {"seconds", c.seconds}};
  }
  if (!json.empty()) std::ofstream(json) << out.dump(2) << "\n";
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
