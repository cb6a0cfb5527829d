// What happened in a run? Read back from its log: the curves, the final losses, the balance of its routers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <smelt/train/log.hpp>
#include <string>
#include <vector>

#include "losses.hpp"
#include "plot.hpp"

namespace smelt::tool {

/// Name of the log inside a run's folder.
inline constexpr const char* log_name = "log.jsonl";

/// A run as its log tells it.
struct run_story {
  nlohmann::json header;  ///< the line of step 0: name, spec, options, data, machine; null when there is none
  std::int64_t steps = 0;
  double flops = 0;                         ///< training FLOPs of the last step that is in the log
  std::int64_t validated = 0;               ///< last step with a validation
  std::vector<point> training_by_tokens;    ///< loss of every step, nats a token
  std::vector<point> validation_by_flops;   ///< loss on the first validation batches
  std::vector<point> validation_by_tokens;  ///< the same
  text_losses final_losses;                 ///< on the whole validation split; empty while the run is not finished
  std::vector<double> visit_balance;        ///< balance loss by visit, mean over the last tenth of the steps
  std::vector<std::vector<point>> coefficients_by_tokens;  ///< by visit: of its residual writes in every step
  double tokens_per_second = 0;                            ///< training, evaluations and saves left out
  std::int64_t skipped = 0;                                ///< steps whose gradients were not finite
};

/// Reads the log of the run in `folder`; a folder without one has an empty story. Throws errc::corrupt as read_log
/// does.
[[nodiscard]] inline run_story story_of(const std::filesystem::path& folder) {
  run_story story;
  std::error_code ignored;
  if (!std::filesystem::exists(folder / log_name, ignored)) return story;
  std::vector<nlohmann::json> steps;
  double seconds = 0, tokens = 0;
  const auto number = [](const nlohmann::json& line, const char* name) {
    const auto found = line.find(name);
    return found != line.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
  };
  for (nlohmann::json& line : read_log(folder / log_name)) {
    const std::string kind = line.value("kind", "");
    if (kind == "run") {
      // Runs from before there was a choice.
      story.header = {{"dtype", "fp32"}, {"instruction_set", "not logged"}};
      story.header.update(line);
    }
    if (kind == "step") {
      story.steps = line["step"].get<std::int64_t>();
      story.flops = number(line, "flops");
      story.training_by_tokens.push_back({number(line, "tokens"), number(line, "loss")});
      if (const double taken = number(line, "seconds"); std::isfinite(taken)) {
        seconds += taken;
        tokens += taken * number(line, "tokens_per_second");
      }
      story.skipped = line.value("skipped", std::int64_t{0});
      // Runs from before there were learned ones have none.
      const auto coefficients = line.value("visit_coefficient", nlohmann::json::array());
      story.coefficients_by_tokens.resize((std::max)(story.coefficients_by_tokens.size(), coefficients.size()));
      for (std::size_t v = 0; v < coefficients.size(); ++v)
        if (coefficients[v].is_number())
          story.coefficients_by_tokens[v].push_back({number(line, "tokens"), coefficients[v].get<double>()});
      steps.push_back(std::move(line));
    } else if (kind == "validation") {
      story.validated = line["step"].get<std::int64_t>();
      story.validation_by_flops.push_back({number(line, "flops"), number(line, "loss")});
      story.validation_by_tokens.push_back({number(line, "tokens"), number(line, "loss")});
    } else if (kind == "final") {
      story.final_losses = losses_from_json(line.at("losses"));
    }
  }
  if (seconds > 0) story.tokens_per_second = tokens / seconds;
  const std::size_t last = (std::max)(steps.size() / 10, std::size_t{1});
  std::vector<std::int64_t> counted;
  for (std::size_t i = steps.size() - (std::min)(steps.size(), last); i < steps.size(); ++i) {
    const auto balance = steps[i].value("visit_balance", nlohmann::json::array());
    story.visit_balance.resize((std::max)(story.visit_balance.size(), balance.size()));
    counted.resize(story.visit_balance.size());
    for (std::size_t v = 0; v < balance.size(); ++v) {
      if (!balance[v].is_number()) continue;  // null: it was not finite
      story.visit_balance[v] += balance[v].get<double>();
      ++counted[v];
    }
  }
  for (std::size_t v = 0; v < counted.size(); ++v) story.visit_balance[v] /= static_cast<double>(counted[v]);
  return story;
}

/// `points` with each y replaced by the mean over itself and the `reach` points before it.
[[nodiscard]] inline std::vector<point> smoothed(const std::vector<point>& points, std::size_t reach) {
  std::vector<point> result;
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (std::isfinite(points[i].y)) {
      sum += points[i].y;
      ++count;
    }
    if (i > reach && std::isfinite(points[i - reach - 1].y)) {
      sum -= points[i - reach - 1].y;
      --count;
    }
    if (count > 0) result.push_back({points[i].x, sum / static_cast<double>(count)});
  }
  return result;
}

}  // namespace smelt::tool
