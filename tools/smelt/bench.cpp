// smelt bench: how fast does a model train, read and write on this machine, and where does the time of a step go?
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <smelt/infer/decoder.hpp>
#include <smelt/kernels/timed_backend.hpp>
#include <smelt/model/language_model.hpp>
#include <smelt/train/data.hpp>
#include <smelt/train/trainer.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocations.hpp"
#include "bandwidth.hpp"
#include "bars.hpp"
#include "command.hpp"
#include "host_backend.hpp"
#include "kernel_option.hpp"
#include "machine.hpp"
#include "spec_argument.hpp"
#include "table.hpp"
#include "training_run.hpp"

namespace smelt::tool {

namespace {

using clocked_backend = timed<host_backend>;

struct bench_arguments {
  std::string spec;
  kernel_option kernels;
  run_settings settings;
  std::int64_t steps = 20;
  bool forward = false;
  std::int64_t prefill = 0;  ///< tokens of a prompt that is a step; 0: no prompts are measured
  std::int64_t decode = 0;   ///< tokens that a step reads one by one; 0: none are
  bool breakdown = false;
  std::string svg;
  std::string against;        ///< SPEC of the other side; empty: the same
  std::string against_dtype;  ///< empty: the same
  std::int64_t against_threads = 0;
};

/// Whether a step reads a sequence to go on with it.
bool is_reading(const bench_arguments& a) {
  return a.prefill > 0 || a.decode > 0;
}

std::string kind_of_step(const bench_arguments& a) {
  return a.prefill > 0 ? "prefill" : a.decode > 0 ? "decode" : a.forward ? "forward" : "training";
}

/// Who is measured: an architecture and how it computes.
struct contestant {
  named_spec of;
  kernel_option kernels;
  std::int64_t threads = 0;
};

/// One step between two measurements of the peak.
struct window {
  double seconds = 0;
  double peak = 0;  ///< FLOP/s of one core: the better of before and after, since a disturbed one only looks slower
};

host_backend make_backend(const contestant& who) {
  const kernel_choice choice = choice_of(who.kernels);
  return host_backend(static_cast<int>(who.threads > 0 ? who.threads : cores()), choice.compute, choice.set);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/// Minor page faults of the process so far.
std::int64_t page_faults() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

/// Text of nothing but random tokens, enough for some batches, as a document that never ends.
named_data random_text(const spec& s, const train_options& o) {
  const std::int64_t tokens = 2 * (8 * o.step_tokens() + 1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  const random_stream random(o.seed, 0);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(s.vocab), i));
  return {.name = "random tokens",
          .validation_fraction = 0.5,
          .text = token_dataset(ids, {.name = "random", .vocab = s.vocab, .end_of_document = -1}, 0.5)};
}

/// A model that steps when told, with its clocks.
class bench_run {
 public:
  bench_run(contestant who, const bench_arguments& a, const common_options& common)
      : who_(std::move(who)),
        settings_(settings_of(a, common)),
        data_(random_text(who_.of.value, settings_.options)),
        backend_(make_backend(who_)),
        clocked_(backend_, a.breakdown || !a.svg.empty() ? update_time::at_once : update_time::deferred) {
    require_trainable(who_.of, data_, settings_);
    const train_options& o = settings_.options;
    const dynamic_arch arch(who_.of.value);
    windows_.reserve(static_cast<std::size_t>(a.steps));
    if (is_reading(a)) {
      step_ = reader(arch, a.decode > 0);
      return;
    }
    const flop_count flop = flops(who_.of.value, conventions::smelt, o.length);
    flop_ =
        static_cast<double>(a.forward ? flop.forward : flop.train) * static_cast<double>(o.sequences * o.accumulation);
    if (!a.forward) {
      const auto run = std::make_shared<trainer<dynamic_arch, clocked_backend>>(arch, clocked_, data_.text, o);
      step_ = [run] { static_cast<void>(run->advance()); };
    } else {
      const auto model =
          std::make_shared<language_model<dynamic_arch, clocked_backend>>(arch, clocked_, o.sequences, o.length);
      const auto weights = std::make_shared<weight_buffer<float>>(who_.of.value);
      initialise(*weights, who_.of.value, o.seed);
      step_ = [this, model, weights, filled = batch(), step = std::int64_t{0}]() mutable {
        fill_training_batch(data_.text.train, plan_of(settings_.options), step++ * settings_.options.sequences, filled);
        static_cast<void>(model->forward(*weights, view(filled)));
      };
    }
  }
  bench_run(const bench_run&) = delete;
  bench_run& operator=(const bench_run&) = delete;

