// Is the checksum the published one, however the bytes arrive?
#include <smelt/io/checksum.hpp>

#include "catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace {

// The sanity buffer of the hash's specification.
std::vector<std::byte> sanity_buffer(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t generator = 2654435761u;
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(generator >> 56);
    generator *= 11400714785074694797u;
  }
  return bytes;
}

}  // namespace

TEST_CASE("the checksum is XXH64 with seed 0", "[checksum]") {
  CHECK(smelt::checksum64("") == 0xEF46DB3751D8E999u);
  CHECK(smelt::checksum64("a") == 0xD24EC4F1A98C6E5Bu);
  CHECK(smelt::checksum64("abc") == 0x44BC2CF5AD770999u);
  CHECK(smelt::checksum64("123456789") == 0x8CB841DB40E6AE83u);
  CHECK(smelt::checksum64("Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1u);

  struct vector {
    std::size_t size;
    std::uint64_t digest;
  };
  for (const vector& v :
       {vector{1, 0xE934A84ADB052768u}, vector{4, 0x9136A0DCA57457EEu}, vector{14, 0x8282DCC4994E35C8u},
        vector{222, 0xB641AE8CB691C174u}, vector{2243, 0x6580659B3A2FD03Du}}) {
    CAPTURE(v.size);
    CHECK(smelt::checksum64(sanity_buffer(v.size)) == v.digest);
  }
}

TEST_CASE("every length up to 300 hashes as the reference implementation does", "[checksum]") {
  // One number for 301 digests: the reference's hash of its own little-endian digests of lengths 0 to 300.
  smelt::checksum64_stream chain;
  for (std::size_t size = 0; size <= 300; ++size) {
    const std::uint64_t digest = smelt::checksum64(sanity_buffer(size));
    std::array<std::byte, 8> bytes{};
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(digest >> (8 * i));
    chain.update(bytes);
  }
  CHECK(chain.digest() == 0xC838E6AABC008E47u);
}

TEST_CASE("a digest does not depend on how the bytes are cut", "[checksum]") {
  const std::vector<std::byte> bytes = sanity_buffer(1000);
  const std::uint64_t whole = smelt::checksum64(bytes);
  for (const std::size_t piece : {1u, 3u, 7u, 31u, 32u, 33u, 64u, 999u}) {
    CAPTURE(piece);
    smelt::checksum64_stream stream;
    std::span<const std::byte> rest(bytes);
    while (!rest.empty()) {
      const std::size_t taken = rest.size() < piece ? rest.size() : piece;
      stream.update(rest.first(taken));
      (void)stream.digest();  // looking does not disturb the stream
      rest = rest.subspan(taken);
    }
    stream.update({});
    CHECK(stream.digest() == whole);
  }
}

TEST_CASE("one flipped bit changes the checksum", "[checksum]") {
  std::vector<std::byte> bytes = sanity_buffer(100);
  const std::uint64_t before = smelt::checksum64(bytes);
  for (std::byte& byte : bytes) {
    byte ^= std::byte{0x10};
    CHECK(smelt::checksum64(bytes) != before);
    byte ^= std::byte{0x10};
  }
  CHECK(smelt::checksum64(bytes) == before);
}
