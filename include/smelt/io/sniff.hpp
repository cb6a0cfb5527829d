// What is this file really? Names the usual impostors (pointer files, error pages, archives) from their first bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace smelt {

/// How many leading bytes `likely_kind` looks at: enough for every signature it knows (the farthest is tar's, at 257).
inline constexpr std::size_t sniff_bytes = 512;

/// What `likely_kind` says of a file that begins as a safetensors file does.
inline constexpr std::string_view likely_safetensors = "a safetensors file";

namespace detail {

[[nodiscard]] constexpr bool starts_with(std::span<const std::byte> head, std::string_view magic,
                                         std::size_t at = 0) noexcept {
  if (head.size() < at || head.size() - at < magic.size()) return false;
  for (std::size_t i = 0; i < magic.size(); ++i) {
    if (std::to_integer<unsigned char>(head[at + i]) != static_cast<unsigned char>(magic[i])) return false;
  }
  return true;
}

/// As starts_with, but ASCII letters match in either case; `word` is in lower case.
[[nodiscard]] constexpr bool starts_with_word(std::span<const std::byte> head, std::string_view word) noexcept {
  if (head.size() < word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    auto c = std::to_integer<unsigned char>(head[i]);
    if (c >= 'A' && c <= 'Z') c = static_cast<unsigned char>(c - 'A' + 'a');
    if (c != static_cast<unsigned char>(word[i])) return false;
  }
  return true;
}

/// What is left after a UTF-8 byte-order mark and white space.
[[nodiscard]] constexpr std::span<const std::byte> skip_blank(std::span<const std::byte> head) noexcept {
  if (starts_with(head, "\xEF\xBB\xBF")) head = head.subspan(3);
  while (!head.empty()) {
    const auto c = std::to_integer<unsigned char>(head.front());
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') break;
    head = head.subspan(1);
  }
  return head;
}

struct signature {
  std::string_view magic;
  std::string_view kind;
  std::size_t at = 0;
};

// Literals with embedded zero bytes need their length; std::string_view's literal keeps it.
inline constexpr std::array signatures = [] {
  using namespace std::string_view_literals;
  return std::to_array<signature>({
      {"version https://git-lfs"sv, "a Git LFS pointer (the real file was not downloaded; try `git lfs pull`)"sv},
      {"version https://hawser"sv, "a Git LFS pointer (the real file was not downloaded; try `git lfs pull`)"sv},
      {"GGUF"sv, "a GGUF model"sv},
      {"FUGG"sv, "a big-endian GGUF model"sv},
      {"ggml"sv, "a GGML model"sv},
      {"lmgg"sv, "a GGML model"sv},
      {"PK\x03\x04"sv, "a zip archive (PyTorch .pt and .pth files and .npz files are zip archives)"sv},
      {"PK\x05\x06"sv, "an empty zip archive"sv},
      {"\x1F\x8B"sv, "gzip-compressed data"sv},
      {"\x28\xB5\x2F\xFD"sv, "zstd-compressed data"sv},
      {"\xFD"
       "7zXZ\0"sv,
       "xz-compressed data"sv},
      {"BZh"sv, "bzip2-compressed data"sv},
      {"7z\xBC\xAF\x27\x1C"sv, "a 7-Zip archive"sv},
      {"ustar"sv, "a tar archive"sv, 257},
      {"\x89HDF\r\n\x1A\n"sv, "an HDF5 file"sv},
      {"\x93NUMPY"sv, "a NumPy .npy array"sv},
      {"PAR1"sv, "a Parquet table"sv},
      {"ARROW1"sv, "an Arrow file"sv},
      {"SQLite format 3\0"sv, "an SQLite database"sv},
      {"%PDF-"sv, "a PDF document"sv},
      {"\x7F"
       "ELF"sv,
       "an ELF program"sv},
      {"\x89PNG\r\n\x1A\n"sv, "a PNG image"sv},
      {"\xFF\xD8\xFF"sv, "a JPEG image"sv},
      {"\xFF\xFE"sv, "UTF-16 text (little-endian byte-order mark)"sv},
      {"\xFE\xFF"sv, "UTF-16 text (big-endian byte-order mark)"sv},
  });
}();

}  // namespace detail

/// What a file that begins with `head` probably is ("a GGUF model", "an HTML page ..."), ready to follow "this looks
/// like"; "" when nothing is recognised. Give it the first `sniff_bytes` bytes; an empty head is "an empty file".
[[nodiscard]] constexpr std::string_view likely_kind(std::span<const std::byte> head) noexcept {
  using detail::starts_with;
  using detail::starts_with_word;
  if (head.empty()) return "an empty file";
  for (const auto& known : detail::signatures) {
    if (starts_with(head, known.magic, known.at)) return known.kind;
  }
  // A pickle opens with PROTO (0x80) and its version; 0x80 cannot begin valid UTF-8.
  if (head.size() >= 2 && head[0] == std::byte{0x80} && head[1] >= std::byte{2} && head[1] <= std::byte{5}) {
    return "a Python pickle (an old PyTorch .bin or .pt file)";
  }
  // safetensors: a 64-bit little-endian header length far below 2^32, then the JSON header.
  if (head.size() >= 9 && head[4] == std::byte{0} && head[5] == std::byte{0} && head[6] == std::byte{0} &&
      head[7] == std::byte{0} && head[8] == std::byte{'{'}) {
    return likely_safetensors;
  }
  const auto text = detail::skip_blank(head);
  if (starts_with_word(text, "<!doctype html") || starts_with_word(text, "<html") || starts_with_word(text, "<head") ||
      starts_with_word(text, "<body")) {
    return "an HTML page (a download that returned a web page instead of the file)";
  }
  if (starts_with_word(text, "<?xml")) return "an XML document (often a server's error message)";
  bool all_zero = head.size() >= 16;
  for (const auto b : head) all_zero = all_zero && b == std::byte{0};
  if (all_zero) return "zero bytes (a download or a write that never finished)";
  return "";
}

}  // namespace smelt