  /// Steps without measuring: the first ones take their memory from the system and fill the caches.
  void warm_up() {
    constexpr int steps = 3;
    clocked_.reset();
    for (int i = 0; i < steps; ++i) step_();
    // No budget tells of a step that reads: only its last token goes through all of the model.
    if (flop_ == 0)
      for (const op_time& t : times()) flop_ += t.flop / steps;
    clocked_.reset();
  }

  void measure() {
    const double before = peak();
    const std::int64_t allocated = allocations(), faulted = page_faults();
    const auto start = std::chrono::steady_clock::now();
    step_();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    allocations_ += allocations() - allocated;
    faults_ += page_faults() - faulted;
    windows_.push_back({seconds.count(), (std::max)(before, peak())});
  }

  [[nodiscard]] const contestant& who() const noexcept { return who_; }
  [[nodiscard]] const host_backend& backend() const noexcept { return backend_; }
  [[nodiscard]] const std::vector<window>& windows() const noexcept { return windows_; }
  [[nodiscard]] std::span<const op_time> times() const noexcept { return clocked_.times(); }
  [[nodiscard]] double tokens() const noexcept { return static_cast<double>(settings_.options.step_tokens()); }
  [[nodiscard]] double flop() const noexcept { return flop_; }
  /// Bytes of the matrices that one token is multiplied by, every visit of a layer reading its own.
  [[nodiscard]] double weight_bytes() const {
    const spec& s = who_.of.value;
    const std::int64_t weights =
        unrolled_parameters(parameters(s), span_of(s).visits) + std::int64_t{s.vocab} * s.width;
    return static_cast<double>(weights) * (backend_.compute() == compute_type::bf16 ? 2 : 4);
  }
  [[nodiscard]] double steps() const noexcept { return static_cast<double>(windows_.size()); }
  [[nodiscard]] double allocations_per_step() const noexcept { return static_cast<double>(allocations_) / steps(); }
  [[nodiscard]] double faults_per_step() const noexcept { return static_cast<double>(faults_) / steps(); }

  /// The median over the windows of f(window).
  template <class F>
  [[nodiscard]] double median_of(F f) const {
    std::vector<double> values;
    for (const window& w : windows_) values.push_back(f(w));
    return median(std::move(values));
  }

 private:
  /// A step that reads a sequence from its start.
  std::function<void()> reader(const dynamic_arch& arch, bool one_by_one) {
    const auto weights = std::make_shared<weight_buffer<float>>(who_.of.value);
    initialise(*weights, who_.of.value, settings_.options.seed);
    const auto model =
        std::make_shared<decoder<dynamic_arch, clocked_backend>>(arch, clocked_, *weights, settings_.options.length);
    return [this, model, weights, one_by_one, filled = batch(), step = std::int64_t{0}]() mutable {
      fill_training_batch(data_.text.train, plan_of(settings_.options), step++, filled);
      model->clear();
      if (!one_by_one) {
        static_cast<void>(model->prefill(filled.inputs));
      } else {
        for (const std::int32_t token : filled.inputs) static_cast<void>(model->decode(token));
      }
    };
  }

  run_settings settings_of(const bench_arguments& a, const common_options& common) const {
    run_settings settings = completed(a.settings, common, {who_.of});
    if (is_reading(a)) {
      settings.options.sequences = settings.options.accumulation = 1;
      settings.options.length = a.prefill + a.decode;
      if (settings.options.length > who_.of.value.context)
        throw error(errc::invalid_argument, "--" + kind_of_step(a) + " must be at most the context of " + who_.of.name +
                                                ", " + grouped(std::int64_t{who_.of.value.context}) + "; found " +
                                                grouped(settings.options.length));
    }
    settings.options.tokens = (a.steps + 10) * settings.options.step_tokens();
    return settings;
  }

