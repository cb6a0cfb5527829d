// smelt eval: how well does a trained model predict a text?
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <smelt/spec/visit.hpp>
#include <string>

#include "command.hpp"
#include "kernel_option.hpp"
#include "losses.hpp"
#include "training_run.hpp"

namespace smelt::tool {

namespace {

struct eval_arguments {
  std::string folder;
  std::string data;
  std::int64_t visits = 0;  ///< of the loop; 0 is as many as in training
  kernel_option kernels{};
};

/// How often the loop was visited then and now.
std::string visits_note(const checkpoint_losses& found) {
  return "trained with " + std::to_string(found.trained_visits) + (found.trained_visits == 1 ? " visit" : " visits") +
         ", evaluated with " + std::to_string(found.visits);
}

int eval(const common_options& common, const eval_arguments& a) {
  const interrupt_guard interrupt;
  const checkpoint_losses found =
      evaluate_folder(a.folder, a.data, static_cast<int>(a.visits), a.kernels, common, interrupt);
  if (interrupt.asked()) return exit_interrupted;
  if (common.json) {
    nlohmann::ordered_json j;
    j["checkpoint"] = found.folder;
    j["step"] = found.step;
    j["data"] = a.data;
    j["split"] = found.split;
    j["trained_dtype"] = found.trained_dtype;
    j["dtype"] = found.dtype;
    j["instruction_set"] = found.instruction_set;
    j["trained_visits"] = found.trained_visits;
    j["visits"] = found.visits;
    if (a.visits > 0) j["note"] = visits_note(found);
    j["validation"] = summary_json(found.losses);
    j["bigram_entropy"] = found.bigram_entropy;
    std::cout << j.dump(2) << "\n";
    return exit_fine;
  }
  table t = losses_table({{"step " + grouped(found.step), found.losses}}, found.bigram_entropy);
  t.caption = "Loss of " + found.folder;
  if (a.visits > 0) t.caption += ", " + visits_note(found);
  t.notes.push_back(found.split == "all" ? "text: all of " + a.data + ", which is not what the model was trained on"
                                         : "text: the validation split of " + a.data);
  t.notes.push_back("matrix products: " + found.dtype + " (" + found.instruction_set + "), " +
                    (found.trained_dtype == found.dtype ? "as in training" : "in training " + found.trained_dtype));
  std::cout << to_text(t);
  return exit_fine;
}

}  // namespace

void add_eval(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("eval", "Evaluate the newest checkpoint of a run on a text");
  const auto a = std::make_shared<eval_arguments>();
  command->add_option("DIR", a->folder, "Folder of a run, or of one of its checkpoints")->required()->type_name("");
  command
      ->add_option("--data", a->data,
                   "builtin, builtin:large, or a path: JSON Lines, text, a folder of them, token shards")
      ->required()
      ->type_name("DATA");
  add_count(
      *command, "--visits", a->visits, 1,
      "Visit the loop so often instead of as in training: for models whose visits all follow one plan and have no "
      "weights of their own; the coefficient stays as trained",
      max_visits);
  add_kernel_options(*command, a->kernels);
  command->footer(
      "Of the text that the run was trained on, only the validation split is read; of any other, all of it.\n"
      "\nExamples:\n  smelt eval runs/nano --data builtin\n"
      "  smelt eval runs/nano-smelt --data builtin --visits 3\n"
      "  smelt eval runs/nano/step-00000240 --data book.txt --json");
  command->callback([a, &common, &chosen] { chosen = [a, &common] { return eval(common, *a); }; });
}

}  // namespace smelt::tool
