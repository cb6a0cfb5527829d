// How does the program train one model? In a folder that holds its log and checkpoints, so that it can stop and go on.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <smelt/probe/expert_overlap.hpp>
#include <smelt/train/batches.hpp>
#include <smelt/train/options.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "data_argument.hpp"
#include "interrupt.hpp"
#include "kernel_option.hpp"
#include "losses.hpp"
#include "spec_argument.hpp"

namespace smelt::tool {

/// Everything about a run that the command line sets.
struct run_settings {
  train_options options{};
  bool length_given = false;
  std::string data;
  double validation_fraction = 0.05;
  std::int64_t validations = 12;            ///< validations on the way, evenly spaced, and a few early ones
  std::int64_t validation_tokens = 32'768;  ///< tokens of each of them; the final one reads all
  std::int64_t save_every = 0;              ///< steps between checkpoints; 0 is a tenth of the run
  std::int64_t keep = 2;                    ///< checkpoints kept
  std::string out;
  bool resume = false;
  kernel_option kernels{};
};

/// Adds --optimizer to a command.
CLI::Option* add_optimizer_option(CLI::App& command, optimizer_kind& kind);

/// Adds the options of a run to a command.
void add_run_options(CLI::App& command, run_settings& settings);

/// The settings with the seed taken from the common options and, unless given, the length from the shortest context.
/// Throws as choice_of does, and errc::invalid_argument for settings that no run can use.
[[nodiscard]] run_settings completed(run_settings settings, const common_options& common,
                                     const std::vector<named_spec>& specs);

/// How windows are cut for a run with these options.
[[nodiscard]] batch_plan plan_of(const train_options& options);

/// Throws smelt::error when `spec` cannot be trained on `data` here: fields only budgets cover, a vocabulary that is
/// too small, too little text for one window, more memory than the machine has.
void require_trainable(const named_spec& of, const named_data& data, const run_settings& settings);

/// Trains until the end or until `interrupt` is asked, which saves first. Progress goes to standard error, everything
/// else to the folder. Returns whether the run is finished.
[[nodiscard]] bool train_in_folder(const std::filesystem::path& folder, const named_spec& of, const named_data& data,
                                   const run_settings& settings, const common_options& common,
                                   const interrupt_guard& interrupt);

/// What the visits of a trained loop came to.
struct visit_findings {
  /// Means of a compressed visit's writeback over channels, one a receiver, from near to far.
  struct writeback {
    int visit = 0;  ///< 0-based
    std::vector<double> means;
  };
  std::vector<writeback> writebacks;
  std::vector<expert_overlap> overlaps;
};

/// Looks into the newest whole checkpoint of the run in `folder`, which is finished: into its weights, and into the
/// experts that it chooses on the first validation tokens, as many as are read on the way. Nothing to find for a model
/// without a loop, and nothing complete when `interrupt` is asked. Throws as open_newest_checkpoint does, and errc::io
/// when there is no checkpoint.
[[nodiscard]] visit_findings findings_of(const std::filesystem::path& folder, const named_spec& of,
                                         const named_data& data, const run_settings& settings,
                                         const common_options& common, const interrupt_guard& interrupt);

/// A model from a checkpoint, evaluated.
struct checkpoint_losses {
  std::int64_t step = 0;
  std::string folder;
  std::string split;  ///< "validation" of the text it was trained on, or "all" of another
  text_losses losses;
  double bigram_entropy = 0;    ///< of the split, nats a token; NaN when there is none
  std::string trained_dtype{};  ///< what matrix products multiplied in while the model was trained
  std::string dtype{};          ///< what they multiplied in here
  std::string instruction_set{};
  int trained_visits = 1;  ///< of the loop; 1 without one
  int visits = 1;          ///< of the loop in this evaluation
};

/// Evaluates the newest whole checkpoint of the run in `folder` (or the checkpoint that is `folder`). On the text that
/// the run was trained on only the validation split is read, on another all of it. `visits` other than 0 are those of
/// its loop, instead of as many as in training. Throws as open_newest_checkpoint, load_dataset and with_visits do,
/// errc::io when there is no checkpoint, errc::mismatch for another kind of tokens.
[[nodiscard]] checkpoint_losses evaluate_folder(const std::filesystem::path& folder, const std::string& data,
                                                int visits, const kernel_option& kernels, const common_options& common,
                                                const interrupt_guard& interrupt);

}  // namespace smelt::tool
