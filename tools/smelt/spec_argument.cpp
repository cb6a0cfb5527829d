#include "spec_argument.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/budget/ablations.hpp>
#include <smelt/budget/presets.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <smelt/io/spec_json.hpp>
#include <smelt/spec/schedule.hpp>
#include <utility>

#include "loop_option.hpp"
#include "number.hpp"

namespace smelt::tool {

const std::vector<named_spec>& preset_specs() {
  static const std::vector<named_spec> specs = [] {
    std::vector<named_spec> all;
    const auto add = [&](const presets::preset& p) {
      all.push_back({p.name, p.value, p.partner_of, p.control, p.description, p.group});
    };
    for (const presets::preset& p : presets::all) add(p);
    for (int i = 0; i < presets::ablations; ++i) add(presets::ablation(i));
    return all;
  }();
  return specs;
}

namespace {

/// A preset with a number of visits behind its name.
struct looped_preset {
  std::optional<named_spec> looped{};
  std::string obstacle{};  ///< what keeps the preset from being looped so
};

/// NAME-rR; nothing when `argument` is not the name of a preset with such a suffix.
std::optional<looped_preset> looped_preset_of(const std::string& argument) {
  const auto at = argument.rfind(visits_suffix);
  if (at == std::string::npos) return std::nullopt;
  const std::string digits = argument.substr(at + std::string(visits_suffix).size());
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  for (const named_spec& preset : preset_specs()) {
    if (preset.name != argument.substr(0, at)) continue;
    const auto obstacle = [&](const std::string& needed) { return looped_preset{.obstacle = needed}; };
    const auto times = read_count(digits);
    if (!times || *times < 2 || *times > max_visits)
      return obstacle("visits must be from 2 to " + std::to_string(max_visits) + ", found " + digits);
    if (span_of(preset.value).count != 0) return obstacle(preset.name + " must have no loop of its own, found one");
    if (preset.value.layers < 5)
      return obstacle(preset.name + " must have at least 5 layers, so that 2 enter and 2 leave the loop, found " +
                      std::to_string(preset.value.layers));
    return looped_preset{.looped = named_spec{argument, presets::looped_between(preset.value, static_cast<int>(*times)),
                                              "", preset.control, "looped " + preset.name, ""}};
  }
  return std::nullopt;
}

}  // namespace

named_spec spec_of_argument(const std::string& argument) {
  for (const named_spec& preset : preset_specs())
    if (preset.name == argument) return preset;
  std::optional<looped_preset> counted = looped_preset_of(argument);
  if (counted && counted->looped) return *std::move(counted->looped);
  std::error_code ignored;
  if (!std::filesystem::exists(argument, ignored)) {
    if (counted) throw error(errc::invalid_argument, "SPEC \"" + argument + "\": " + counted->obstacle);
    std::vector<std::string> names;
    for (const named_spec& preset : preset_specs()) names.push_back(preset.name);
    std::string nearest;
    for (const std::string& name : nearest_names(argument, names)) nearest += (nearest.empty() ? "" : ", ") + name;
    throw error(errc::invalid_argument, "SPEC must be a preset's name or a JSON file; found \"" + argument +
                                            "\", which is neither; the nearest presets are " + nearest);
  }
  const std::string text = read_spec_text(argument);
  const std::string name = std::filesystem::path(argument).stem().string();
  // What this program prints about an architecture holds its spec, so that outputs can be handed on.
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_object() && document.contains("spec") && document["spec"].is_object())
    return {name, parse_spec(document["spec"].dump(), argument + ": spec"), "", "", "", ""};
  return {name, parse_spec(text, argument), "", "", "", ""};
}

std::string summary(const spec& s) {
  const auto count = [](std::int64_t n, const std::string& one, const std::string& many) {
    return grouped(n) + " " + (n == 1 ? one : many);
  };
  const loop_span span = span_of(s);
  std::string text = count(s.layers, "layer", "layers");
  if (span.count > 0) {
    const std::string plans = plans_text(s.loop.visits);
    text += " (" + std::to_string(span.first) + " to " + std::to_string(span.first + span.count - 1) + " visited " +
            std::to_string(span.visits) + " times";
    if (plans != std::to_string(span.visits)) text += " by " + plans;
    text += ": " + std::to_string(schedule(s).size()) + " executed)";
  }
  text += ", width " + grouped(std::int64_t{s.width});
  if (has_latent_attention(s))
    text += ", " + count(s.attention.heads, "head", "heads") + " over a latent of " +
            std::to_string(s.attention.latent.kv_rank);
  else
    text += ", " + count(s.attention.heads, "head", "heads") + " of " + std::to_string(s.attention.head_dim) +
            " over " + count(s.attention.kv_heads, "KV head", "KV heads");
  if (s.dense_layers < s.layers)
    text += ", " + count(s.experts.stored, "expert", "experts") + " of " + std::to_string(s.experts.hidden) + ", " +
            std::to_string(s.experts.active) + " active";
  if (s.dense_layers > 0)
    text += ", " + count(s.dense_layers, "dense layer", "dense layers") + " of " + std::to_string(s.dense_hidden);
  text += ", vocabulary " + grouped(std::int64_t{s.vocab});
  if (table_rows(s) != s.vocab) text += " padded to " + grouped(std::int64_t{table_rows(s)});
  return text;
}

}  // namespace smelt::tool