  /// FLOP/s of one core now; the best of a few, since a moment of them may be disturbed.
  [[nodiscard]] double peak() const {
    double best = 0;
    for (int i = 0; i < 4; ++i) best = (std::max)(best, backend_.core_peak());
    return best;
  }

  contestant who_;
  run_settings settings_;
  named_data data_;
  host_backend backend_;
  clocked_backend clocked_;
  std::function<void()> step_;
  double flop_ = 0;  ///< of a step
  std::vector<window> windows_;
  std::int64_t allocations_ = 0;
  std::int64_t faults_ = 0;
};

/// What an op cost in a step, on average.
struct op_share {
  std::string op;
  std::string pass;
  double seconds = 0;
  double share = 0;  ///< of the step's time
  double calls = 0;
  double flop = 0;
  double bytes = 0;
};

/// What would take the longest of an op if nothing stood in its way, and the share of its time that this is.
struct op_limit {
  std::string name;  ///< compute, or the memory that its arrays come from; empty when the op has no known work
  double share = 0;
};

constexpr const char* both_passes = "forward and backward";
constexpr std::array passes{"forward", "backward", both_passes, "update", "other"};

std::string pass_of(std::string_view op) {
  if (op.find("with_gradient") != std::string_view::npos) return both_passes;
  if (op.find("backward") != std::string_view::npos) return "backward";
  return op == "adamw" || op == "muon" || op == "norm" ? "update" : "forward";
}

/// The ops of a step from the longest to the shortest, and what is left of the step as "other".
std::vector<op_share> shares_of(const bench_run& run) {
  double total = 0, clocked = 0;
  for (const window& w : run.windows()) total += w.seconds;
  std::vector<op_share> shares;
  for (const op_time& t : run.times()) {
    if (t.calls == 0) continue;
    clocked += t.seconds;
    shares.push_back({std::string(t.op), pass_of(t.op), t.seconds / run.steps(), t.seconds / total,
                      static_cast<double>(t.calls) / run.steps(), t.flop / run.steps(), t.bytes / run.steps()});
  }
  std::ranges::sort(shares, std::greater<>(), &op_share::seconds);
  shares.push_back({"other", "other", (total - clocked) / run.steps(), (total - clocked) / total});
  return shares;
}

double peak_of(const bench_run& run) {
  return run.median_of([](const window& w) { return w.peak; }) * run.backend().threads();
}
double median_seconds(const bench_run& run) {
  return run.median_of([](const window& w) { return w.seconds; });
}
double best_seconds(const bench_run& run) {
  return std::ranges::min(run.windows(), {}, &window::seconds).seconds;
}
double of_peak(const bench_run& run) {
  return run.median_of([&](const window& w) { return run.flop() / w.seconds / (w.peak * run.backend().threads()); });
}

/// Its operations at the peak against its arrays, each read once from the nearest memory that holds those of a call.
op_limit limit_of(const op_share& s, double peak, const std::vector<memory_level>& levels) {
  if (!(s.calls > 0) || !(s.bytes > 0)) return {};
  auto level = levels.begin();
  while (level + 1 != levels.end() && s.bytes / s.calls > static_cast<double>(level->bytes)) ++level;
  const double compute = s.flop / peak, reading = s.bytes / level->bandwidth;
  return compute > reading ? op_limit{"compute", compute / s.seconds} : op_limit{level->name, reading / s.seconds};
}

nlohmann::ordered_json json_of(const bench_run& run, const bench_arguments& a,
                               const std::vector<memory_level>& levels) {
  const double seconds = median_seconds(run), peak = peak_of(run);
  nlohmann::ordered_json j;
  j["spec"] = run.who().of.name;
  j["pass"] = kind_of_step(a);
  j["dtype"] = name_of(run.backend().compute());
  j["instruction_set"] = name_of(run.backend().instructions());
  j["threads"] = run.backend().threads();
  j["tokens_per_step"] = static_cast<std::int64_t>(run.tokens());
  j["steps"] = run.windows().size();
  j["seconds_per_step"] = seconds;
  j["tokens_per_second"] = run.tokens() / seconds;
  j["best_tokens_per_second"] = run.tokens() / best_seconds(run);
  if (is_reading(a)) j[kind_of_step(a) + "_tokens_per_second"] = run.tokens() / seconds;
  if (a.decode > 0) {
    const double read = run.weight_bytes() * run.tokens() / seconds, memory = levels.back().bandwidth;
    j["weight_bytes_per_token"] = run.weight_bytes();
    j["weight_bytes_per_second"] = read;
    j["memory_bytes_per_second"] = memory;
    j["of_memory"] = read / memory;
  }
  j["flop_per_step"] = run.flop();
  j["flop_per_second"] = run.flop() / seconds;
  j["peak_flop_per_second"] = peak;
  j["of_peak"] = of_peak(run);
  j["allocations_per_step"] = run.allocations_per_step();
  j["faults_per_step"] = run.faults_per_step();
  j["ops"] = nlohmann::ordered_json::array();
  for (const op_share& s : shares_of(run)) {
    nlohmann::ordered_json op{{"op", s.op},       {"pass", s.pass}, {"seconds", s.seconds}, {"share", s.share},
                              {"calls", s.calls}, {"flop", s.flop}, {"bytes", s.bytes},     {"of_peak", nullptr}};
    if (s.flop > 0) op["of_peak"] = s.flop / s.seconds / peak;
    if (!levels.empty()) {
      const op_limit limit = limit_of(s, peak, levels);
      op["limit"] = limit.name.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(limit.name);
      op["of_limit"] = limit.name.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(limit.share);
    }
    j["ops"].push_back(op);
  }
  j["machine"] = machine();
  return j;
}

/// How many times faster `run` is than `other`: the median over the rounds, in which they took turns, of the ratio of
/// what `rate` says of a window.
template <class F>
double times_faster(const bench_run& run, const bench_run& other, F rate) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < run.windows().size(); ++i)
    ratios.push_back(rate(run, run.windows()[i]) / rate(other, other.windows()[i]));
  return median(std::move(ratios));
}

