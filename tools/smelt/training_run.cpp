#include "training_run.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/budget/memory.hpp>
#include <smelt/core/error.hpp>
#include <smelt/infer/with_visits.hpp>
#include <smelt/io/spec_json.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/probe/writeback_means.hpp>
#include <smelt/train/bigram.hpp>
#include <smelt/train/checkpoint.hpp>
#include <smelt/train/log.hpp>
#include <smelt/train/trainer.hpp>
#include <utility>

#include "host_backend.hpp"
#include "machine.hpp"
#include "number.hpp"
#include "progress.hpp"
#include "run_story.hpp"

namespace smelt::tool {

namespace {

host_backend make_backend(const kernel_option& kernels, const common_options& common) {
  const kernel_choice choice = choice_of(kernels);
  return host_backend(static_cast<int>(common.threads > 0 ? common.threads : cores()), choice.compute, choice.set);
}

/// Adds an option that is a real number.
void add_real(CLI::App& command, const std::string& name, double& value, const std::string& description) {
  command
      .add_option_function<std::string>(
          name, [&value, name](const std::string& text) { value = parse_real(text, name); }, description)
      ->type_name("X");
}

/// The schedule called `name`. Throws errc::invalid_argument with the names there are.
decay_kind schedule_of(const std::string& name) {
  std::string all;
  for (const decay_kind decay : {decay_kind::cosine, decay_kind::wsd, decay_kind::constant}) {
    if (name == name_of(decay)) return decay;
    all += (all.empty() ? "" : ", ") + std::string(name_of(decay));
  }
  throw error(errc::invalid_argument, "--schedule must be one of " + all + "; found \"" + name + "\"");
}

/// The optimiser called `name`. Throws errc::invalid_argument with the names there are.
optimizer_kind optimizer_of(const std::string& name) {
  for (const optimizer_kind kind : {optimizer_kind::adamw, optimizer_kind::muon})
    if (name == name_of(kind)) return kind;
  throw error(errc::invalid_argument, "--optimizer must be one of adamw, muon; found \"" + name + "\"");
}

/// a / b, rounded up. Precondition: both are at least 1.
std::int64_t ceiling(std::int64_t a, std::int64_t b) {
  return (a - 1) / b + 1;
}

/// When a run looks at its validation text: evenly, and a few times early, where the loss falls fastest.
bool validation_due(std::int64_t step, std::int64_t steps, const run_settings& settings) {
  if (settings.validations == 0 || step == 0) return false;
  const std::int64_t every = (std::max)(std::int64_t{1}, steps / settings.validations);
  return step % every == 0 || step == steps || step == every / 2 || step == every / 4 || step == every / 8;
}

std::int64_t save_interval(std::int64_t steps, const run_settings& settings) {
  return settings.save_every > 0 ? settings.save_every : (std::max)(std::int64_t{1}, steps / 10);
}

/// Losses under their categories' names, with the bytes that were predicted: end-of-document tokens are targets too.
text_losses losses_of(const evaluation& found, const dataset& text, const batch_plan& plan) {
  text_losses losses{{"total", found.total.nats, found.total.targets, 0}};
  for (std::size_t c = 0; c < text.categories.size(); ++c)
    if (found.by_category[c].targets > 0)
      losses.push_back({text.categories[c], found.by_category[c].nats, found.by_category[c].targets, 0});
  if (text.format.name != token_format{}.name) return losses;
  batch filled;
  for (std::int64_t i = 0; i < validation_batches(text.validation, plan); ++i) {
    fill_validation_batch(text.validation, plan, i, filled);
    for (std::size_t t = 0; t < filled.targets.size(); ++t) {
      if (filled.targets[t] < 0 || filled.targets[t] == text.format.end_of_document) continue;
      ++losses.front().bytes;
      const std::string& category = text.categories[static_cast<std::size_t>(filled.categories[t])];
      const auto entry = std::ranges::find(losses.begin() + 1, losses.end(), category, &text_loss::name);
      if (entry != losses.end()) ++entry->bytes;
    }
  }
  return losses;
}

double bigram_entropy_of(const dataset& text) {
  // A vocabulary too large for the table has no such yardstick.
  if (text.format.vocab > 4'096 || text.validation.tokens.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  return bigram_entropy(text.validation.tokens, text.format.vocab);
}

nlohmann::json header_line(const named_spec& of, const named_data& data, const run_settings& settings,
                           const training& run, const host_backend& kernels) {
  return {{"kind", "run"},
          {"step", 0},
          {"name", of.name},
          {"spec", spec_to_json(of.value)},
          {"options", smelt::to_json(run.options())},
          {"data",
           {{"name", data.name},
            {"fingerprint", std::to_string(data.text.fingerprint)},
            {"validation_fraction", data.validation_fraction},
            {"training_tokens", data.text.train.tokens.size()},
            {"validation_tokens", data.text.validation.tokens.size()},
            {"categories", data.text.categories},
            {"bigram_entropy", bigram_entropy_of(data.text)}}},
          {"validation_tokens_on_the_way", settings.validation_tokens},
          {"dtype", name_of(kernels.compute())},
          {"instruction_set", name_of(kernels.instructions())},
          {"threads", kernels.threads()},
          {"recompute", run.options().recompute},
          {"machine", machine()},
          {"version", SMELT_VERSION}};
}

/// Puts `run` where the newest whole checkpoint of `folder` left off, if it may.
void start(training& run, const run_folder& folder, const run_settings& settings, progress& shown) {
  const bool used = !find_checkpoints(folder.path()).empty();
  if (used && !settings.resume)
    throw error(errc::invalid_argument, "'" + folder.path().string() +
                                            "' already holds a run; add --resume to go on with it, or choose another "
                                            "folder with --out");
  if (!settings.resume) {
    std::filesystem::remove(folder.path() / log_name);  // of a run that was killed before its first save
    return;
  }
  found_checkpoint found = open_newest_checkpoint(folder.path());
  for (const skipped_checkpoint& s : found.skipped) shown.note("passed over a checkpoint: " + s.reason);
  if (!found.newest) {
    if (used) throw error(errc::corrupt, "'" + folder.path().string() + "' has no whole checkpoint to resume from");
    return;
  }
  run.resume(*found.newest);
  shown.note("resuming after step " + grouped(run.step()) + " of " + grouped(run.options().steps()));
}

}  // namespace

CLI::Option* add_optimizer_option(CLI::App& command, optimizer_kind& kind) {
  return command
      .add_option_function<std::string>(
          "--optimizer", [&kind](const std::string& name) { kind = optimizer_of(name); },
          "adamw (default), or muon: of the matrices between embedding and head, AdamW of the rest")
      ->type_name("NAME");
}

void add_run_options(CLI::App& command, run_settings& s) {
  train_options& o = s.options;
  command
      .add_option("--data", s.data,
                  "builtin, builtin:large, or a path: JSON Lines, text, a folder of them, token shards (.bin)")
      ->required()
      ->type_name("DATA");
  add_count(command, "--tokens", o.tokens, 1, "Training tokens (default: 2M)");
  command.add_option("--out", s.out, "Folder of the run")->required()->type_name("DIR");
  command.add_flag("--resume", s.resume, "Go on from the newest whole checkpoint in DIR, if there is one");
  const std::string training = "Training";
  add_count(command, "--sequences", o.sequences, 1, "Sequences a batch (default: 8)")->group(training);
  command
      .add_option_function<std::string>(
          "--length",
          [&s](const std::string& text) {
            s.options.length = parse_count(text, "--length", 1);
            s.length_given = true;
          },
          "Tokens a sequence (default: the context)")
      ->type_name("N")
      ->group(training);
  add_count(command, "--accumulation", o.accumulation, 1, "Batches a step (default: 1)")->group(training);
  add_optimizer_option(command, o.optimizer);
  add_real(command, "--learning-rate", o.learning_rate, "Peak (default: 0.003)");
  add_real(command, "--warmup", o.warmup_share, "Share of the steps that warm up (default: 0.05)");
  command
      .add_option_function<std::string>(
          "--schedule", [&o](const std::string& name) { o.decay = schedule_of(name); },
          "cosine (default), wsd or constant")
      ->type_name("NAME");
  add_real(command, "--decay", o.decay_share, "Share of the steps in which wsd decays (default: 0.2)");
  add_real(command, "--final", o.final_share, "Share of the peak that a decay ends at (default: 0.1)");
  add_real(command, "--weight-decay", o.weight_decay, "Decoupled, on matrices (default: 0.1)");
  add_real(command, "--clip", o.clip, "Largest gradient norm; 0 is none (default: 1)");
  add_real(command, "--balance", o.balance, "Coefficient of the balance loss (default: 0.01)");
  add_real(command, "--z", o.z, "Coefficient of the z-loss (default: 0.001)");
  for (const char* name : {"--optimizer", "--learning-rate", "--warmup", "--schedule", "--decay", "--final",
                           "--weight-decay", "--clip", "--balance", "--z"})
    command.get_option(name)->group(training);
  command.add_flag_callback(
             "--no-document-masks", [&o] { o.document_masks = false; }, "Let attention cross documents")
      ->group(training);
  command
      .add_flag("--recompute", o.recompute,
                "Keep only the input of every layer and compute the rest again: less memory, the same numbers")
      ->group(training);
  add_kernel_options(command, s.kernels);
  const std::string watching = "Watching and saving";
  add_real(command, "--validation-fraction", s.validation_fraction, "Share of the documents (default: 0.05)");
  command.get_option("--validation-fraction")->group(watching);
  add_count(command, "--validations", s.validations, 0, "Validations on the way (default: 12)")->group(watching);
  add_count(command, "--validation-tokens", s.validation_tokens, 1, "Tokens of each (default: 32768)")->group(watching);
  add_count(command, "--save-every", s.save_every, 1, "Steps between checkpoints (default: a tenth of the run)")
      ->group(watching);
  add_count(command, "--keep", s.keep, 1, "Checkpoints kept (default: 2)")->group(watching);
}

run_settings completed(run_settings settings, const common_options& common, const std::vector<named_spec>& specs) {
  settings.options.seed = static_cast<std::uint64_t>(common.seed);
  if (!settings.length_given) {
    settings.options.length = specs.front().value.context;
    for (const named_spec& s : specs)
      settings.options.length = (std::min)(settings.options.length, std::int64_t{s.value.context});
  }
  if (!(settings.validation_fraction > 0 && settings.validation_fraction < 1))
    throw error(errc::invalid_argument, "--validation-fraction must be above 0 and below 1; found " +
                                            nlohmann::json(settings.validation_fraction).dump());
  static_cast<void>(validate(settings.options));
  static_cast<void>(choice_of(settings.kernels));
  return settings;
}

batch_plan plan_of(const train_options& o) {
  return {.context = o.length, .sequences = o.sequences, .seed = o.seed, .document_masks = o.document_masks};
}

void require_trainable(const named_spec& of, const named_data& data, const run_settings& settings) {
  try {
    static_cast<void>(require_executable(of.value));
    check_vocab(data.text, of.value.vocab);
    static_cast<void>(require_windows(data.text.train, plan_of(settings.options), "training"));
    static_cast<void>(require_windows(data.text.validation, plan_of(settings.options), "validation"));
  } catch (const error& e) {
    throw error(e.code(), of.name + ": " + e.what());
  }
  if (settings.options.length > of.value.context)
    throw error(errc::invalid_argument, "--length must be at most the context of " + of.name + ", " +
                                            grouped(std::int64_t{of.value.context}) + "; found " +
                                            grouped(settings.options.length));
  const training_memory needed = memory_of_training(
      of.value,
      {.tokens = settings.options.sequences * settings.options.length, .recompute = settings.options.recompute});
  if (physical_memory() > 0 && needed.total > physical_memory())
    throw error(errc::invalid_argument, of.name + " needs " + binary_bytes(static_cast<double>(needed.total)) +
                                            " of memory to train with these batches; this machine has " +
                                            binary_bytes(static_cast<double>(physical_memory())) +
                                            "; choose a smaller architecture or batch" +
                                            (settings.options.recompute ? "" : ", or add --recompute"));
}

bool train_in_folder(const std::filesystem::path& path, const named_spec& of, const named_data& data,
                     const run_settings& settings, const common_options& common, const interrupt_guard& interrupt) {
  const run_folder folder(path);
  host_backend kernels = make_backend(settings.kernels, common);
  trainer<dynamic_arch, host_backend> run(dynamic_arch(of.value), kernels, data.text, settings.options);
  const std::int64_t steps = run.options().steps();
  std::optional<progress> shown(std::in_place, of.name, std::int64_t{0}, steps);
  start(run, folder, settings, *shown);
  shown.emplace(of.name, run.step(), steps);

  run_log log(path / log_name, run.step());
  run_story before = story_of(path);
  if (before.header.is_null()) log.append(header_line(of, data, settings, run, kernels));
  const std::int64_t interval = save_interval(steps, settings);
  const std::int64_t batches =
      ceiling(settings.validation_tokens, settings.options.sequences * settings.options.length);
  std::int64_t validated = before.validated, saved = run.step();
  double flops = before.flops;
  const auto going = [&] { return !interrupt.asked(); };
  const auto line = [&](const char* kind) {
    return nlohmann::json{
        {"kind", kind}, {"step", run.step()}, {"tokens", run.step() * run.options().step_tokens()}, {"flops", flops}};
  };
  const auto save = [&] {
    if (saved == run.step()) return;
    for (const std::string& warning : run.save(folder, settings.keep).warnings) shown->note(warning);
    saved = run.step();
  };

  // What is logged about a step is logged before the step is saved: a resumed run finds all of it.
  while (going()) {
    if (validation_due(run.step(), steps, settings) && validated < run.step()) {
      const evaluation found = run.evaluate(batches, going);
      if (!going()) break;
      nlohmann::json validation = line("validation");
      validation["loss"] = found.loss();
      validation["targets"] = found.total.targets;
      log.append(validation);
      validated = run.step();
    }
    if (run.done()) break;
    if (run.step() % interval == 0) save();
    const step_record record = run.advance();
    flops = record.flops;
    log.append(to_json(record));
    shown->show(record.step, record.loss, record.tokens_per_second);
    if (!record.not_finite.empty())
      shown->note("step " + grouped(record.step) + " changed nothing: " + record.not_finite + " is not finite");
  }
  bool finished = run.done() && !before.final_losses.empty();
  if (run.done() && !finished && going()) {
    shown->phase("evaluating on the whole validation text");
    const evaluation found = run.evaluate(0, going);
    if (going()) {
      nlohmann::json last = line("final");
      last["losses"] = to_json(losses_of(found, data.text, plan_of(settings.options)));
      log.append(last);
      finished = true;
    }
  }
  save();
  if (!finished)
    shown->note("stopped after step " + grouped(run.step()) + " of " + grouped(steps) +
                (run.step() > 0 ? "; saved" : "; nothing to save yet"));
  return finished;
}

visit_findings findings_of(const std::filesystem::path& folder, const named_spec& of, const named_data& data,
                           const run_settings& settings, const common_options& common,
                           const interrupt_guard& interrupt) {
  const spec& s = of.value;
  visit_findings result;
  if (span_of(s).count == 0) return result;
  const found_checkpoint found = open_newest_checkpoint(folder);
  if (!found.newest) throw error(errc::io, "'" + folder.string() + "' has no whole checkpoint");
  weight_buffer<float> weights(s);
  static_cast<void>(read_tensors(found.newest->weights, weights, s));
  for (int visit = 0; visit < s.loop.visits.count; ++visit)
    if (std::vector<double> means = writeback_means(s, weights, visit); !means.empty())
      result.writebacks.push_back({visit, std::move(means)});

  expert_overlaps overlaps(s);
  if (overlaps.found().empty()) return result;
  host_backend kernels = make_backend(settings.kernels, common);
  // One sequence at a time: a model that saves all activations takes little memory then.
  batch_plan plan = plan_of(settings.options);
  plan.sequences = 1;
  language_model<dynamic_arch, host_backend> model(dynamic_arch(s), kernels, plan.sequences, plan.context);
  const auto hold = kernels.hold_weights();
  const std::int64_t batches =
      (std::min)(validation_batches(data.text.validation, plan), ceiling(settings.validation_tokens, plan.context));
  batch filled;
  for (std::int64_t i = 0; i < batches && !interrupt.asked(); ++i) {
    fill_validation_batch(data.text.validation, plan, i, filled);
    static_cast<void>(model.forward(weights, view(filled)));
    overlaps.add(model, view(filled));
  }
  result.overlaps = overlaps.found();
  return result;
}

checkpoint_losses evaluate_folder(const std::filesystem::path& folder, const std::string& data, int visits,
                                  const kernel_option& kernels_option, const common_options& common,
                                  const interrupt_guard& interrupt) {
  host_backend kernels = make_backend(kernels_option, common);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw error(errc::io, "DIR must be the folder of a run; found no folder '" + folder.string() + "'");
  found_checkpoint found;
  std::filesystem::path run = folder;
  if (std::filesystem::exists(folder / "state.json", ignored)) {
    const std::filesystem::path self = std::filesystem::absolute(folder / "").parent_path();
    run = self.parent_path();
    const std::string name = self.filename().string();
    const auto step = read_count(name.starts_with("step-") ? name.substr(5) : "");
    if (!step) throw error(errc::io, "a checkpoint's folder must be called step-NUMBER; found '" + name + "'");
    found.newest.emplace(open_checkpoint({*step, folder}));
  } else {
    found = open_newest_checkpoint(folder);
  }
  for (const skipped_checkpoint& s : found.skipped)
    std::cerr << "smelt: note: passed over a checkpoint: " << s.reason << "\n";
  if (!found.newest)
    throw error(errc::io, "'" + folder.string() + "' has no whole checkpoint" +
                              (found.skipped.empty() ? "; train one with smelt train" : ""));
  const checkpoint& from = *found.newest;
  const spec trained = spec_from_json(from.state.at("spec"));
  const spec architecture = visits == 0 ? trained : with_visits(trained, visits);
  const nlohmann::json& saved = from.state.at("options");

  // The split of the run itself, or validation text would be text it was trained on.
  const nlohmann::json header = story_of(run).header;
  const double fraction =
      header.is_null() ? run_settings{}.validation_fraction : header.at("data").at("validation_fraction").get<double>();
  named_data text;
  try {
    text = data_of_argument(data, fraction, architecture.vocab);
  } catch (const error& e) {
    // A text of few documents may have no such split; then no run was trained on it. What else is wrong shows again.
    if (e.code() != errc::invalid_argument) throw;
    text = data_of_argument(data, 1.0, architecture.vocab);
  }
  checkpoint_losses result{.step = from.step, .folder = from.folder.string(), .split = "validation", .losses = {}};
  if (from.state.at("data").get<std::string>() != std::to_string(text.text.fingerprint)) {
    text = data_of_argument(data, 1.0, architecture.vocab);
    result.split = "all";
    if (!header.is_null() && header.at("data").at("name").get<std::string>() == data)
      std::cerr << "smelt: note: " << data
                << " has changed since the model was trained on it; all of it is read, training text included\n";
  }
  if (from.state.at("tokenizer").get<std::string>() != text.text.format.name)
    throw error(errc::mismatch, "the model reads tokens of kind " + from.state.at("tokenizer").dump() +
                                    ", the data has \"" + text.text.format.name + "\"");
  check_vocab(text.text, architecture.vocab);

  const batch_plan plan{.context = saved.at("length").get<std::int64_t>(),
                        .sequences = saved.at("sequences").get<std::int64_t>(),
                        .document_masks = saved.at("document_masks").get<bool>()};
  language_model<dynamic_arch, host_backend> model(dynamic_arch(architecture), kernels, plan.sequences, plan.context,
                                                   saved_activations::none);
  weight_buffer<float> weights(architecture);
  for (const std::string& note : read_tensors(from.weights, weights, architecture))
    std::cerr << "smelt: note: " << note << "\n";
  const evaluation e = evaluate(model, weights, text.text.validation, text.text.categories.size(), plan, 0,
                                [&] { return !interrupt.asked(); });
  if (!interrupt.asked()) result.losses = losses_of(e, text.text, plan);
  result.bigram_entropy = bigram_entropy_of(text.text);
  result.trained_dtype = dtype_of(from.state);
  result.dtype = name_of(kernels.compute());
  result.instruction_set = name_of(kernels.instructions());
  result.trained_visits = span_of(trained).visits;
  result.visits = span_of(architecture).visits;
  return result;
}

}  // namespace smelt::tool
