// What does a causality probe show? What was compared and the verdict, as text and JSON.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <smelt/core/error.hpp>
#include <smelt/probe/causality.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "number.hpp"
#include "table.hpp"

namespace smelt::tool {

/// A probe of one architecture.
struct causality_probe {
  std::string name;
  std::vector<std::int64_t> lengths;
  causality_report report;
  std::string dtype;
  std::string instruction_set;
  std::int64_t seed = 0;
};

/// The lengths of `text`, such as 1-9,31-33,64: numbers and ranges, in the order given. Throws errc::invalid_argument
/// for one that is no length from 1 to the context.
[[nodiscard]] inline std::vector<std::int64_t> parse_lengths(std::string_view text, std::int64_t context) {
  std::vector<std::int64_t> lengths;
  while (true) {
    const auto comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const auto dash = part.find('-');
    const std::int64_t from = parse_count(part.substr(0, dash), "--lengths", 1, context);
    const std::int64_t to =
        dash == std::string_view::npos ? from : parse_count(part.substr(dash + 1), "--lengths", from, context);
    for (std::int64_t length = from; length <= to; ++length) lengths.push_back(length);
    if (comma == std::string_view::npos) return lengths;
    text.remove_prefix(comma + 1);
  }
}

/// Lengths as parse_lengths reads them.
[[nodiscard]] inline std::string lengths_text(const std::vector<std::int64_t>& lengths) {
  std::string text;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < lengths.size() && lengths[last + 1] == lengths[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(lengths[i]);
    if (last > i) text += "-" + std::to_string(lengths[last]);
    i = last;
  }
  return text;
}

/// What the probe says, in one sentence.
[[nodiscard]] inline std::string verdict(const causality_report& r) {
  if (!r.leak)
    return r.holds() ? "causal: every prefix has the same bits, whatever follows it"
                     : "blind: no token changed what stands behind it, so that nothing is known";
  const causality_leak& l = *r.leak;
  std::string text = "LEAK: the " + std::string(name_of(l.what));
  if (l.what == leaked::routing)
    text += " of layer " + std::to_string(l.layer) + " in visit " + std::to_string(l.visit + 1);
  text += " at position " + std::to_string(l.position) + (l.what == leaked::logits ? " depend" : " depends") +
          " on tokens from position " + std::to_string(l.prefix) + " on, of " + std::to_string(l.length);
  if (l.document > 0) text += "; a document begins at position " + std::to_string(l.document);
  return text;
}

[[nodiscard]] inline table causality_table(const causality_probe& p) {
  const causality_report& r = p.report;
  table t{"Causality of " + p.name, {{"probe", false}, {"found", false}}, {}};
  t.rows = {{"lengths", lengths_text(p.lengths)},
            {"pairs of batches", grouped(r.comparisons)},
            {"positions compared", grouped(r.positions)},
            {"choices of experts compared", grouped(r.routed)},
            {"positions that a change reached", grouped(r.changed)}};
  if (r.leak) {
    const auto three_digits = [](double value) {
      char text[32];
      std::snprintf(text, sizeof text, "%.3g", value);
      return std::string(text);
    };
    t.rows.push_back({"largest difference of a logit", three_digits(r.leak->logit_difference)});
    t.rows.push_back({"largest difference in a hidden state", three_digits(r.leak->hidden_difference)});
  }
  t.rows.push_back({"verdict", verdict(r)});
  t.notes.push_back("matrix products: " + p.dtype + " (" + p.instruction_set + "), random weights of seed " +
                    std::to_string(p.seed));
  t.notes.emplace_back("every pair agrees up to a prefix and differs behind it; positions are counted from 0");
  return t;
}

[[nodiscard]] inline nlohmann::ordered_json to_json(const causality_probe& p) {
  const causality_report& r = p.report;
  nlohmann::ordered_json j;
  j["name"] = p.name;
  j["lengths"] = p.lengths;
  j["dtype"] = p.dtype;
  j["instruction_set"] = p.instruction_set;
  j["seed"] = p.seed;
  j["comparisons"] = r.comparisons;
  j["positions"] = r.positions;
  j["expert_choices"] = r.routed;
  j["changed_positions"] = r.changed;
  j["causal"] = r.holds();
  j["verdict"] = verdict(r);
  j["leak"] = nullptr;
  if (r.leak) {
    const causality_leak& l = *r.leak;
    j["leak"] = {{"what", name_of(l.what)}, {"length", l.length},     {"prefix", l.prefix},
                 {"document", l.document},  {"sequence", l.sequence}, {"position", l.position}};
    if (l.what == leaked::routing) {
      j["leak"]["layer"] = l.layer;
      j["leak"]["visit"] = l.visit;
    }
    // An infinite difference is null.
    j["leak"]["hidden_difference"] = l.hidden_difference;
    j["leak"]["logit_difference"] = l.logit_difference;
  }
  return j;
}

}  // namespace smelt::tool
