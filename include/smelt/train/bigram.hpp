// How well could a model do that sees one token only? The yardstick that a trained model must beat by far.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <smelt/core/error.hpp>
#include <smelt/io/tokens.hpp>

namespace smelt {

/// The entropy of a token given the one before it, in nats a token, under the counts of the text itself: the loss no
/// bigram model can beat on this text. Throws invalid_argument for fewer than two tokens or one outside [0, vocab), and
/// unsupported above 4096 tokens, where a text's own counts say little and their table is large.
[[nodiscard]] inline double bigram_entropy(std::span<const std::int32_t> tokens, std::int64_t vocab) {
  constexpr std::int64_t most = 4096;
  if (vocab > most) {
    throw error(errc::unsupported, "bigram entropy needs a vocabulary of at most " + std::to_string(most) + ", found " +
                                       std::to_string(vocab));
  }
  check_tokens(tokens, vocab);
  if (tokens.size() < 2) throw error(errc::invalid_argument, "bigram entropy needs at least 2 tokens, have 1");

  const auto width = static_cast<std::size_t>(vocab);
  std::vector<std::int64_t> pairs(width * width, 0);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    ++pairs[static_cast<std::size_t>(tokens[i]) * width + static_cast<std::size_t>(tokens[i + 1])];
  }
  double nats = 0.0;
  for (std::size_t before = 0; before < width; ++before) {
    const std::span row = std::span<const std::int64_t>(pairs).subspan(before * width, width);
    std::int64_t total = 0;
    for (const std::int64_t count : row) total += count;
    for (const std::int64_t count : row) {
      if (count > 0)
        nats -= static_cast<double>(count) * std::log(static_cast<double>(count) / static_cast<double>(total));
    }
  }
  return nats / static_cast<double>(tokens.size() - 1);
}

}  // namespace smelt
