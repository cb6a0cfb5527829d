// What do tests train on? Text the project writes itself, learnable and the same for the same seed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <smelt/core/random.hpp>
#include <smelt/io/documents.hpp>

namespace smelt_test {

namespace detail {

// Draws one after another from a stream.
class dice {
 public:
  dice(std::uint64_t seed, std::uint64_t stream) : stream_(seed, stream) {}

  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return stream_.below(bound, position_++); }

  template <std::size_t N>
  [[nodiscard]] std::string_view pick(const std::array<std::string_view, N>& words) {
    return words[below(N)];
  }

 private:
  smelt::random_stream stream_;
  std::uint64_t position_ = 0;
};

}  // namespace detail

/// Sentences of a small grammar whose verbs agree with their subjects in number.
[[nodiscard]] inline std::string grammar_text(detail::dice& dice, std::uint64_t sentences) {
  static constexpr std::array<std::string_view, 6> nouns{"smith", "river", "child", "engine", "garden", "letter"};
  static constexpr std::array<std::string_view, 6> plurals{"smiths",  "rivers",  "children",
                                                           "engines", "gardens", "letters"};
  static constexpr std::array<std::string_view, 4> adjectives{"old", "quiet", "bright", "small"};
  static constexpr std::array<std::string_view, 4> verbs{"finds", "follows", "needs", "remembers"};
  static constexpr std::array<std::string_view, 4> plural_verbs{"find", "follow", "need", "remember"};
  std::string text;
  const auto phrase = [&](bool plural) {
    text += "the ";
    if (dice.below(2) == 0) text.append(dice.pick(adjectives)).append(" ");
    text += plural ? dice.pick(plurals) : dice.pick(nouns);
  };
  for (std::uint64_t i = 0; i < sentences; ++i) {
    const bool plural = dice.below(2) == 0;
    phrase(plural);
    text.append(" ").append(plural ? dice.pick(plural_verbs) : dice.pick(verbs)).append(" ");
    phrase(dice.below(2) == 0);
    text += ".\n";
  }
  return text;
}

/// Sums and differences of one- and two-digit numbers.
[[nodiscard]] inline std::string arithmetic_text(detail::dice& dice, std::uint64_t lines) {
  std::string text;
  for (std::uint64_t i = 0; i < lines; ++i) {
    const auto a = static_cast<std::int64_t>(dice.below(100));
    const auto b = static_cast<std::int64_t>(dice.below(100));
    const bool sum = dice.below(2) == 0;
    text += std::to_string(a) + (sum ? " + " : " - ") + std::to_string(b) + " = " +
            std::to_string(sum ? a + b : a - b) + "\n";
  }
  return text;
}

/// Balanced brackets of four kinds (a Dyck language), one word a line, at most eight deep.
[[nodiscard]] inline std::string bracket_text(detail::dice& dice, std::uint64_t lines) {
  static constexpr std::string_view opening = "([{<";
  static constexpr std::string_view closing = ")]}>";
  std::string text;
  for (std::uint64_t i = 0; i < lines; ++i) {
    std::string expected;
    std::uint64_t left = 4 + dice.below(12);
    while (left > 0 || !expected.empty()) {
      const bool opens = left > 0 && expected.size() < 8 && (expected.empty() || dice.below(2) == 0);
      if (opens) {
        const std::uint64_t kind = dice.below(opening.size());
        text += opening[kind];
        expected += closing[kind];
        --left;
      } else {
        text += expected.back();
        expected.pop_back();
      }
    }
    text += '\n';
  }
  return text;
}

/// `count` documents of some 100 to 700 bytes, of the categories "grammar", "arithmetic" and "brackets" in turn.
[[nodiscard]] inline std::vector<smelt::document> synthetic_documents(std::uint64_t seed, std::uint64_t count) {
  std::vector<smelt::document> documents;
  for (std::uint64_t i = 0; i < count; ++i) {
    detail::dice dice(seed, i);
    const std::uint64_t lines = 8 + dice.below(12);
    smelt::document made;
    switch (i % 3) {
      case 0:
        made = {grammar_text(dice, lines), "grammar", "synthetic", std::to_string(i)};
        break;
      case 1:
        made = {arithmetic_text(dice, lines), "arithmetic", "synthetic", std::to_string(i)};
        break;
      default:
        made = {bracket_text(dice, lines), "brackets", "synthetic", std::to_string(i)};
        break;
    }
    documents.push_back(std::move(made));
  }
  return documents;
}

}  // namespace smelt_test
