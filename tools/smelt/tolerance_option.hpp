// How are tolerances given on the command line? As `flops=4%,params=1%,kv=4%`, each read exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <smelt/budget/tolerance.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <string>
#include <string_view>

#include "number.hpp"

namespace smelt::tool {

/// The percentage that `text` writes, such as 4% or 0.25%: at most four decimals, at most 1,000,000 %, the sign
/// required because 0.04 could mean two things.
[[nodiscard]] inline std::optional<percent> read_percent(std::string_view text) {
  if (!text.ends_with('%') || text.find_first_not_of("0123456789.%") != std::string_view::npos) return std::nullopt;
  text.remove_suffix(1);
  // A percentage is 1e4 parts per million; scaling the text keeps the number whole.
  const auto ppm = read_count(std::string(text) + "e4");
  if (!ppm || *ppm > 10'000'000'000) return std::nullopt;
  return percent{*ppm};
}

/// A percentage for people: 40000 ppm as "4%".
[[nodiscard]] inline std::string shown(percent p) {
  std::string text = fixed(static_cast<double>(p.ppm) / 1e4, 4);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + "%";
}

/// The tolerances of `text`; those it does not name keep their defaults. Throws errc::invalid_argument with the piece
/// that cannot be read or that sets a budget again.
[[nodiscard]] inline within parse_tolerance(std::string_view text) {
  within tolerance;
  std::set<const percent*> given;
  while (!text.empty()) {
    const std::string piece(text.substr(0, text.find(',')));
    text.remove_prefix((std::min)(text.size(), piece.size() + 1));
    const auto equals = piece.find('=');
    const std::string name = piece.substr(0, equals);
    percent* field = name == "flops"                      ? &tolerance.flops
                     : name == "params"                   ? &tolerance.params
                     : name == "kv" || name == "kv_cache" ? &tolerance.kv_cache
                                                          : nullptr;
    if (equals == std::string::npos && read_percent(piece))
      throw error(errc::invalid_argument,
                  "--tolerance needs the name of a budget before every percentage, such as "
                  "flops=" +
                      piece + ",params=" + piece + ",kv=" + piece + "; found \"" + piece + "\"");
    if (field == nullptr)
      throw error(errc::invalid_argument, "--tolerance names the budgets flops, params and kv; found \"" + name +
                                              "\", did you mean \"" +
                                              nearest_names(name, {"flops", "params", "kv"}, 1).front() + "\"?");
    const auto value = read_percent(equals == std::string::npos ? "" : std::string_view(piece).substr(equals + 1));
    if (!value)
      throw error(errc::invalid_argument,
                  "--tolerance must be percentages up to 1000000% with at most four decimals, such as " + name +
                      "=4%; found \"" + piece + "\"");
    if (!given.insert(field).second)
      throw error(errc::invalid_argument, "--tolerance must name every budget once; found \"" + piece + "\" again");
    *field = *value;
  }
  return tolerance;
}

}  // namespace smelt::tool
