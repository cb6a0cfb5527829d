// May a run go on from a checkpoint? Only if nothing that decides its numbers differs, and the state makes sense.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <smelt/core/error.hpp>
#include <smelt/train/checkpoint.hpp>
#include <smelt/train/options.hpp>
#include <string>

namespace smelt {

/// What matrix products multiplied in when the state of a checkpoint was saved. States that do not say are older than
/// the choice: fp32.
[[nodiscard]] inline std::string dtype_of(const nlohmann::json& state) {
  if (!state.is_object() || !state.contains("dtype")) return "fp32";
  const nlohmann::json& found = state.at("dtype");
  return found.is_string() ? found.get<std::string>() : found.dump();
}

/// Options of a state that do not name the optimiser are older than the choice: AdamW.
inline void name_optimizer(nlohmann::json& state) {
  if (!state.is_object() || !state.contains("options") || !state["options"].is_object()) return;
  nlohmann::json& options = state["options"];
  if (!options.contains("optimizer")) options["optimizer"] = name_of(optimizer_kind::adamw);
}

namespace detail {

/// Throws errc::mismatch with every value, however deep, in which what was `saved` differs from `now`. Members of
/// `saved` that `now` does not name are not looked at.
inline void require_same(const nlohmann::json& saved, const nlohmann::json& now, const std::string& folder) {
  nlohmann::json relevant = nlohmann::json::object();
  for (const auto& [key, value] : now.items())
    if (saved.is_object() && saved.contains(key)) relevant[key] = saved.at(key);
  // An empty object flattens to a lone null.
  const nlohmann::json before = relevant.empty() ? relevant : relevant.flatten();
  const nlohmann::json after = now.flatten();
  nlohmann::json places = before;
  places.update(after);
  std::string differences;
  for (const auto& [place, unused] : places.items()) {
    const auto shown = [&](const nlohmann::json& values) {
      return values.contains(place) ? values.at(place).dump() : std::string("none");
    };
    if (shown(before) != shown(after))
      differences +=
          "\n  " + place.substr(1) + ": the checkpoint has " + shown(before) + ", this run has " + shown(after);
  }
  if (!differences.empty())
    throw error(errc::mismatch, "cannot resume from '" + folder + "', these differ:" + differences);
}

/// The number that a checkpoint's state has under `name`. Throws errc::corrupt unless it is from 0 to `most`.
[[nodiscard]] inline std::int64_t count_in(const checkpoint& from, const char* name, std::int64_t most) {
  const nlohmann::json found = from.state.contains(name) ? from.state.at(name) : nlohmann::json();
  if (!found.is_number_integer() || found.get<std::int64_t>() < 0 || found.get<std::int64_t>() > most)
    throw error(errc::corrupt, "cannot resume from '" + from.folder.string() + "': " + name +
                                   " must be an integer from 0 to " + std::to_string(most) + ", found " + found.dump());
  return found.get<std::int64_t>();
}

}  // namespace detail

}  // namespace smelt
