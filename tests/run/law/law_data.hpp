// Where are the tables of runs? Our own in tests/data/law; public ones in the folder named by SMELT_LAW_DATA, as a
// variable of the environment or of the build; they are not part of this repository, and tests that need one say that
// they skipped where it is not found.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"

namespace smelt_tests {

/// A table of text by column.
using text_table = std::map<std::string, std::vector<std::string>>;

/// The comma-separated table of a file that can be read.
inline text_table read_table(std::istream& file) {
  text_table table;
  std::vector<std::string> names;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    std::string cell;
    std::vector<std::string> row;
    while (std::getline(cells, cell, ',')) row.push_back(cell);
    if (names.empty()) {
      names = row;
      continue;
    }
    for (std::size_t j = 0; j < names.size(); ++j) table[names[j]].push_back(row.at(j));
  }
  return table;
}

/// A table of this repository: tests/data/law/NAME.
inline text_table own_table(const std::string& name) {
  std::ifstream file(std::string(SMELT_SOURCE_DIR) + "/tests/data/law/" + name);
  REQUIRE(file);
  return read_table(file);
}

/// The table, or nothing and a word about it where it is not found.
inline std::optional<text_table> law_table(const std::string& name) {
  const char* folder = std::getenv("SMELT_LAW_DATA");
#ifdef SMELT_LAW_DATA
  if (folder == nullptr) folder = SMELT_LAW_DATA;
#endif
  std::ifstream file(folder == nullptr ? name : std::string(folder) + "/" + name);
  if (folder == nullptr || !file) {
    WARN("skipped: " + name + (folder == nullptr ? ": SMELT_LAW_DATA names no folder" : " is not in SMELT_LAW_DATA"));
    return std::nullopt;
  }
  return read_table(file);
}

/// A column as numbers.
inline std::vector<double> numbers(const text_table& table, const std::string& column) {
  std::vector<double> all;
  for (const std::string& cell : table.at(column)) all.push_back(std::stod(cell));
  return all;
}

}  // namespace smelt_tests
