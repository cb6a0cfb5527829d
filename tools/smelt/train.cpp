// smelt train: how does one model learn?
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.hpp"
#include "losses.hpp"
#include "run_story.hpp"
#include "spec_argument.hpp"
#include "training_run.hpp"

namespace smelt::tool {

namespace {

struct train_arguments {
  std::string spec;
  run_settings settings;
};

int train(const common_options& common, const train_arguments& a) {
  const interrupt_guard interrupt;
  const named_spec of = spec_of_argument(a.spec);
  const run_settings settings = completed(a.settings, common, {of});
  const named_data data = data_of_argument(settings.data, settings.validation_fraction, of.value.vocab);
  require_trainable(of, data, settings);
  const bool finished = train_in_folder(settings.out, of, data, settings, common, interrupt);
  const run_story story = story_of(settings.out);
  const double entropy = story.header.at("data").at("bigram_entropy").is_number()
                             ? story.header["data"]["bigram_entropy"].get<double>()
                             : std::numeric_limits<double>::quiet_NaN();
  if (common.json) {
    nlohmann::ordered_json j;
    j["name"] = of.name;
    j["folder"] = settings.out;
    j["finished"] = finished;
    j["dtype"] = story.header.at("dtype");
    j["instruction_set"] = story.header.at("instruction_set");
    j["steps"] = story.steps;
    j["tokens_per_second"] = story.tokens_per_second;
    j["validation"] = finished ? summary_json(story.final_losses) : nlohmann::ordered_json();
    j["bigram_entropy"] = entropy;
    std::cout << j.dump(2) << "\n";
  } else if (finished) {
    std::cout << to_text(losses_table({{of.name, story.final_losses}}, entropy));
  }
  return finished ? exit_fine : exit_interrupted;
}

}  // namespace

void add_train(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("train", "Train a model; Ctrl-C saves and ends");
  const auto a = std::make_shared<train_arguments>();
  command->add_option("SPEC", a->spec, "A preset's name or a JSON file")->required()->type_name("");
  add_run_options(*command, a->settings);
  command->footer(
      "Examples:\n  smelt train nano --data builtin --tokens 2M --out runs/nano\n"
      "  smelt train nano --data builtin --tokens 2M --out runs/nano --resume\n"
      "  smelt train model.json --data texts/ --tokens 10M --sequences 32 --schedule wsd --seed 1 --out runs/mine");
  command->callback([a, &common, &chosen] { chosen = [a, &common] { return train(common, *a); }; });
}

}  // namespace smelt::tool
