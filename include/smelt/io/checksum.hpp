// How does smelt notice a changed byte or name a text by its content? With the XXH64 hash, seed 0.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace smelt {

namespace detail {

inline constexpr std::uint64_t xxh64_prime_1 = 0x9E3779B185EBCA87u;
inline constexpr std::uint64_t xxh64_prime_2 = 0xC2B2AE3D27D4EB4Fu;
inline constexpr std::uint64_t xxh64_prime_3 = 0x165667B19E3779F9u;
inline constexpr std::uint64_t xxh64_prime_4 = 0x85EBCA77C2B2AE63u;
inline constexpr std::uint64_t xxh64_prime_5 = 0x27D4EB2F165667C5u;

// The format is defined on little-endian words; a big-endian machine swaps, so a checksum travels between machines.
template <class Word>
[[nodiscard]] inline Word load_little_endian(const std::byte* p) noexcept {
  Word word;
  std::memcpy(&word, p, sizeof(Word));
  if constexpr (std::endian::native == std::endian::big) {
    Word swapped = 0;
    for (std::size_t i = 0; i < sizeof(Word); ++i) swapped = (swapped << 8) | ((word >> (8 * i)) & 0xFFu);
    return swapped;
  }
  return word;
}

[[nodiscard]] constexpr std::uint64_t xxh64_round(std::uint64_t lane, std::uint64_t word) noexcept {
  return std::rotl(lane + word * xxh64_prime_2, 31) * xxh64_prime_1;
}

[[nodiscard]] constexpr std::uint64_t xxh64_merge(std::uint64_t hash, std::uint64_t lane) noexcept {
  return (hash ^ xxh64_round(0, lane)) * xxh64_prime_1 + xxh64_prime_4;
}

}  // namespace detail

/// The XXH64 hash (seed 0) of bytes that arrive in pieces; how they are cut does not change the digest.
class checksum64_stream {
 public:
  /// Appends bytes.
  void update(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    length_ += bytes.size();
    if (held_ > 0) {
      const std::size_t room = stripe - held_;
      const std::size_t taken = bytes.size() < room ? bytes.size() : room;
      std::memcpy(buffer_.data() + held_, bytes.data(), taken);
      held_ += taken;
      bytes = bytes.subspan(taken);
      if (held_ < stripe) return;
      consume(buffer_.data(), 1);
      held_ = 0;
    }
    const std::size_t stripes = bytes.size() / stripe;
    consume(bytes.data(), stripes);
    bytes = bytes.subspan(stripes * stripe);
    if (!bytes.empty()) std::memcpy(buffer_.data(), bytes.data(), bytes.size());
    held_ = bytes.size();
  }

  /// The hash of everything so far; more bytes may follow.
  [[nodiscard]] std::uint64_t digest() const noexcept {
    using namespace detail;
    std::uint64_t hash = xxh64_prime_5;
    if (length_ >= stripe) {
      hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
      for (const std::uint64_t lane : lanes_) hash = xxh64_merge(hash, lane);
    }
    hash += length_;
    const std::byte* p = buffer_.data();
    std::size_t left = held_;
    for (; left >= 8; left -= 8, p += 8) {
      hash ^= xxh64_round(0, load_little_endian<std::uint64_t>(p));
      hash = std::rotl(hash, 27) * xxh64_prime_1 + xxh64_prime_4;
    }
    if (left >= 4) {
      hash ^= load_little_endian<std::uint32_t>(p) * xxh64_prime_1;
      hash = std::rotl(hash, 23) * xxh64_prime_2 + xxh64_prime_3;
      left -= 4;
      p += 4;
    }
    for (; left > 0; --left, ++p) {
      hash ^= static_cast<std::uint64_t>(*p) * xxh64_prime_5;
      hash = std::rotl(hash, 11) * xxh64_prime_1;
    }
    hash = (hash ^ (hash >> 33)) * xxh64_prime_2;
    hash = (hash ^ (hash >> 29)) * xxh64_prime_3;
    return hash ^ (hash >> 32);
  }

 private:
  static constexpr std::size_t stripe = 32;

  void consume(const std::byte* p, std::size_t stripes) noexcept {
    std::uint64_t a = lanes_[0];
    std::uint64_t b = lanes_[1];
    std::uint64_t c = lanes_[2];
    std::uint64_t d = lanes_[3];
    for (; stripes > 0; --stripes, p += stripe) {
      a = detail::xxh64_round(a, detail::load_little_endian<std::uint64_t>(p));
      b = detail::xxh64_round(b, detail::load_little_endian<std::uint64_t>(p + 8));
      c = detail::xxh64_round(c, detail::load_little_endian<std::uint64_t>(p + 16));
      d = detail::xxh64_round(d, detail::load_little_endian<std::uint64_t>(p + 24));
    }
    lanes_ = {a, b, c, d};
  }

  std::array<std::uint64_t, 4> lanes_{detail::xxh64_prime_1 + detail::xxh64_prime_2, detail::xxh64_prime_2, 0,
                                      0 - detail::xxh64_prime_1};
  std::array<std::byte, stripe> buffer_{};
  std::size_t held_ = 0;
  std::uint64_t length_ = 0;
};

/// The XXH64 hash (seed 0) of a block of bytes.
[[nodiscard]] inline std::uint64_t checksum64(std::span<const std::byte> bytes) noexcept {
  checksum64_stream stream;
  stream.update(bytes);
  return stream.digest();
}

/// The XXH64 hash (seed 0) of a text's bytes.
[[nodiscard]] inline std::uint64_t checksum64(std::string_view text) noexcept {
  return checksum64(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace smelt
