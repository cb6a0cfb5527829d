// How are losses told? In nats a token and bits a byte, in total and by category.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "number.hpp"
#include "table.hpp"

namespace smelt::tool {

/// The loss over some text.
struct text_loss {
  std::string name;          ///< of the category; "total" for all of them
  double nats = 0;           ///< sum over the targets
  std::int64_t targets = 0;  ///< predicted tokens
  std::int64_t bytes = 0;    ///< of them, bytes of text (the others end documents); 0 when tokens are not bytes

  /// Nats a token; NaN without targets.
  [[nodiscard]] double loss() const noexcept {
    return targets == 0 ? std::numeric_limits<double>::quiet_NaN() : nats / static_cast<double>(targets);
  }
  /// Bits a byte, every predicted token paid for; NaN when tokens are not bytes.
  [[nodiscard]] double bits_per_byte() const noexcept {
    return bytes == 0 ? std::numeric_limits<double>::quiet_NaN() : nats / std::log(2.0) / static_cast<double>(bytes);
  }
};

/// Losses over one text: the total first, then the categories.
using text_losses = std::vector<text_loss>;

[[nodiscard]] inline nlohmann::ordered_json to_json(const text_losses& losses) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const text_loss& l : losses)
    all.push_back({{"name", l.name}, {"nats", l.nats}, {"targets", l.targets}, {"bytes", l.bytes}});
  return all;
}

[[nodiscard]] inline text_losses losses_from_json(const nlohmann::json& all) {
  text_losses losses;
  for (const auto& l : all)
    losses.push_back({l.at("name").get<std::string>(), l.at("nats").get<double>(), l.at("targets").get<std::int64_t>(),
                      l.at("bytes").get<std::int64_t>()});
  return losses;
}

/// Losses for machines: derived figures instead of sums; null where there is none.
[[nodiscard]] inline nlohmann::ordered_json summary_json(const text_losses& losses) {
  const auto figure = [](double value) { return std::isfinite(value) ? nlohmann::ordered_json(value) : nullptr; };
  const auto entry = [&](const text_loss& l) {
    return nlohmann::ordered_json{
        {"loss", figure(l.loss())}, {"bits_per_byte", figure(l.bits_per_byte())}, {"targets", l.targets}};
  };
  nlohmann::ordered_json j = losses.empty() ? nlohmann::ordered_json::object() : entry(losses.front());
  j["categories"] = nlohmann::ordered_json::object();
  for (std::size_t i = 1; i < losses.size(); ++i) j["categories"][losses[i].name] = entry(losses[i]);
  return j;
}

/// One row a category; for each model its loss, and for each behind the first the difference from the first.
/// Precondition: every model was evaluated on the same text.
[[nodiscard]] inline table losses_table(const std::vector<std::pair<std::string, text_losses>>& models,
                                        double bigram_entropy) {
  table t{"Validation loss", {{"text", false}, {"tokens"}}, {}};
  for (std::size_t m = 0; m < models.size(); ++m) {
    t.columns.push_back({models[m].first + ", nats/token"});
    if (m > 0) t.columns.push_back({"difference"});
    t.columns.push_back({"bits/byte"});
  }
  for (std::size_t i = 0; i < models.front().second.size(); ++i) {
    const text_loss& first = models.front().second[i];
    t.rows.push_back({first.name, grouped(first.targets)});
    for (std::size_t m = 0; m < models.size(); ++m) {
      const text_loss& l = models[m].second[i];
      const double difference = l.loss() - first.loss();
      t.rows.back().push_back(fixed(l.loss(), 4));
      if (m > 0) t.rows.back().push_back((difference > 0 ? "+" : "") + fixed(difference, 4));
      t.rows.back().push_back(fixed(l.bits_per_byte(), 4));
    }
  }
  if (std::isfinite(bigram_entropy))
    t.notes.push_back("for reference, the bigram entropy of this text: " + fixed(bigram_entropy, 4) + " nats/token");
  if (models.size() > 1) t.notes.push_back("difference: from " + models.front().first + ", nats/token");
  return t;
}

}  // namespace smelt::tool
