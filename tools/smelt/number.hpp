// How are numbers read from the command line and written for people? "2M" is two million, 2000000 is "2,000,000".
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <smelt/core/error.hpp>
#include <string>
#include <string_view>
#include <system_error>

namespace smelt::tool {

/// The exact integer that `text` writes, such as 2M, 1.5k, 500_000, 1e6 or 3.2e9; suffixes k, M, G (or B) and T are
/// powers of 1,000. Nothing when `text` is no number, is negative, has a fraction left, or passes 64 bits.
[[nodiscard]] inline std::optional<std::int64_t> read_count(std::string_view text) {
  std::int64_t value = 0;
  int exponent = 0;
  bool digits = false, point = false;
  const auto push = [&](int digit) {
    if (value > ((std::numeric_limits<std::int64_t>::max)() - digit) / 10) return false;
    value = value * 10 + digit;
    return true;
  };
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if (text[i] >= '0' && text[i] <= '9') {
      if (!push(text[i] - '0')) return std::nullopt;
      exponent -= point;
      digits = true;
    } else if (text[i] == '.' && !point) {
      point = true;
    } else if (text[i] != '_' || !digits) {
      break;
    }
  }
  if (!digits) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    int power = 0;
    const std::size_t start = ++i;
    for (; i < text.size() && i < start + 2 && text[i] >= '0' && text[i] <= '9'; ++i)
      power = power * 10 + text[i] - '0';
    if (i == start) return std::nullopt;
    exponent += power;
  } else if (i < text.size()) {
    constexpr std::string_view suffixes = "kMGT";
    const char suffix = text[i] == 'K' ? 'k' : text[i] == 'B' ? 'G' : text[i];
    const auto at = suffixes.find(suffix);
    if (at == std::string_view::npos) return std::nullopt;
    exponent += 3 * static_cast<int>(at + 1);
    ++i;
  }
  if (i != text.size()) return std::nullopt;
  for (; exponent > 0 && value != 0; --exponent)
    if (!push(0)) return std::nullopt;
  for (; exponent < 0; ++exponent) {
    if (value % 10 != 0) return std::nullopt;
    value /= 10;
  }
  return value;
}

/// The largest count there is: no limit.
inline constexpr std::int64_t any_count = (std::numeric_limits<std::int64_t>::max)();

/// As read_count, for the option or field called `what`. Throws errc::invalid_argument with what was found when there
/// is no number, it is below `least` or above `most`.
[[nodiscard]] inline std::int64_t parse_count(std::string_view text, const std::string& what, std::int64_t least = 0,
                                              std::int64_t most = any_count) {
  const auto value = read_count(text);
  if (!value || *value < least || *value > most)
    throw error(errc::invalid_argument,
                what + " must be a whole number " +
                    (most == any_count ? "of at least " + std::to_string(least) + ", such as 500k, 2M or 1e6"
                                       : "from " + std::to_string(least) + " to " + std::to_string(most)) +
                    "; found \"" + std::string(text) + "\"");
  return *value;
}

/// The finite number that `text` writes in decimal, such as 0.003 or 1e-3, for the option called `what`. Throws
/// errc::invalid_argument with what was found when there is none, or one that a double cannot hold.
[[nodiscard]] inline double parse_real(std::string_view text, const std::string& what) {
  double value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [read, problem] = std::from_chars(begin, end, value);
  if (problem != std::errc{} || read != end || !std::isfinite(value))
    throw error(errc::invalid_argument,
                what + " must be a number, such as 0.003 or 1e-3; found \"" + std::string(text) + "\"");
  return value;
}

/// `text` with a comma between groups of three digits of its leading integer.
[[nodiscard]] inline std::string grouped(std::string text) {
  const std::size_t start = text.starts_with('-') ? 1 : 0;
  std::size_t end = start;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  for (std::size_t i = end; i > start + 3;) text.insert(i -= 3, ",");
  return text;
}

/// 2000000 as "2,000,000".
[[nodiscard]] inline std::string grouped(std::int64_t value) {
  return grouped(std::to_string(value));
}

/// `value` with `digits` behind the point; "n/a" when it is not finite.
[[nodiscard]] inline std::string fixed(double value, int digits) {
  if (!std::isfinite(value)) return "n/a";
  std::string text(64, '\0');
  const int written = std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  if (written < 0 || static_cast<std::size_t>(written) >= text.size()) return std::to_string(value);
  text.resize(static_cast<std::size_t>(written));
  return text;
}

/// `value` to about three significant digits with a power-of-1,000 suffix: 1234567 as "1.23M", 50 as "50". What is
/// beyond the suffixes, or would be 0, has a power of ten: "9.63e-10".
[[nodiscard]] inline std::string compact(double value) {
  if (!std::isfinite(value)) return "n/a";
  constexpr std::string_view suffixes[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  std::size_t suffix = 0;
  double shown = value;
  while (std::abs(shown) >= 999.5 && suffix + 1 < std::size(suffixes)) {
    shown /= 1'000;
    ++suffix;
  }
  if (std::abs(shown) >= 999.5 || (value != 0 && std::abs(value) < 0.005)) {
    char power[40];
    std::snprintf(power, sizeof power, "%.3g", value);
    return power;
  }
  std::string text = fixed(shown, std::abs(shown) >= 99.95 ? 0 : std::abs(shown) >= 9.995 ? 1 : 2);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
  }
  return text + std::string(suffixes[suffix]);
}

/// A length of time in seconds as "42 s", "3 min 05 s" or "2 h 10 min".
[[nodiscard]] inline std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "n/a";
  const auto whole = static_cast<std::int64_t>(std::llround((std::min)(seconds, 1e15)));
  const auto two = [](std::int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3'600) return std::to_string(whole / 60) + " min " + two(whole % 60) + " s";
  return std::to_string(whole / 3'600) + " h " + two(whole % 3'600 / 60) + " min";
}

/// A power of 1,024 bytes.
struct binary_unit {
  std::string_view name;
  double bytes = 1;
};

/// The unit in which `bytes` is a number from 1 to 1,024, if there is one.
[[nodiscard]] inline binary_unit binary_unit_of(double bytes) {
  constexpr std::string_view names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t i = 0;
  double size = 1;
  for (; bytes / size >= 1'024 && i + 1 < std::size(names); ++i) size *= 1'024;
  return {names[i], size};
}

/// A number of bytes with a binary unit: "88.0 MiB".
[[nodiscard]] inline std::string binary_bytes(double bytes) {
  const binary_unit unit = binary_unit_of(bytes);
  return fixed(bytes / unit.bytes, unit.bytes == 1 ? 0 : 1) + " " + std::string(unit.name);
}

}  // namespace smelt::tool