std::string percent_text(double share) {
  return fixed(100 * share, 1) + " %";
}

std::string title_of(const bench_run& run, const bench_arguments& a) {
  const char* steps = a.prefill > 0  ? "prompts of "
                      : a.decode > 0 ? "sequences read token by token, of "
                      : a.forward    ? "forward passes of "
                                     : "training steps of ";
  return run.who().of.name + ", " + std::string(name_of(run.backend().compute())) + " on " +
         std::string(name_of(run.backend().instructions())) + ", " + std::to_string(run.backend().threads()) +
         (run.backend().threads() == 1 ? " thread, " : " threads, ") + steps +
         grouped(static_cast<std::int64_t>(run.tokens())) + " tokens";
}

table breakdown_table(const bench_run& run, const std::vector<memory_level>& levels) {
  const std::vector<op_share> shares = shares_of(run);
  const double peak = peak_of(run);
  double most = 0;
  for (const op_share& s : shares) most = (std::max)(most, s.share);
  table t{"",
          {{"op", false},
           {"ms a step"},
           {"share"},
           {"", false},
           {"calls"},
           {"GFLOP/s"},
           {"of peak"},
           {"GB/s"},
           {"limit", false},
           {"of it"}},
          {}};
  for (const op_share& s : shares) {
    const double rate = s.flop / s.seconds;
    const op_limit limit = limit_of(s, peak, levels);
    t.rows.push_back({s.op, fixed(s.seconds * 1e3, 3), percent_text(s.share), bar_text(s.share, most, 24),
                      s.calls > 0 ? compact(s.calls) : "", s.flop > 0 ? fixed(rate * 1e-9, 1) : "",
                      s.flop > 0 ? percent_text(rate / peak) : "",
                      s.bytes > 0 ? fixed(s.bytes / s.seconds * 1e-9, 1) : "", limit.name,
                      limit.name.empty() ? "" : percent_text(limit.share)});
  }
  std::string by_pass;
  for (const char* pass : passes) {
    double share = 0;
    for (const op_share& s : shares) share += s.pass == pass ? s.share : 0;
    if (share > 0) by_pass += (by_pass.empty() ? "" : ", ") + std::string(pass) + " " + percent_text(share);
  }
  t.notes.push_back(by_pass);
  t.notes.emplace_back("FLOPs: of the products that the results need; what is computed again counts as time alone");
  t.notes.emplace_back("GB/s: every array an op is given, counted once; other: the step outside of ops");
  std::string read;
  for (const memory_level& level : levels)
    read += (read.empty() ? "" : ", ") + std::string(level.name) + " " + fixed(level.bandwidth * 1e-9, 0);
  t.notes.push_back(
      "limit: the longer of the FLOPs at the peak and the arrays read from the nearest memory that holds");
  t.notes.push_back("a call's (GB/s: " + read + ")");
  return t;
}

