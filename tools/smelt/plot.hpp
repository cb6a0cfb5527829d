// How are curves drawn? As a self-contained SVG, and as characters for a terminal.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "number.hpp"
#include "table.hpp"

namespace smelt::tool {

struct point {
  double x = 0;
  double y = 0;
};

/// How a series is drawn.
enum class drawn_as { line, marks };

/// Where a band around a curve lies at one x.
struct band_point {
  double x = 0;
  double low = 0;
  double high = 0;
};

/// A curve, or marks; points that are not finite (or not positive on a logarithmic axis) break the line. Without a name
/// it is not in the legend.
struct series {
  std::string name;
  std::vector<point> points;
  drawn_as as = drawn_as::line;
  int style = -1;                  ///< series of one style look alike; -1: one of its own, by place
  std::vector<band_point> band{};  ///< shaded, such as an interval
};

/// A named horizontal line for reference.
struct level {
  std::string name;
  double y = 0;
};

/// Curves over one pair of axes. Labels carry the units.
struct plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<series> curves{};
  std::vector<level> levels{};
  bool log_x = false;
};

/// At most `most` points, evenly chosen, the last one kept: a curve of a million steps still opens in a browser.
[[nodiscard]] inline std::vector<point> thinned(const std::vector<point>& points, std::size_t most) {
  if (points.size() <= most || most < 2) return points;
  std::vector<point> kept;
  kept.reserve(most);
  for (std::size_t i = 0; i < most; ++i) kept.push_back(points[i * (points.size() - 1) / (most - 1)]);
  return kept;
}

namespace detail {

/// Where the data lie along one axis, and how that maps onto [0, 1].
struct axis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  std::vector<double> ticks{};

