// How does a run tell its story? One JSON object a line, each written whole, cut back to the step a resumed run is at.
#pragma once

#include <fcntl.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/io/descriptor.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace smelt {

namespace detail {

/// Replaces every NaN and infinity by null and appends its place ("/loss", "/balance/1") to `places`: JSON has no
/// spelling for them.
inline void remove_not_finite(nlohmann::json& value, const std::string& place, std::vector<std::string>& places) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    value = nullptr;
    places.push_back(place);
  } else if (value.is_structured()) {
    for (auto& [key, item] : value.items()) remove_not_finite(item, place + "/" + key, places);
  }
}

/// The step a line of a log is about; nothing when the line is not a JSON object with a whole number "step".
[[nodiscard]] inline std::optional<std::int64_t> step_of(const nlohmann::json& line) {
  if (!line.is_object()) return std::nullopt;
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<std::int64_t>();
}

struct log_line {
  std::int64_t begin = 0;  // bytes, from the start of the file
  std::int64_t end = 0;    // bytes, past the newline
  nlohmann::json value;
};

/// The complete lines of a log. A last line without its newline was torn by a crash and is left out; anything else
/// that is not a JSON object with a step throws errc::corrupt.
[[nodiscard]] inline std::vector<log_line> parse_log(std::string_view text, const std::filesystem::path& path) {
  std::vector<log_line> lines;
  std::size_t begin = 0;
  for (;;) {
    const auto newline = text.find('\n', begin);
    if (newline == std::string_view::npos) return lines;
    const auto line = text.substr(begin, newline - begin);
    auto value = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!step_of(value)) {
      throw error(errc::corrupt, path.string() + ": line " + std::to_string(lines.size() + 1) +
                                     " is not a JSON object with a whole number \"step\"");
    }
    lines.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(newline + 1), std::move(value)});
    begin = newline + 1;
  }
}

}  // namespace detail

/// All complete lines of a log, in order; a torn last line is left out. Throws errc::io and errc::corrupt.
[[nodiscard]] inline std::vector<nlohmann::json> read_log(const std::filesystem::path& path) {
  std::vector<nlohmann::json> values;
  for (auto& line : detail::parse_log(read_file(path), path)) values.push_back(std::move(line.value));
  return values;
}

/// Appends to a run's log. Each line is one write(2), so a process killed at any moment leaves only whole lines behind
/// (a power cut may lose the last ones or tear one, which the next run removes).
class run_log {
 public:
  /// Opens or creates the log and removes what a resumed run will write again: everything from the first line whose
  /// "step" is above `last_step`, and a torn last line. A new run passes 0. Throws errc::io, and errc::corrupt when a
  /// complete line is not a JSON object with a step (then nothing is removed).
  run_log(const std::filesystem::path& path, std::int64_t last_step)
      : file_(path, O_RDWR | O_CREAT | O_APPEND), end_(kept(path, last_step)) {
    if (file_.size() != end_) file_.resize(end_);
  }

  /// Appends one line. `line` is an object with a whole number "step"; NaN and infinities become null and their places
  /// are listed under "not_finite". A line that cannot be written whole is taken back before errc::io is thrown.
  void append(nlohmann::json line) {
    if (!detail::step_of(line)) {
      throw error(errc::invalid_argument, "a log line must be a JSON object with a whole number \"step\"");
    }
    std::vector<std::string> places;
    detail::remove_not_finite(line, "", places);
    if (!places.empty()) line["not_finite"] = places;
    const auto text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";

    try {
      file_.write(std::as_bytes(std::span(text.data(), text.size())));  // one call, unless the disk fills up
    } catch (const error&) {
      file_.resize(end_);
      throw;
    }
    end_ += static_cast<std::int64_t>(text.size());
  }

 private:
  static std::int64_t kept(const std::filesystem::path& path, std::int64_t last_step) {
    std::int64_t end = 0;
    for (const auto& line : detail::parse_log(read_file(path), path)) {
      if (*detail::step_of(line.value) > last_step) break;
      end = line.end;
    }
    return end;
  }

  descriptor file_;
  std::int64_t end_;  // bytes of complete lines
};

}  // namespace smelt
