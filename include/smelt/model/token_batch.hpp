// What does a model read? A batch of sequences of equal length.
#pragma once

#include <cstdint>
#include <span>

namespace smelt {

/// `sequences` sequences of `length` tokens, one behind the other; spans have sequences * length elements.
struct token_batch {
  std::span<const std::int32_t> inputs;   ///< token ids
  std::span<const std::int32_t> targets;  ///< the token to predict; -1 counts for nothing
  std::span<const std::int32_t> first;    ///< first position a token may attend to, as an index within its sequence
  std::int64_t sequences = 0;
  std::int64_t length = 0;

  [[nodiscard]] constexpr std::int64_t tokens() const noexcept { return sequences * length; }
};

}  // namespace smelt