void print(const bench_run& run, const bench_arguments& a, const std::vector<memory_level>& levels) {
  const double seconds = median_seconds(run);
  table t{title_of(run, a), {{"", false}, {"median"}, {"best"}}, {}};
  const double best = best_seconds(run);
  t.rows.push_back({"ms a step", fixed(seconds * 1e3, 2), fixed(best * 1e3, 2)});
  t.rows.push_back({"tokens/s", grouped(fixed(run.tokens() / seconds, 0)), grouped(fixed(run.tokens() / best, 0))});
  t.rows.push_back({"GFLOP/s", fixed(run.flop() / seconds * 1e-9, 1), fixed(run.flop() / best * 1e-9, 1)});
  if (a.decode > 0) {
    const double bytes = run.weight_bytes() * run.tokens();
    t.rows.push_back({"GB/s of weights", fixed(bytes / seconds * 1e-9, 1), fixed(bytes / best * 1e-9, 1)});
    t.notes.push_back("a token reads " + fixed(run.weight_bytes() * 1e-6, 2) + " MB of weights; memory delivers " +
                      fixed(levels.back().bandwidth * 1e-9, 1) + " GB/s, the caches more");
  }
  double best_share = 0;
  for (const window& w : run.windows())
    best_share = (std::max)(best_share, run.flop() / w.seconds / (w.peak * run.backend().threads()));
  t.rows.push_back({"of the peak", percent_text(of_peak(run)), percent_text(best_share)});
  t.notes.push_back("peak: " + fixed(peak_of(run) * 1e-9, 0) + " GFLOP/s, measured around every one of " +
                    std::to_string(run.windows().size()) + " steps");
  t.notes.push_back("a step: " + compact(run.allocations_per_step()) + " allocations, " +
                    compact(run.faults_per_step()) + " page faults");
  std::cout << to_text(t);
  if (a.breakdown) std::cout << "\n" << to_text(breakdown_table(run, levels));
}

bar_chart chart_of(const bench_run& run, const bench_arguments& a) {
  bar_chart chart{title_of(run, a), {passes.begin(), passes.end()}, {}};
  for (const op_share& s : shares_of(run))
    chart.bars.push_back({s.op, s.pass, s.share, percent_text(s.share) + ", " + fixed(s.seconds * 1e3, 2) + " ms"});
  return chart;
}

void require_written(const std::ofstream& file, const std::string& name) {
  if (!file) throw error(errc::io, "--svg must name a file that can be written; found '" + name + "'");
}

