// How is a table shown? Aligned columns on a terminal, and the same rows as HTML in a report.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace smelt::tool {

/// A column's heading and whether it holds numbers (aligned right) or words (aligned left).
struct column {
  std::string name;
  bool number = true;
};

/// Rows under headings, with a caption above and notes (units, conventions) below.
struct table {
  std::string caption;
  std::vector<column> columns;
  std::vector<std::vector<std::string>> rows;  ///< one cell a column; a short row is filled with empty cells
  std::vector<std::string> notes{};
};

/// `text` with the characters that HTML and XML reserve replaced, for content and quoted attributes alike.
[[nodiscard]] inline std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// Characters of UTF-8 text: bytes that do not continue another character.
[[nodiscard]] inline std::size_t characters(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
}

namespace detail {

[[nodiscard]] inline std::string_view cell(const std::vector<std::string>& row, std::size_t i) noexcept {
  return i < row.size() ? std::string_view(row[i]) : std::string_view();
}

}  // namespace detail

/// The table as aligned lines of text; no line ends in blanks.
[[nodiscard]] inline std::string to_text(const table& t) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < t.columns.size(); ++i) {
    std::size_t width = characters(t.columns[i].name);
    for (const auto& row : t.rows) width = (std::max)(width, characters(detail::cell(row, i)));
    widths.push_back(width);
  }
  std::string out = t.caption.empty() ? "" : t.caption + "\n";
  const auto line = [&](const auto& cell_of) {
    std::string text = " ";
    for (std::size_t i = 0; i < t.columns.size(); ++i) {
      const std::string_view cell = cell_of(i);
      const std::string gap(widths[i] - characters(cell), ' ');
      text += t.columns[i].number ? " " + gap + std::string(cell) : " " + std::string(cell) + gap;
      if (i + 1 < t.columns.size()) text += " ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](std::size_t i) { return std::string_view(t.columns[i].name); });
  std::vector<std::string> rules;
  for (const std::size_t width : widths) rules.emplace_back(width, '-');
  line([&](std::size_t i) { return std::string_view(rules[i]); });
  for (const auto& row : t.rows) line([&](std::size_t i) { return detail::cell(row, i); });
  for (const std::string& note : t.notes) out += "  " + note + "\n";
  return out;
}

/// The table as an HTML fragment.
[[nodiscard]] inline std::string to_html(const table& t) {
  std::string out = "<div class=\"wide\"><table>\n";
  if (!t.caption.empty()) out += "<caption>" + escaped(t.caption) + "</caption>\n";
  const auto kind = [&](std::size_t i) { return std::string(t.columns[i].number ? " class=\"number\"" : ""); };
  out += "<thead><tr>";
  for (std::size_t i = 0; i < t.columns.size(); ++i)
    out += "<th scope=\"col\"" + kind(i) + ">" + escaped(t.columns[i].name) + "</th>";
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : t.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < t.columns.size(); ++i) {
      const std::string tag = i == 0 ? "th" : "td";
      out += "<" + tag + (i == 0 ? " scope=\"row\"" : "") + kind(i) + ">" + escaped(detail::cell(row, i)) + "</" + tag +
             ">";
    }
    out += "</tr>\n";
  }
  out += "</tbody></table>";
  for (const std::string& note : t.notes) out += "<p class=\"note\">" + escaped(note) + "</p>";
  return out + "</div>\n";
}

}  // namespace smelt::tool
