// How does text become tokens and back? One token a byte, and one more that ends a document.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <smelt/core/error.hpp>

namespace smelt {

/// Which numbers stand for text. A checkpoint keeps the name, so that a model never reads another mapping's tokens.
/// The default is the byte mapping: token 0 to 255 is the byte of that value, whatever the encoding of the text.
struct token_format {
  std::string name = "bytes";
  std::int32_t vocab = 257;            ///< ids are in [0, vocab)
  std::int32_t end_of_document = 256;  ///< the id that closes a document; negative when there is none

  bool operator==(const token_format&) const = default;
};

/// Appends the byte tokens of `text`; every byte value is accepted.
inline void append_byte_tokens(std::string_view text, std::vector<std::int32_t>& tokens) {
  std::size_t at = tokens.size();
  tokens.resize(at + text.size());
  // A plain char may be signed: through it, bytes from 128 on would become negative ids.
  for (const char c : text) tokens[at++] = static_cast<unsigned char>(c);
}

/// The byte tokens of `text`: [text.size()].
[[nodiscard]] inline std::vector<std::int32_t> byte_tokens(std::string_view text) {
  std::vector<std::int32_t> tokens;
  append_byte_tokens(text, tokens);
  return tokens;
}

/// Checks that there is at least one token and that each is in [0, vocab); throws invalid_argument naming the first bad
/// id, its position and the vocabulary.
template <std::integral Id>
void check_tokens(std::span<const Id> ids, std::int64_t vocab) {
  if (ids.empty()) throw error(errc::invalid_argument, "the list of tokens is empty; have 0, need at least 1");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (std::cmp_less(ids[i], 0) || std::cmp_greater_equal(ids[i], vocab)) {
      throw error(errc::invalid_argument, "token id " + std::to_string(ids[i]) + " at position " + std::to_string(i) +
                                              " is outside the vocabulary; need 0 <= id < " + std::to_string(vocab));
    }
  }
}

namespace detail {

// Length of the well-formed UTF-8 sequence at the start of `text` (Unicode, table 3-7), or 0 when there is none.
[[nodiscard]] constexpr std::size_t utf8_sequence(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto within = [&](std::size_t i, unsigned low, unsigned high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  if (text.empty()) return 0;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return within(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;   // no overlong forms
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;  // no surrogates
    return within(1, low, high) && within(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;  // nothing above U+10FFFF
    return within(1, low, high) && within(2, 0x80, 0xBF) && within(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

}  // namespace detail

/// Offset of the first byte that is not part of well-formed UTF-8, if any.
[[nodiscard]] constexpr std::optional<std::int64_t> first_invalid_utf8(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = detail::utf8_sequence(text.substr(at));
    if (length == 0) return static_cast<std::int64_t>(at);
    at += length;
  }
  return std::nullopt;
}

/// Well-formed UTF-8 that shows any bytes: what is not UTF-8 appears byte by byte as a mark such as <0xFF>.
[[nodiscard]] inline std::string readable_text(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t length = detail::utf8_sequence(bytes);
    if (length > 0) {
      text.append(bytes.substr(0, length));
      bytes.remove_prefix(length);
    } else {
      const auto value = static_cast<unsigned char>(bytes.front());
      text.append("<0x").append(1, digits[value >> 4]).append(1, digits[value & 15]).append(1, '>');
      bytes.remove_prefix(1);
    }
  }
  return text;
}

/// The exact bytes of byte tokens: the inverse of byte_tokens. Throws invalid_argument for an id that is not a byte,
/// the end of a document included.
[[nodiscard]] inline std::string token_bytes(std::span<const std::int32_t> tokens) {
  if (!tokens.empty()) check_tokens(tokens, 256);
  std::string bytes;
  bytes.reserve(tokens.size());
  for (const std::int32_t token : tokens) bytes.push_back(static_cast<char>(static_cast<unsigned char>(token)));
  return bytes;
}

/// Byte tokens for people: well-formed UTF-8, with marks for bytes that are not text and <end of document> where one
/// ends. Throws invalid_argument for an id outside the byte mapping.
[[nodiscard]] inline std::string readable_text(std::span<const std::int32_t> tokens) {
  const token_format format;
  if (!tokens.empty()) check_tokens(tokens, format.vocab);
  std::string text;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= tokens.size(); ++i) {
    if (i < tokens.size() && tokens[i] != format.end_of_document) continue;
    text += readable_text(token_bytes(tokens.subspan(begin, i - begin)));
    if (i < tokens.size()) text += "<end of document>";
    begin = i + 1;
  }
  return text;
}

}  // namespace smelt
