// Do token shards read back, and wrong ones say what is wrong?
#include <smelt/io/token_shard.hpp>

#include "catch.hpp"
#include "support/temporary_folder.hpp"

#include <cstdint>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;

namespace {

void put(std::string& bytes, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

// A shard written byte by byte, as other programs lay it out.
std::string shard(std::uint32_t magic, std::uint32_t version, std::uint32_t count, const std::string& ids) {
  std::string bytes(1024, '\0');
  put(bytes, 0, magic);
  put(bytes, 4, version);
  put(bytes, 8, count);
  return bytes + ids;
}

}  // namespace

TEST_CASE("shards of both widths are read", "[token_shard]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "a.bin";
  using ids = std::vector<std::int32_t>;

  smelt::write_file(path, shard(20240520, 1, 3, std::string("\x01\x00\x50\xC4\xFF\x00", 6)));
  CHECK(smelt::read_token_shard(path, 50304) == ids{1, 50256, 255});

  smelt::write_file(path, shard(20240801, 7, 2, std::string("\x07\x00\x00\x00\xFF\xF4\x01\x00", 8)));
  CHECK(smelt::read_token_shard(path, 128256) == ids{7, 128255});
}

TEST_CASE("a written shard reads back, at the width its vocabulary needs", "[token_shard]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "a.bin";
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 100'000; ++i) tokens.push_back((i * 7919) % 65536);

  smelt::write_token_shard(path, tokens, 65536);
  CHECK(std::filesystem::file_size(path) == 1024 + 2 * tokens.size());
  CHECK(smelt::read_token_shard(path, 65536) == tokens);

  tokens.push_back(65536);
  CHECK_THROWS_WITH(smelt::write_token_shard(path, tokens, 65536), ContainsSubstring("65536 at position 100000"));
  CHECK(smelt::read_token_shard(path, 65536).size() == 100'000);  // the old file is untouched
  smelt::write_token_shard(path, tokens, 65537);
  CHECK(std::filesystem::file_size(path) == 1024 + 4 * tokens.size());
  CHECK(smelt::read_token_shard(path, 65537) == tokens);
  CHECK(smelt_test::names_in(folder.path()) == std::vector<std::string>{"a.bin"});
  CHECK_THROWS_AS(smelt::write_token_shard(path, std::vector<std::int32_t>{}, 10), smelt::error);
}

TEST_CASE("a wrong shard is refused with what it has and what it needs", "[token_shard]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "a.bin";
  const auto read = [&](const std::string& bytes, std::int32_t vocab = 257) {
    smelt::write_file(path, bytes);
    return smelt::read_token_shard(path, vocab);
  };
  const std::string good = shard(20240520, 1, 2, std::string("\x01\x00\x02\x00", 4));
  REQUIRE(read(good).size() == 2);

  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(read(good.substr(0, size)), smelt::error);
  }
  CHECK_THROWS_WITH(read(good.substr(0, 1027)), ContainsSubstring("cut short: have 1027 bytes, need 1028"));
  CHECK_THROWS_WITH(read(good.substr(0, 100)), ContainsSubstring("have 100 bytes, need 1024"));
  CHECK_THROWS_WITH(read(good + "x"), ContainsSubstring("left over: have 1029 bytes, need 1028"));
  CHECK_THROWS_WITH(read(""), ContainsSubstring("an empty file"));
  CHECK_THROWS_WITH(read("version https://git-lfs.github.com/spec/v1\n"), ContainsSubstring("Git LFS pointer"));
  CHECK_THROWS_WITH(read(shard(20240521, 1, 2, "abcd")), ContainsSubstring("20240521, need 20240520 or 20240801"));
  CHECK_THROWS_WITH(read(shard(20240520, 2, 2, "abcd")), ContainsSubstring("version 2, need 1"));
  CHECK_THROWS_WITH(read(shard(20240801, 1, 1, "abcd")), ContainsSubstring("version 1, need 7"));
  CHECK_THROWS_WITH(read(shard(20240520, 1, 0, "")), ContainsSubstring("have 0 tokens"));
  CHECK_THROWS_WITH(read(shard(20240520, 1, 0xFFFFFFFFu, "")), ContainsSubstring("claims -1 tokens"));
  CHECK_THROWS_WITH(read(shard(20240520, 1, 0x7FFFFFFFu, "ab")), ContainsSubstring("need 4294968318"));
  CHECK_THROWS_WITH(read(good, 2), ContainsSubstring("token id 2 at position 1") && ContainsSubstring("id < 2"));
  CHECK_THROWS_WITH(read(shard(20240801, 7, 1, std::string("\x00\x00\x00\x80", 4))),
                    ContainsSubstring("token id 2147483648 at position 0"));
  CHECK_THROWS_AS(smelt::read_token_shard(folder.path(), 257), smelt::error);
  CHECK_THROWS_AS(smelt::read_token_shard(folder.path() / "none.bin", 257), smelt::error);
}
