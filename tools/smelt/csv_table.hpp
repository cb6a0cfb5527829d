// How is a table of runs read? Comma-separated, with a line of column names; a column is found by its name or by one of
// its usual other names.
#pragma once

#include <cstddef>
#include <fstream>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace smelt::tool {

/// A table of text.
struct csv_table {
  std::string name;  ///< of the file, for messages
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;

  /// The place of a column. Throws invalid_argument, with the nearest name, when there is none.
  [[nodiscard]] std::size_t column(std::string_view wanted) const {
    for (std::size_t j = 0; j < columns.size(); ++j)
      if (columns[j] == wanted) return j;
    throw error(errc::invalid_argument, name + " has no column '" + std::string(wanted) + "'; did you mean '" +
                                            nearest_names(wanted, columns, 1).front() + "'?");
  }

  [[nodiscard]] bool has(std::string_view wanted) const {
    for (const std::string& c : columns)
      if (c == wanted) return true;
    return false;
  }

  /// A cell as a number. Throws corrupt, naming row and column, for anything else.
  [[nodiscard]] double number(std::size_t row, std::size_t column) const {
    const std::string& cell = rows[row][column];
    try {
      std::size_t end = 0;
      const double value = std::stod(cell, &end);
      if (end == cell.size()) return value;
    } catch (const std::exception&) {  // reported below, like a number with something behind it
    }
    throw error(errc::corrupt, name + ": column '" + columns[column] + "' of row " + std::to_string(row) +
                                   " must be a number, found '" + cell + "'");
  }
};

namespace detail {

/// The cells of a line; a cell in double quotes may hold commas, and "" for a quote.
[[nodiscard]] inline std::vector<std::string> csv_cells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

}  // namespace detail

/// Reads a file. Throws io when it cannot be opened or is empty, corrupt for a row with a wrong number of cells.
[[nodiscard]] inline csv_table read_csv(const std::string& name) {
  std::ifstream file(name);
  if (!file) throw error(errc::io, "cannot open the table of runs '" + name + "'");
  csv_table table{name, {}, {}};
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line == "\r") continue;
    std::vector<std::string> cells = detail::csv_cells(line);
    if (table.columns.empty()) {
      if (cells.front().starts_with("\xEF\xBB\xBF")) cells.front().erase(0, 3);
      table.columns = std::move(cells);
      continue;
    }
    if (cells.size() != table.columns.size()) {
      throw error(errc::corrupt, name + ": row " + std::to_string(table.rows.size()) + " must have " +
                                     std::to_string(table.columns.size()) + " cells, found " +
                                     std::to_string(cells.size()));
    }
    table.rows.push_back(std::move(cells));
  }
  if (table.rows.empty()) throw error(errc::io, "the table of runs '" + name + "' has no rows");
  return table;
}

}  // namespace smelt::tool
