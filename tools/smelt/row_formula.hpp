// What does a formula over the columns of a table say of one row?
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <system_error>

#include "csv_table.hpp"

namespace smelt::tool::detail {

/// A formula over the columns of one row: + - * / ^, parentheses, numbers, and columns by name, in double quotes where
/// the name has other characters than letters, digits, _ and dots.
class row_formula {
 public:
  row_formula(const csv_table& table, std::size_t row, const std::string& text)
      : table_(table), row_(row), text_(text) {}

  [[nodiscard]] double value() {
    const double result = sum();
    skip();
    if (at_ != text_.size()) refuse();
    return result;
  }

 private:
  [[noreturn]] void refuse() const {
    throw error(errc::invalid_argument, "'" + text_ + "' must be a column of " + table_.name +
                                            " or a formula such as C/(6*N) or \"Model Size\"*1e9; the trouble is at '" +
                                            text_.substr((std::min)(at_, text_.size())) + "'");
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  [[nodiscard]] bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] double sum() {
    double x = product();
    for (;;) {
      if (take('+')) {
        x += product();
      } else if (take('-')) {
        x -= product();
      } else {
        return x;
      }
    }
  }
  [[nodiscard]] double product() {
    double x = signed_power();
    for (;;) {
      if (take('*')) {
        x *= signed_power();
      } else if (take('/')) {
        x /= signed_power();
      } else {
        return x;
      }
    }
  }
  [[nodiscard]] double signed_power() {
    if (++depth_ > 200) refuse();
    const bool negative = take('-');
    double x = negative ? signed_power() : atom();
    if (!negative && take('^')) x = std::pow(x, signed_power());
    --depth_;
    return negative ? -x : x;
  }
  [[nodiscard]] double atom() {
    if (take('(')) {
      const double x = sum();
      if (!take(')')) refuse();
      return x;
    }
    skip();
    const auto is = [&](auto&& test) { return at_ < text_.size() && test(static_cast<unsigned char>(text_[at_])); };
    if (take('"')) {
      const auto end = text_.find('"', at_);
      if (end == std::string::npos) refuse();
      const std::string name = text_.substr(at_, end - at_);
      at_ = end + 1;
      return table_.number(row_, table_.column(name));
    }
    if (is([](int c) { return std::isdigit(c) != 0 || c == '.'; })) {
      double x = 0;
      const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), x);
      if (problem != std::errc()) refuse();
      at_ = static_cast<std::size_t>(end - text_.data());
      return x;
    }
    const std::size_t begin = at_;
    while (is([](int c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; })) ++at_;
    if (begin == at_) refuse();
    return table_.number(row_, table_.column(text_.substr(begin, at_ - begin)));
  }

  const csv_table& table_;
  std::size_t row_;
  const std::string& text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace smelt::tool::detail