  [[nodiscard]] bool shows(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  [[nodiscard]] double place(double value) const {
    if (logarithmic) return std::log(value / low) / std::log(high / low);
    return (value - low) / (high - low);
  }
};

/// The largest of 1, 2, 5 times a power of ten that is at most `value`. Precondition: value > 0.
[[nodiscard]] inline double round_step(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  const double lead = value / power;
  return (lead >= 5 ? 5 : lead >= 2 ? 2 : 1) * power;
}

/// An axis that covers the values, widened to whole steps when linear. Precondition: every value is one it shows.
[[nodiscard]] inline axis axis_of(const std::vector<double>& values, bool logarithmic, int about) {
  axis a{.logarithmic = logarithmic};
  if (!values.empty()) {
    const auto [least, most] = std::ranges::minmax(values);
    a.low = least;
    a.high = most;
  } else if (logarithmic) {
    a.high = 10;
    a.low = 1;
  }
  if (logarithmic) {
    if (!(a.high > a.low * 1.01)) {
      a.low /= 1.5;
      a.high *= 1.5;
    }
    const double decades = std::log10(a.high / a.low);
    for (int power = static_cast<int>(std::floor(std::log10(a.low))); power <= std::log10(a.high); ++power)
      for (const int lead : {1, 2, 3, 5, 7}) {
        if ((lead != 1 && decades > 3) || ((lead == 3 || lead == 7) && decades > 1)) continue;
        const double tick = lead * std::pow(10.0, power);
        if (tick >= a.low * (1 - 1e-9) && tick <= a.high * (1 + 1e-9)) a.ticks.push_back(tick);
      }
    return a;
  }
  double range = a.high - a.low;
  if (!(range > 1e-9 * (std::max)(std::abs(a.low), std::abs(a.high)))) {
    const double pad = a.low == 0 ? 1 : std::abs(a.low) * 0.1;
    a.low -= pad;
    a.high += pad;
    range = 2 * pad;
  }
  double step = round_step(range / about);
  if (range / step > 2 * about) step *= 2;
  const double first = std::floor(a.low / step + 1e-9), last = std::ceil(a.high / step - 1e-9);
  for (double i = first; i <= last; ++i) a.ticks.push_back(i * step);
  a.low = first * step;
  a.high = last * step;
  return a;
}

/// Both axes of a plot; the y axis also covers the levels.
struct axes {
  axis x, y;
};
[[nodiscard]] inline axes axes_of(const plot& p, int about_x = 6) {
  std::vector<double> xs, ys;
  const axis probe{.logarithmic = p.log_x};
  for (const series& curve : p.curves)
    for (const point& at : curve.points)
      if (probe.shows(at.x) && std::isfinite(at.y)) {
        xs.push_back(at.x);
        ys.push_back(at.y);
      }
  for (const series& curve : p.curves)
    for (const band_point& at : curve.band)
      if (probe.shows(at.x) && std::isfinite(at.low) && std::isfinite(at.high)) {
        xs.push_back(at.x);
        ys.insert(ys.end(), {at.low, at.high});
      }
  for (const level& line : p.levels)
    if (std::isfinite(line.y)) ys.push_back(line.y);
  return {axis_of(xs, p.log_x, about_x), axis_of(ys, false, 5)};
}

/// A tick's label with as many decimals as its neighbours need to differ.
[[nodiscard]] inline std::string tick_label(const axis& a, double tick) {
  const double step = a.logarithmic || a.ticks.size() < 2 ? std::abs(tick) : a.ticks[1] - a.ticks[0];
  if (std::abs(tick) >= 1e15) {  // 1e21 FLOPs, as papers write it
    const int power = static_cast<int>(std::floor(std::log10(std::abs(tick)) + 1e-9));
    return fixed(tick / std::pow(10.0, power), 0) + "e" + std::to_string(power);
  }
  if (tick == 0 || std::abs(tick) >= 1'000) return compact(std::abs(tick) < step * 1e-6 ? 0 : tick);
  const int digits = step >= 1 ? 0 : (std::min)(9, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return fixed(std::abs(tick) < step * 1e-6 ? 0 : tick, digits);
}

inline constexpr std::array<std::string_view, 6> dashes{"", "7 4", "2 3", "9 3 2 3", "1 4", "12 4"};

/// The style of the i-th series.
[[nodiscard]] inline std::size_t style_of(const plot& p, std::size_t i) {
  return p.curves[i].style < 0 ? i : static_cast<std::size_t>(p.curves[i].style);
}

/// What an SVG says to those who do not see it.
[[nodiscard]] inline std::string description(const plot& p) {
  std::string words = p.y_label + " against " + p.x_label + ".";
  for (const series& curve : p.curves)
    if (!curve.points.empty() && !curve.name.empty())
      words += " " + curve.name + ": from " + fixed(curve.points.front().y, 3) + " to " +
               fixed(curve.points.back().y, 3) + ".";
  for (const level& l : p.levels) words += " " + l.name + ": " + fixed(l.y, 3) + ".";
  return words;
}

/// The head of an SVG of that size: its style follows the reader's light or dark scheme.
[[nodiscard]] inline std::string svg_head(const std::string& title, const std::string& words, int width, int height) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"smelt-plot\" role=\"img\" viewBox=\"0 0 " +
         std::to_string(width) + " " + std::to_string(height) + "\" width=\"" + std::to_string(width) + "\" height=\"" +
         std::to_string(height) + "\">\n<title>" + escaped(title) + "</title>\n<desc>" + escaped(words) + "</desc>\n" +
         R"(<style>
.smelt-plot { --ink: #1b1f24; --faint: #d8dee4; --paper: #ffffff; font: 13px system-ui, sans-serif; max-width: 100%;
  height: auto; }
.smelt-plot { --c0: #0057b7; --c1: #c2410c; --c2: #117733; --c3: #882255; --c4: #7a5c00; --c5: #444444; }
@media (prefers-color-scheme: dark) {
  .smelt-plot { --ink: #e6edf3; --faint: #30363d; --paper: #0d1117; }
  .smelt-plot { --c0: #6cb6ff; --c1: #ff9d5c; --c2: #6bd08e; --c3: #f29ac8; --c4: #e3c65b; --c5: #bbbbbb; }
}
.smelt-plot text { fill: var(--ink); } .smelt-plot .title { font-weight: 600; font-size: 15px; }
.smelt-plot .paper { fill: var(--paper); } .smelt-plot .grid { stroke: var(--faint); }
.smelt-plot .axis { stroke: var(--ink); } .smelt-plot .level { stroke: var(--ink); stroke-dasharray: 1 3; }
.smelt-plot .curve { fill: none; stroke-width: 2; stroke-linejoin: round; } .smelt-plot .band { fill-opacity: 0.2; }
.smelt-plot .mark { fill-opacity: 0.7; } .smelt-plot .behind { fill: var(--paper); fill-opacity: 0.8; }
</style>
)" + "<rect class=\"paper\" width=\"" +
         std::to_string(width) + "\" height=\"" + std::to_string(height) + "\"/>\n";
}

/// Axes, curves and legend of a plot of that size.
[[nodiscard]] inline std::string svg_body(const plot& p, int width, int height) {
  const axes axes = axes_of(p, width < 500 ? 3 : 6);  // labels need room
  const double left = 64, right = width - 18.0, top = 40, bottom = height - 52.0;
  const auto x_of = [&](double x) { return left + axes.x.place(x) * (right - left); };
  const auto y_of = [&](double y) { return bottom - axes.y.place(y) * (bottom - top); };
  const auto at = [](double v) { return fixed(v, 1); };
  const auto line = [&](const char* kind, double x0, double y0, double x1, double y1) {
    return "<line class=\"" + std::string(kind) + "\" x1=\"" + at(x0) + "\" y1=\"" + at(y0) + "\" x2=\"" + at(x1) +
           "\" y2=\"" + at(y1) + "\"/>\n";
  };
  const auto text = [&](const char* kind, const char* anchor, double x, double y, const std::string& words) {
    return "<text class=\"" + std::string(kind) + "\" text-anchor=\"" + anchor + "\" x=\"" + at(x) + "\" y=\"" + at(y) +
           "\">" + escaped(words) + "</text>\n";
  };
  const auto circle = [&](std::size_t style, double x, double y) {
    return "<circle class=\"mark\" style=\"fill: var(--c" + std::to_string(style % 6) + ")\" cx=\"" + at(x) +
           "\" cy=\"" + at(y) + "\" r=\"2.5\"/>\n";
  };

  std::string svg = text("title", "start", left, 22, p.title);
  for (const double tick : axes.x.ticks) {
    svg += line("grid", x_of(tick), top, x_of(tick), bottom);
    svg += text("tick", "middle", x_of(tick), bottom + 17, tick_label(axes.x, tick));
  }
  for (const double tick : axes.y.ticks) {
    svg += line("grid", left, y_of(tick), right, y_of(tick));
    svg += text("tick", "end", left - 7, y_of(tick) + 4, tick_label(axes.y, tick));
  }
  svg += line("axis", left, bottom, right, bottom) + line("axis", left, top, left, bottom);
  svg += text("label", "middle", (left + right) / 2, height - 10.0, p.x_label + (p.log_x ? " (log scale)" : ""));
  svg += "<text class=\"label\" text-anchor=\"middle\" transform=\"translate(16 " + at((top + bottom) / 2) +
         ") rotate(-90)\">" + escaped(p.y_label) + "</text>\n";

  for (const level& l : p.levels) {
    if (!std::isfinite(l.y)) continue;
    svg += line("level", left, y_of(l.y), right, y_of(l.y));
    if (!l.name.empty()) svg += text("tick", "end", right - 4, y_of(l.y) - 5, l.name + " " + fixed(l.y, 3));
  }
  for (std::size_t c = 0; c < p.curves.size(); ++c) {
    std::string there;
    std::string back;
    for (const band_point& q : p.curves[c].band) {
      if (!axes.x.shows(q.x) || !std::isfinite(q.low) || !std::isfinite(q.high)) continue;
      there += (there.empty() ? "M" : "L") + at(x_of(q.x)) + " " + at(y_of(q.low)) + " ";
      back = "L" + at(x_of(q.x)) + " " + at(y_of(q.high)) + " " + back;
    }
    if (!there.empty())
      svg += "<path class=\"band\" style=\"fill: var(--c" + std::to_string(style_of(p, c) % 6) + ")\" d=\"" + there +
             back + "Z\"/>\n";
  }
  for (std::size_t c = 0; c < p.curves.size(); ++c) {
    const series& curve = p.curves[c];
    const std::size_t look = style_of(p, c);
    if (curve.as == drawn_as::marks) {
      for (const point& q : thinned(curve.points, 2'000))
        if (axes.x.shows(q.x) && std::isfinite(q.y)) svg += circle(look, x_of(q.x), y_of(q.y));
      continue;
    }
    std::string path;
    bool drawing = false;
    for (const point& q : thinned(curve.points, 1'000)) {
      const bool visible = axes.x.shows(q.x) && std::isfinite(q.y);
      if (visible) path += (drawing ? "L" : "M") + at(x_of(q.x)) + " " + at(y_of(q.y)) + " ";
      drawing = visible;
    }
    svg += "<path class=\"curve\" style=\"stroke: var(--c" + std::to_string(look % 6) + ")\" stroke-dasharray=\"" +
           std::string(dashes[look % dashes.size()]) + "\" d=\"" + path + "\"/>\n";
  }

  std::size_t entries = 0;
  std::size_t longest = 0;
  for (const series& curve : p.curves) {
    entries += curve.name.empty() ? 0u : 1u;
    longest = (std::max)(longest, characters(curve.name));
  }
  if (entries == 0) return svg;
  // in the corner that hides least, the upper right one if that is all the same
  const double wide = 46 + 7.0 * static_cast<double>(longest);
  const double high = 19.0 * static_cast<double>(entries) + 2;
  struct corner {
    double x, y;
    std::size_t hidden;
  };
  std::vector<corner> corners{{right - wide, top + 1, 0},
                              {left + 1, bottom - high - 1, 0},
                              {right - wide, bottom - high - 1, 0},
                              {left + 1, top + 1, 0}};
  for (corner& c : corners)
    for (const series& curve : p.curves)
      for (const point& q : thinned(curve.points, 200))
        if (axes.x.shows(q.x) && std::isfinite(q.y) && x_of(q.x) >= c.x && x_of(q.x) <= c.x + wide &&
            y_of(q.y) >= c.y && y_of(q.y) <= c.y + high)
          ++c.hidden;
  const corner best = *std::ranges::min_element(corners, {}, &corner::hidden);
  svg += "<rect class=\"behind\" x=\"" + at(best.x) + "\" y=\"" + at(best.y) + "\" width=\"" + at(wide) +
         "\" height=\"" + at(high) + "\"/>\n";
  const double end = best.x + wide;
  double y = best.y + 13;
  for (std::size_t c = 0; c < p.curves.size(); ++c) {
    if (p.curves[c].name.empty()) continue;
    const std::size_t look = style_of(p, c);
    if (p.curves[c].as == drawn_as::marks) {
      svg += circle(look, end - 20, y - 4);
    } else {
      svg += "<line class=\"curve\" style=\"stroke: var(--c" + std::to_string(look % 6) + ")\" stroke-dasharray=\"" +
             std::string(dashes[look % dashes.size()]) + "\" x1=\"" + at(end - 34) + "\" y1=\"" + at(y - 4) +
             "\" x2=\"" + at(end - 6) + "\" y2=\"" + at(y - 4) + "\"/>\n";
    }
    svg += text("legend", "end", end - 40, y, p.curves[c].name);
    y += 19;
  }
  return svg;
}

}  // namespace detail

/// The plot as one <svg> element that needs nothing else: its style is inside, follows the reader's light or dark
/// scheme, and tells curves apart by colour and by dash. `width` and `height` in CSS pixels.
[[nodiscard]] inline std::string to_svg(const plot& p, int width = 760, int height = 420) {
  return detail::svg_head(p.title, detail::description(p), width, height) + detail::svg_body(p, width, height) +
         "</svg>\n";
}

/// Small plots side by side under one title.
struct plot_grid {
  std::string title;
  std::vector<plot> panels;
  std::size_t columns = 2;
};

/// The plots as one <svg> element, each `width` by `height` in CSS pixels.
[[nodiscard]] inline std::string to_svg(const plot_grid& g, int width = 380, int height = 280) {
  const std::size_t columns = (std::max)(std::size_t{1}, (std::min)(g.columns, g.panels.size()));
  const std::size_t rows = (g.panels.size() + columns - 1) / columns;
  std::string words;
  std::string body;
  for (std::size_t i = 0; i < g.panels.size(); ++i) {
    words += (i == 0 ? "" : " ") + g.panels[i].title + ": " + detail::description(g.panels[i]);
    body += "<g transform=\"translate(" + std::to_string(static_cast<int>(i % columns) * width) + " " +
            std::to_string(static_cast<int>(i / columns) * height + 28) + ")\">\n" +
            detail::svg_body(g.panels[i], width, height) + "</g>\n";
  }
  return detail::svg_head(g.title, words, static_cast<int>(columns) * width, static_cast<int>(rows) * height + 28) +
         "<text class=\"title\" x=\"16\" y=\"22\">" + escaped(g.title) + "</text>\n" + body + "</svg>\n";
}

/// The plot as lines of characters, `columns` by `rows` without the labels; curve i is drawn with the i-th letter.
[[nodiscard]] inline std::string to_text(const plot& p, int columns = 64, int rows = 16) {
  const detail::axes axes = detail::axes_of(p);
  std::vector<std::string> canvas(static_cast<std::size_t>(rows), std::string(static_cast<std::size_t>(columns), ' '));
  const auto put = [&](double x, double y, char mark) {
    const auto column = static_cast<int>(std::lround(x * (columns - 1)));
    const auto row = static_cast<int>(std::lround((1 - y) * (rows - 1)));
    if (column < 0 || column >= columns || row < 0 || row >= rows) return;
    char& there = canvas[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
    // A letter stands above a reference line; two curves on one spot are a star.
    there = there == ' ' || there == '.' || there == mark ? mark : mark == '.' ? there : '*';
  };
  for (const level& l : p.levels)
    if (std::isfinite(l.y))
      for (int c = 0; c < columns; c += 2) put(static_cast<double>(c) / (columns - 1), axes.y.place(l.y), '.');
  for (std::size_t c = 0; c < p.curves.size(); ++c) {
    const char mark = static_cast<char>('a' + c % 26);
    const auto points = thinned(p.curves[c].points, 2'000);
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!axes.x.shows(points[i].x) || !std::isfinite(points[i].y)) continue;
      const double x1 = axes.x.place(points[i].x), y1 = axes.y.place(points[i].y);
      put(x1, y1, mark);
      if (p.curves[c].as == drawn_as::marks || i == 0 || !axes.x.shows(points[i - 1].x) ||
          !std::isfinite(points[i - 1].y))
        continue;
      const double x0 = axes.x.place(points[i - 1].x), y0 = axes.y.place(points[i - 1].y);
      const int steps = static_cast<int>(std::abs(x1 - x0) * columns);
      for (int s = 1; s < steps; ++s) put(x0 + (x1 - x0) * s / steps, y0 + (y1 - y0) * s / steps, mark);
    }
  }

  std::vector<std::string> labels(canvas.size());
  std::size_t margin = 0;
  for (const double tick : axes.y.ticks) {
    const auto row = static_cast<std::size_t>(std::lround((1 - axes.y.place(tick)) * (rows - 1)));
    if (row < labels.size()) labels[row] = detail::tick_label(axes.y, tick);
  }
  for (const std::string& label : labels) margin = (std::max)(margin, label.size());

  std::string out = "  " + p.y_label + "\n";
  for (std::size_t row = 0; row < canvas.size(); ++row) {
    std::string drawn = "  " + std::string(margin - labels[row].size(), ' ') + labels[row] +
                        (labels[row].empty() ? " | " : " + ") + canvas[row];
    drawn.erase(drawn.find_last_not_of(' ') + 1);
    out += drawn + "\n";
  }
  const std::string low = compact(axes.x.low), high = compact(axes.x.high);
  const std::size_t space = static_cast<std::size_t>(columns);
  out += std::string(margin + 3, ' ') + "+" + std::string(space + 1, '-') + "\n";
  std::string foot = low + " " + p.x_label + (p.log_x ? " (log scale) " : " ");
  foot += std::string(foot.size() + high.size() < space ? space - foot.size() - high.size() : 0, ' ') + high;
  out += std::string(margin + 5, ' ') + foot + "\n";
  for (std::size_t c = 0; c < p.curves.size(); ++c)
    out += "  " + std::string(1, static_cast<char>('a' + c % 26)) + "  " + p.curves[c].name + "\n";
  if (p.curves.size() > 1) out += "  *  more than one curve\n";
  for (const level& l : p.levels) out += "  .  " + l.name + " " + fixed(l.y, 3) + "\n";
  return out;
}

}  // namespace smelt::tool
