// How are shares of a whole drawn? As bars, in characters for a terminal and as a self-contained SVG.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "number.hpp"
#include "table.hpp"

namespace smelt::tool {

/// One part of a whole. Parts of a kind share a colour.
struct bar {
  std::string name;
  std::string kind;
  double share = 0;   ///< of the whole, 0 to 1
  std::string value;  ///< what is written behind the bar
};

struct bar_chart {
  std::string title;
  std::vector<std::string> kinds;  ///< in the order of their colours, at most six
  std::vector<bar> bars;
};

/// A bar of at most `width` characters for a share of `most`, exact to an eighth of a character. Any positive share
/// shows.
[[nodiscard]] inline std::string bar_text(double share, double most, int width) {
  if (!(share > 0) || !(most > 0)) return "";
  constexpr std::string_view eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto parts =
      std::max<std::int64_t>(1, std::llround((std::min)(share / most, 1.0) * static_cast<double>(width) * 8));
  std::string text;
  for (std::int64_t i = 0; i < parts / 8; ++i) text += "█";
  return text + std::string(eighths[static_cast<std::size_t>(parts % 8)]);
}

/// The chart as one <svg> element that needs nothing else; follows the reader's light or dark scheme.
[[nodiscard]] inline std::string to_svg(const bar_chart& chart, int width = 760) {
  const int row = 24, top = 64;
  const int height = top + row * static_cast<int>(chart.bars.size()) + 16;
  const double left = 210, right = width - 150.0;
  double most = 0;
  for (const bar& b : chart.bars) most = (std::max)(most, b.share);
  const auto kind_of = [&](const std::string& kind) {
    const auto at = std::ranges::find(chart.kinds, kind);
    return std::to_string(at - chart.kinds.begin());
  };
  const auto at = [](double v) { return fixed(v, 1); };
  const auto text = [&](const char* anchor, double x, double y, const std::string& words, const char* kind = "label") {
    return "<text class=\"" + std::string(kind) + "\" text-anchor=\"" + anchor + "\" x=\"" + at(x) + "\" y=\"" + at(y) +
           "\">" + escaped(words) + "</text>\n";
  };
  const auto box = [&](double x, double y, double w, double h, const std::string& kind) {
    return "<rect class=\"k" + kind_of(kind) + "\" x=\"" + at(x) + "\" y=\"" + at(y) + "\" width=\"" + at(w) +
           "\" height=\"" + at(h) + "\"/>\n";
  };

  std::string described;
  for (const bar& b : chart.bars) described += b.name + " " + fixed(100 * b.share, 1) + " %. ";
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"smelt-bars\" role=\"img\" viewBox=\"0 0 " +
                    std::to_string(width) + " " + std::to_string(height) + "\" width=\"" + std::to_string(width) +
                    "\" height=\"" + std::to_string(height) + "\">\n<title>" + escaped(chart.title) +
                    "</title>\n<desc>" + escaped(described) + "</desc>\n" + R"(<style>
.smelt-bars { font: 13px system-ui, sans-serif; max-width: 100%; height: auto; }
.smelt-bars text { fill: #1b1f24; }
.smelt-bars .title { font-size: 15px; font-weight: 600; }
.smelt-bars .paper { fill: #ffffff; }
)";
  // Plain colours, no variables: viewers that know no variables would paint everything black.
  constexpr std::array<std::string_view, 6> light{"#0057b7", "#c2410c", "#117733", "#882255", "#7a5c00", "#444444"};
  constexpr std::array<std::string_view, 6> dark{"#6cb6ff", "#ff9d5c", "#6bd08e", "#f29ac8", "#e3c65b", "#bbbbbb"};
  const auto colours = [&](const auto& of) {
    std::string rules;
    for (std::size_t i = 0; i < chart.kinds.size(); ++i)
      rules += ".smelt-bars .k" + std::to_string(i) + " { fill: " + std::string(of[i % of.size()]) + "; }\n";
    return rules;
  };
  svg += colours(light) + "@media (prefers-color-scheme: dark) {\n.smelt-bars text { fill: #e6edf3; }\n" +
         ".smelt-bars .paper { fill: #0d1117; }\n" + colours(dark) + "}\n";
  svg += "</style>\n<rect class=\"paper\" width=\"" + std::to_string(width) + "\" height=\"" + std::to_string(height) +
         "\"/>\n" + text("start", 16, 24, chart.title, "title");
  double x = left;
  for (const std::string& kind : chart.kinds) {
    svg += box(x, 38, 12, 12, kind) + text("start", x + 18, 48.5, kind);
    x += 34 + 8.0 * static_cast<double>(characters(kind));
  }
  double y = top;
  for (const bar& b : chart.bars) {
    const double length = most > 0 ? b.share / most * (right - left) : 0;
    svg += text("end", left - 8, y + 16, b.name) + box(left, y + 3, length, row - 6, b.kind) +
           text("start", left + length + 8, y + 16, b.value);
    y += row;
  }
  return svg + "</svg>\n";
}

}  // namespace smelt::tool
