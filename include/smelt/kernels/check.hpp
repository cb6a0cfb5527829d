// Do the arguments of an op fit together? Checked at every op's entry, in every build.
#pragma once

#include <cstdint>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>

namespace smelt {

namespace detail {

// Out of line and cold, so that a check costs its comparisons only.
[[noreturn]] inline void throw_shape_mismatch(const char* op, const char* argument, const std::string& found,
                                              const std::string& needed) {
  throw error(errc::mismatch, std::string(op) + ": " + argument + " is " + found + ", needs " + needed);
}

[[nodiscard]] inline std::string shape_text(std::int64_t rows, std::int64_t cols) {
  std::string text = "[";
  text += std::to_string(rows);
  text += ", ";
  text += std::to_string(cols);
  text += "]";
  return text;
}

[[nodiscard]] inline std::string shape_text(std::int64_t size) {
  std::string text = "[";
  text += std::to_string(size);
  text += "]";
  return text;
}

}  // namespace detail

/// Throws mismatch, naming op, argument, found and needed shape, unless the view is [rows, cols] and has memory.
template <class T>
void check_shape(const char* op, const char* argument, matrix_view<T> found, std::int64_t rows, std::int64_t cols) {
  if (found.rows != rows || found.cols != cols) [[unlikely]] {
    detail::throw_shape_mismatch(op, argument, detail::shape_text(found.rows, found.cols),
                                 detail::shape_text(rows, cols));
  }
  if (found.data == nullptr && rows * cols > 0) [[unlikely]] {
    detail::throw_shape_mismatch(op, argument, "null", detail::shape_text(rows, cols));
  }
}

/// Throws invalid_argument unless a number of a shape is at least `least`.
inline void check_at_least(const char* op, const char* field, std::int64_t found, std::int64_t least) {
  if (found < least) [[unlikely]] {
    throw error(errc::invalid_argument, std::string(op) + ": " + field + " is " + std::to_string(found) +
                                            ", needs at least " + std::to_string(least));
  }
}

/// Throws unless `w` has the shape of the stored weights, and those have at least the rows and columns that are used.
template <class T>
void check_weights(const char* op, const char* argument, matrix_view<T> w, const linear_shape& s) {
  check_at_least(op, "stored_in", weight_cols(s), s.in);
  check_at_least(op, "stored_out", weight_rows(s), s.out);
  check_shape(op, argument, w, weight_rows(s), weight_cols(s));
}

/// Throws mismatch, naming op, argument, found and needed size, unless the span has `size` elements.
template <class T>
void check_size(const char* op, const char* argument, std::span<T> found, std::int64_t size) {
  if (static_cast<std::int64_t>(found.size()) != size) [[unlikely]] {
    detail::throw_shape_mismatch(op, argument, detail::shape_text(static_cast<std::int64_t>(found.size())),
                                 detail::shape_text(size));
  }
}

/// Throws mismatch unless the span is empty (the argument is optional) or has `size` elements.
template <class T>
void check_optional_size(const char* op, const char* argument, std::span<T> found, std::int64_t size) {
  if (!found.empty()) check_size(op, argument, found, size);
}

/// Throws invalid_argument, naming op, argument, value and position, unless every id lies in [least, count).
inline void check_ids(const char* op, const char* argument, std::span<const std::int32_t> ids, std::int64_t least,
                      std::int64_t count) {
  // Without a way out in the middle, the loop compares several at once.
  std::int32_t lowest = (std::numeric_limits<std::int32_t>::max)();
  std::int32_t greatest = (std::numeric_limits<std::int32_t>::min)();
  for (const std::int32_t id : ids) {
    lowest = id < lowest ? id : lowest;
    greatest = id > greatest ? id : greatest;
  }
  if (ids.empty() || (lowest >= least && greatest < count)) [[likely]]
    return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < least || ids[i] >= count) {
      throw error(errc::invalid_argument, std::string(op) + ": " + argument + "[" + std::to_string(i) + "] is " +
                                              std::to_string(ids[i]) + ", needs " + std::to_string(least) + " to " +
                                              std::to_string(count - 1));
    }
  }
}

/// Throws mismatch unless the grouping has the sizes of `assignments` assignments to `experts` experts.
template <class Int>
void check_grouping(const char* op, const grouping_view<Int>& found, std::int64_t experts, std::int64_t assignments) {
  check_size(op, "grouping.offsets", found.offsets, experts + 1);
  check_size(op, "grouping.assignment", found.assignment, assignments);
  check_size(op, "grouping.row", found.row, assignments);
}

/// Throws invalid_argument unless the experts' groups follow each other over all assignments, and every index of the
/// grouping is one of them: what kernels then read and write lies inside their arguments.
inline void check_groups(const char* op, const grouping_view<>& grouping) {
  const auto assignments = static_cast<std::int64_t>(grouping.assignment.size());
  std::int64_t before = 0;
  for (std::size_t e = 0; e < grouping.offsets.size(); ++e) {
    const std::int64_t least = e + 1 == grouping.offsets.size() ? assignments : before;
    const std::int64_t most = e == 0 ? 0 : assignments;
    const std::int64_t found = grouping.offsets[e];
    if (found < least || found > most) [[unlikely]] {
      throw error(errc::invalid_argument, std::string(op) + ": grouping.offsets[" + std::to_string(e) + "] is " +
                                              std::to_string(found) + ", needs " + std::to_string(least) + " to " +
                                              std::to_string(most));
    }
    before = found;
  }
  check_ids(op, "grouping.assignment", grouping.assignment, 0, assignments);
  check_ids(op, "grouping.row", grouping.row, 0, assignments);
}

/// Throws invalid_argument unless the rows are whole sequences of `length`.
inline void check_sequences(const char* op, std::int64_t rows, std::int64_t length) {
  if (length < 1 || rows % length != 0) [[unlikely]] {
    throw error(errc::invalid_argument, std::string(op) + ": length is " + std::to_string(length) +
                                            ", needs a positive divisor of the " + std::to_string(rows) + " rows");
  }
}

/// Throws unless the rows are whole sequences of `length` and each first key lies in its query's sequence, at or
/// before the query.
inline void check_first(const char* op, std::span<const std::int32_t> first, std::int64_t rows, std::int64_t length) {
  check_size(op, "first", first, rows);
  check_sequences(op, rows, length);
  for (std::int64_t t = 0; t < rows; ++t) {
    const std::int64_t start = t - t % length;
    if (first[t] < start || first[t] > t) [[unlikely]] {
      throw error(errc::invalid_argument, std::string(op) + ": first[" + std::to_string(t) + "] is " +
                                              std::to_string(first[t]) + ", needs " + std::to_string(start) + " to " +
                                              std::to_string(t));
    }
  }
}

/// The same where an empty `first` stands for sequences that are one document each.
inline void check_optional_first(const char* op, std::span<const std::int32_t> first, std::int64_t rows,
                                 std::int64_t length) {
  if (first.empty()) {
    check_sequences(op, rows, length);
  } else {
    check_first(op, first, rows, length);
  }
}

}  // namespace smelt
