// How is a loop given on the command line? As SPAN:VISITS, such as middle:2, middle+6:2 or 3+6:2.
#pragma once

#include <cstdint>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/spec/layer_set.hpp>
#include <smelt/spec/visit.hpp>
#include <string>
#include <string_view>

#include "number.hpp"

namespace smelt::tool {

/// The loop of `text`: `middle:R` visits the middle half of the layers R times, `middle+M:R` the middle M layers,
/// `F+M:R` the M layers from layer F (0-based) on; every write is scaled by 1/R. Throws errc::invalid_argument.
[[nodiscard]] inline loop_spec parse_loop(std::string_view text) {
  const auto refuse = [&](const std::string& why) -> error {
    return {errc::invalid_argument,
            "--loop must be middle:VISITS, middle+COUNT:VISITS or FIRST+COUNT:VISITS, such as middle:2; found \"" +
                std::string(text) + "\" (" + why + ")"};
  };
  const auto number = [&](std::string_view digits, std::int64_t least, std::int64_t most, const std::string& what) {
    const auto value = read_count(digits);
    if (!value || *value < least || *value > most)
      throw refuse(what + " must be from " + std::to_string(least) + " to " + std::to_string(most));
    return static_cast<int>(*value);
  };
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) throw refuse("no colon before the number of visits");
  const std::string_view span = text.substr(0, colon);
  const auto plus = span.find('+');
  const std::string_view first = span.substr(0, plus);
  loop_spec loop{.visits = visits(number(text.substr(colon + 1), 1, max_visits, "visits"))};
  if (plus == std::string_view::npos && first != "middle") throw refuse("no number of layers");
  loop.first = first == "middle" ? loop_spec::middle : number(first, 0, max_layers - 1, "first layer");
  loop.count = plus == std::string_view::npos ? loop_spec::half
                                              : number(span.substr(plus + 1), 1, max_layers, "number of layers");
  return loop;
}

}  // namespace smelt::tool