int bench(const common_options& common, const bench_arguments& a) {
  const contestant one{spec_of_argument(a.spec), a.kernels, common.threads};
  std::ofstream drawing;
  if (!a.svg.empty()) {
    drawing.open(a.svg);  // before anything is measured that could then not be drawn
    require_written(drawing, a.svg);
  }
  std::vector<std::unique_ptr<bench_run>> runs;
  runs.push_back(std::make_unique<bench_run>(one, a, common));
  if (!a.against.empty() || !a.against_dtype.empty() || a.against_threads > 0) {
    contestant other = one;
    if (!a.against.empty()) other.of = spec_of_argument(a.against);
    if (!a.against_dtype.empty()) other.kernels.dtype = a.against_dtype;
    if (a.against_threads > 0) other.threads = a.against_threads;
    runs.push_back(std::make_unique<bench_run>(other, a, common));
  }
  for (const auto& run : runs) run->warm_up();
  for (std::int64_t i = 0; i < a.steps; ++i)
    for (const auto& run : runs) run->measure();

  if (drawing.is_open()) {
    drawing << to_svg(chart_of(*runs.front(), a)) << std::flush;
    require_written(drawing, a.svg);
  }
  // Every side with its own number of threads has its own limits.
  std::vector<std::vector<memory_level>> levels(runs.size());
  if (a.breakdown || a.decode > 0) {
    const read_buffer buffer(static_cast<std::size_t>(measured_memory()));
    for (std::size_t i = 0; i < runs.size(); ++i) levels[i] = memory_levels(buffer, runs[i]->backend().threads());
  }
  nlohmann::ordered_json j = json_of(*runs.front(), a, levels.front());
  if (!common.json) print(*runs.front(), a, levels.front());
  if (runs.size() > 1) {
    const bench_run &run = *runs[0], &other = *runs[1];
    const double tokens =
        times_faster(run, other, [](const bench_run& r, const window& w) { return r.tokens() / w.seconds; });
    const double flop =
        times_faster(run, other, [](const bench_run& r, const window& w) { return r.flop() / w.seconds; });
    j["against"] = json_of(other, a, levels.back());
    j["tokens_per_second_ratio"] = tokens;
    j["flop_per_second_ratio"] = flop;
    if (!common.json) {
      std::cout << "\n";
      print(other, a, levels.back());
      std::cout << "\nThe first is " << fixed(tokens, 3) << " x as fast as the second in tokens/s, " << fixed(flop, 3)
                << " x in FLOP/s (median of " << a.steps << " turns).\n";
    }
  }
  if (common.json) std::cout << j.dump(2) << "\n";
  return exit_fine;
}

}  // namespace

void add_bench(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure how fast a model trains, reads and writes, and where the time goes");
  const auto a = std::make_shared<bench_arguments>();
  command->add_option("SPEC", a->spec, "A preset's name or a JSON file")->required()->type_name("");
  add_count(*command, "--steps", a->steps, 1, "Steps that are measured (default: 20)", 1'000'000);
  add_count(*command, "--sequences", a->settings.options.sequences, 1, "Sequences a batch (default: 8)");
  command
      ->add_option_function<std::string>(
          "--length",
          [a](const std::string& text) {
            a->settings.options.length = parse_count(text, "--length", 1);
            a->settings.length_given = true;
          },
          "Tokens a sequence (default: the context)")
      ->type_name("N");
  add_count(*command, "--accumulation", a->settings.options.accumulation, 1, "Batches a step (default: 1)");
  CLI::Option* optimizer = add_optimizer_option(*command, a->settings.options.optimizer);
  add_kernel_options(*command, a->kernels);
  CLI::Option* forward = command->add_flag("--forward", a->forward, "Forward passes alone");
  CLI::Option* prefill =
      add_count(*command, "--prefill", a->prefill, 1, "Prompts of so many tokens instead of training steps");
  CLI::Option* decode =
      add_count(*command, "--decode", a->decode, 1, "So many tokens, one by one, instead of training steps");
  forward->excludes(prefill)->excludes(decode);
  prefill->excludes(decode);
  optimizer->excludes(forward)->excludes(prefill)->excludes(decode);
  for (const char* of_batches : {"--sequences", "--length", "--accumulation"})
    command->get_option(of_batches)->excludes(prefill)->excludes(decode);
  command->add_flag("--breakdown", a->breakdown, "Show the time of every op, and what limits it");
  command->add_option("--svg", a->svg, "Draw the time of every op into this file")->type_name("FILE");
  command->add_option("--against", a->against, "Measure this SPEC too, in turns")->type_name("SPEC");
  command->add_option("--against-dtype", a->against_dtype, "Measure with this --dtype too, in turns")
      ->type_name("NAME");
  add_count(*command, "--against-threads", a->against_threads, 1, "Measure with so many threads too, in turns",
            max_threads);
  command->footer(
      "Steps run on random tokens; nothing is saved. Each is measured between two measurements of what a core's\n"
      "multiply-adds reach at most, so that a busy machine shows in both.\n"
      "\nExamples:\n  smelt bench nano --breakdown\n  smelt bench nano --dtype bf16 --against-dtype fp32\n"
      "  smelt bench nano-smelt --against nano --json\n  smelt bench model.json --threads 2 --against-threads 1\n"
      "  smelt bench nano --breakdown --svg step.svg\n  smelt bench nano --decode 64 --threads 1");
  command->callback([a, &common, &chosen] { chosen = [a, &common] { return bench(common, *a); }; });
}

}  // namespace smelt::tool
