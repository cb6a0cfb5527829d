// How is a table of runs read? Cells between commas (or semicolons, or tabs), under a line of column names.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <smelt/io/checksum.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace smelt::tool {

/// The number that a whole text writes; NaN for anything else.
[[nodiscard]] inline double number_in(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = problem == std::errc() && end == text.data() + text.size();
  return whole ? value : std::numeric_limits<double>::quiet_NaN();
}

/// A table of text.
struct csv_table {
  std::string name;  ///< of the file, for messages
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::size_t> lines;  ///< of the file, in which each row begins, from 1
  std::uint64_t hash = 0;          ///< of the file's bytes

  /// The place of a column. Throws invalid_argument when there is none, with the nearest name, or more than one.
  [[nodiscard]] std::size_t column(std::string_view wanted) const {
    std::size_t found = columns.size();
    for (std::size_t j = 0; j < columns.size(); ++j) {
      if (columns[j] != wanted) continue;
      if (found != columns.size())
        throw error(errc::invalid_argument, name + " has two columns '" + std::string(wanted) + "', " +
                                                std::to_string(found + 1) + " and " + std::to_string(j + 1) +
                                                " from the left; rename one");
      found = j;
    }
    if (found == columns.size()) {
      throw error(errc::invalid_argument, name + " has no column '" + std::string(wanted) + "'; did you mean '" +
                                              nearest_names(wanted, columns, 1).front() + "'?");
    }
    return found;
  }

  [[nodiscard]] bool has(std::string_view wanted) const {
    for (const std::string& c : columns)
      if (c == wanted) return true;
    return false;
  }

  /// "FILE, line N", for messages.
  [[nodiscard]] std::string place(std::size_t row) const { return name + ", line " + std::to_string(lines[row]); }

  /// A cell as a number, NaN and infinity among them. Throws corrupt, naming line and column, for anything else.
  [[nodiscard]] double number(std::size_t row, std::size_t column) const {
    const std::string& cell = rows[row][column];
    const double value = number_in(cell);
    if (std::isnan(value) && !missing(cell)) {
      throw error(errc::corrupt,
                  place(row) + ": column '" + columns[column] + "' must be a number, found '" + cell + "'");
    }
    return value;
  }

  /// Whether a cell says that there is no number.
  [[nodiscard]] static bool missing(std::string_view cell) {
    for (const std::string_view word : {"", "nan", "NaN", "NAN", "-nan", "NA", "N/A", "n/a", "null", "None"})
      if (cell == word) return true;
    return false;
  }
};

/// Reads a table from text; a cell in double quotes may hold separators, line ends, and "" for a quote. Throws io when
/// there are no rows, corrupt for a row with a wrong number of cells or a quote that is not closed.
[[nodiscard]] inline csv_table csv_in(std::string_view text, const std::string& name) {
  csv_table table{name, {}, {}, {}, checksum64(text)};
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::string_view head = text.substr(0, text.find_first_of("\r\n"));
  const char separator = head.find(',') != head.npos    ? ','
                         : head.find(';') != head.npos  ? ';'
                         : head.find('\t') != head.npos ? '\t'
                                                        : ',';
  std::size_t line = 1;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t first_line = line;
    std::vector<std::string> cells(1);
    bool quoted = false;
    bool any = false;  // a quote makes an empty line one of an empty cell
    for (; at < text.size() && (quoted || (text[at] != '\n' && text[at] != '\r')); ++at) {
      const char c = text[at];
      if (c == '\0') throw error(errc::corrupt, name + ", line " + std::to_string(line) + " is no text");
      if (c == '\n') ++line;
      if (quoted && c == '"' && at + 1 < text.size() && text[at + 1] == '"') {
        cells.back() += '"';
        ++at;
      } else if (c == '"' && (quoted || cells.back().empty())) {
        quoted = !quoted;
        any = true;
      } else if (c == separator && !quoted) {
        cells.emplace_back();
      } else {
        cells.back() += c;
      }
    }
    if (quoted) {
      throw error(errc::corrupt,
                  name + ", line " + std::to_string(first_line) + ": a cell's double quote is never closed");
    }
    at += text.substr((std::min)(at, text.size())).starts_with("\r\n") ? 2 : 1;
    ++line;
    if (cells.size() == 1 && !any && cells.front().find_first_not_of(' ') == std::string::npos) continue;
    for (std::string& cell : cells) {
      cell.erase(0, cell.find_first_not_of(' '));
      cell.erase(cell.find_last_not_of(' ') + 1);
    }
    if (table.columns.empty()) {
      table.columns = std::move(cells);
      continue;
    }
    if (cells.size() != table.columns.size()) {
      throw error(errc::corrupt, name + ", line " + std::to_string(first_line) + " must have " +
                                     std::to_string(table.columns.size()) + " cells, found " +
                                     std::to_string(cells.size()));
    }
    table.rows.push_back(std::move(cells));
    table.lines.push_back(first_line);
  }
  if (table.rows.empty()) throw error(errc::io, "the table '" + name + "' has no rows below its line of column names");
  return table;
}

/// Reads a file. Throws io when it cannot be opened or read, else as csv_in.
[[nodiscard]] inline csv_table read_csv(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) throw error(errc::io, "cannot open the table of runs '" + name + "'");
  if (std::filesystem::is_directory(name))
    throw error(errc::io, "the table of runs must be a file, found the folder '" + name + "'");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw error(errc::io, "cannot read the table of runs '" + name + "'");
  return csv_in(text, name);
}

}  // namespace smelt::tool
