#include "../../../tools/smelt/bars.hpp"

#include <string>

#include "catch.hpp"

using namespace smelt::tool;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("bars are as long as their shares", "[tools][bars]") {
  CHECK(bar_text(0, 1, 10).empty());
  CHECK(bar_text(-1, 1, 10).empty());
  CHECK(bar_text(0.5, 0, 10).empty());
  CHECK(bar_text(1, 1, 4) == "████");
  CHECK(bar_text(2, 1, 4) == "████");
  CHECK(bar_text(0.5, 1, 4) == "██");
  CHECK(bar_text(0.5, 0.5, 4) == "████");
  CHECK(bar_text(0.375, 1, 4) == "█▌");
  CHECK(bar_text(1e-9, 1, 4) == "▏");
}

TEST_CASE("a chart of bars is drawn with its names escaped and its kinds in their colours", "[tools][bars]") {
  const bar_chart chart{"a < b", {"one", "two"}, {{"x & y", "two", 0.5, "50 %"}, {"z", "one", 0.25, "25 %"}}};
  const std::string svg = to_svg(chart);
  CHECK_THAT(svg, ContainsSubstring("a &lt; b") && ContainsSubstring("x &amp; y") && ContainsSubstring("50 %"));
  // The longest bar fills the width between the names and the values; one of half the share is half as long.
  CHECK_THAT(svg, ContainsSubstring("<rect class=\"k1\" x=\"210.0\" y=\"67.0\" width=\"400.0\""));
  CHECK_THAT(svg, ContainsSubstring("<rect class=\"k0\" x=\"210.0\" y=\"91.0\" width=\"200.0\""));
  CHECK_THAT(svg, ContainsSubstring(".k0 { fill: #0057b7; }") && ContainsSubstring(".k1 { fill: #c2410c; }"));
}
