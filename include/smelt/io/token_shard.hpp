// How are ready-made tokens stored? In the `.bin` shards many trainers share: 256 32-bit header words, then the ids.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <smelt/core/error.hpp>
#include <smelt/io/atomic_file.hpp>
#include <smelt/io/mapped_file.hpp>
#include <smelt/io/sniff.hpp>
#include <smelt/io/tokens.hpp>

namespace smelt {

namespace detail {

// Header words, little-endian: magic, version, number of tokens, 253 of padding.
struct shard_layout {
  std::int32_t magic;
  std::int32_t version;
  std::int64_t token_bytes;
};
inline constexpr shard_layout shard_16{20240520, 1, 2};  // uint16 ids
inline constexpr shard_layout shard_32{20240801, 7, 4};  // uint32 ids
inline constexpr std::int64_t shard_header_bytes = 1024;

[[nodiscard]] inline std::uint32_t load_bytes(const std::byte* p, std::int64_t count) noexcept {
  std::uint32_t value = 0;
  for (std::int64_t i = count - 1; i >= 0; --i) value = (value << 8) | std::to_integer<std::uint32_t>(p[i]);
  return value;
}

inline void store_bytes(std::uint32_t value, std::int64_t count, std::byte* p) noexcept {
  for (std::int64_t i = 0; i < count; ++i, value >>= 8) p[i] = static_cast<std::byte>(value & 0xFFu);
}

}  // namespace detail

/// The tokens of one shard: [number of tokens]. Throws corrupt when the file is not a shard, is cut short or has bytes
/// left over, and invalid_argument when it has no token or one outside [0, vocab).
[[nodiscard]] inline std::vector<std::int32_t> read_token_shard(const std::filesystem::path& path, std::int32_t vocab) {
  const mapped_file file(path);
  const std::span<const std::byte> bytes = file.bytes();
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::string name = "token shard '" + path.string() + "'";
  const auto word = [&](std::int64_t i) {
    return std::bit_cast<std::int32_t>(detail::load_bytes(bytes.data() + 4 * i, 4));
  };

  const std::int32_t magic = size >= 4 ? word(0) : 0;
  if (magic != detail::shard_16.magic && magic != detail::shard_32.magic) {
    const std::string_view kind = likely_kind(bytes.first((std::min)(bytes.size(), sniff_bytes)));
    throw error(errc::corrupt,
                name + " has no shard header: " +
                    (kind.empty() ? "its first word is " + std::to_string(magic) + ", need 20240520 or 20240801"
                                  : "it looks like " + std::string(kind)));
  }
  if (size < detail::shard_header_bytes) {
    throw error(errc::corrupt, name + " is cut short: have " + std::to_string(size) + " bytes, need " +
                                   std::to_string(detail::shard_header_bytes) + " for its header");
  }
  const detail::shard_layout layout = magic == detail::shard_16.magic ? detail::shard_16 : detail::shard_32;
  if (word(1) != layout.version) {
    throw error(errc::unsupported, name + " has version " + std::to_string(word(1)) + ", need " +
                                       std::to_string(layout.version) + " for magic " + std::to_string(magic));
  }
  const std::int64_t count = word(2);
  if (count < 0) throw error(errc::corrupt, name + " claims " + std::to_string(count) + " tokens");
  const std::int64_t need = detail::shard_header_bytes + count * layout.token_bytes;
  if (size != need) {
    throw error(errc::corrupt, name + (size < need ? " is cut short" : " has bytes left over") + ": have " +
                                   std::to_string(size) + " bytes, need " + std::to_string(need) + " for " +
                                   std::to_string(count) + " tokens of " + std::to_string(layout.token_bytes) +
                                   " bytes");
  }

  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  const std::byte* p = bytes.data() + detail::shard_header_bytes;
  for (std::int64_t i = 0; i < count; ++i, p += layout.token_bytes) {
    // Stays unsigned until it is checked: an id from 2^31 on is reported by its true value.
    const std::uint32_t id = detail::load_bytes(p, layout.token_bytes);
    if (std::cmp_greater_equal(id, vocab)) {
      throw error(errc::invalid_argument, name + ": token id " + std::to_string(id) + " at position " +
                                              std::to_string(i) + " is outside the vocabulary; need 0 <= id < " +
                                              std::to_string(vocab));
    }
    tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(id);
  }
  if (tokens.empty()) throw error(errc::invalid_argument, name + " is empty: have 0 tokens, need at least 1");
  return tokens;
}

/// Writes one shard, all or nothing: ids of 16 bits when the vocabulary allows, else of 32. Throws invalid_argument for
/// no token or one outside [0, vocab), unsupported for more than 2^31 - 1 tokens, io when the file cannot be written.
inline void write_token_shard(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                              std::int32_t vocab) {
  check_tokens(tokens, vocab);
  if (std::cmp_greater(tokens.size(), 0x7FFFFFFF)) {
    throw error(errc::unsupported,
                "a token shard holds at most 2147483647 tokens, found " + std::to_string(tokens.size()));
  }
  const detail::shard_layout layout = vocab <= 65536 ? detail::shard_16 : detail::shard_32;
  atomic_file file(path);
  std::array<std::byte, static_cast<std::size_t>(detail::shard_header_bytes)> header{};
  detail::store_bytes(std::bit_cast<std::uint32_t>(layout.magic), 4, header.data());
  detail::store_bytes(std::bit_cast<std::uint32_t>(layout.version), 4, header.data() + 4);
  detail::store_bytes(static_cast<std::uint32_t>(tokens.size()), 4, header.data() + 8);
  file.write(header);
  std::vector<std::byte> block;
  constexpr std::size_t block_tokens = std::size_t{1} << 16;
  for (std::size_t at = 0; at < tokens.size(); at += block_tokens) {
    const auto part = tokens.subspan(at, (std::min)(block_tokens, tokens.size() - at));
    block.resize(part.size() * static_cast<std::size_t>(layout.token_bytes));
    std::byte* p = block.data();
    for (const std::int32_t id : part) {
      detail::store_bytes(static_cast<std::uint32_t>(id), layout.token_bytes, p);
      p += layout.token_bytes;
    }
    file.write(block);
  }
  file.commit();
}

}  // namespace smelt
