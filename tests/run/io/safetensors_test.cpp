// Do tensors survive a file, and is every lie of a file found before it is used?
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <smelt/io/safetensors.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/temporary_folder.hpp"

namespace st = smelt::safetensors;
using namespace std::string_literals;
using smelt_test::temporary_folder;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::span<const std::byte> bytes_of_text(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A file with this header and so many data bytes.
std::string crafted(const std::string& header, std::size_t data) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data, 'd');
}

std::string rejection(const std::string& content) {
  try {
    static_cast<void>(st::parse_header(bytes_of_text(content), "f"));
  } catch (const smelt::error& e) {
    CHECK(e.code() == smelt::errc::corrupt);
    CHECK(std::string(e.what()).starts_with("f: "));
    return e.what();
  }
  return "accepted";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

std::vector<float> ramp(std::size_t n, float first) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = first + static_cast<float>(i) / 8.0F;
  return values;
}

}  // namespace

TEST_CASE("what is written is read back bit for bit, in order", "[io][safetensors]") {
  const temporary_folder folder;
  const auto path = folder.path() / "model.safetensors";
  auto a = ramp(12, -1.0F);
  a[3] = std::numeric_limits<float>::quiet_NaN();
  a[4] = -0.0F;
  a[5] = std::numeric_limits<float>::infinity();
  const auto b = ramp(5, 100.0F);
  const std::vector<float> none;
  const std::vector<float> single{42.0F};
  const std::vector<st::tensor> tensors{
      {"z.weight", {3, 4}, a}, {"a \"quoted\" \\ caf\xC3\xA9", {5}, b}, {"none", {0, 7}, none}, {"scalar", {}, single}};
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"note", "line\nbreak"}};
  st::save(path, tensors, metadata);

  const st::file file(path);
  REQUIRE(file.entries().size() == 4);
  CHECK(file.metadata() == metadata);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& e = file.entries()[i];
    CHECK(file.find(tensors[i].name) != nullptr);
    CHECK(file.at(tensors[i].name).shape == tensors[i].shape);
    CHECK(e.type == st::dtype::f32);
    const auto raw = file.bytes(file.at(tensors[i].name));
    REQUIRE(raw.size() == tensors[i].values.size_bytes());
    if (!raw.empty()) CHECK(std::memcmp(raw.data(), tensors[i].values.data(), raw.size()) == 0);
    const auto in_place = file.floats_in_place(file.at(tensors[i].name));
    REQUIRE(in_place.has_value());
    CHECK(in_place->size() == tensors[i].values.size());
  }
  CHECK(file.entries().front().name == "z.weight");
  CHECK(file.find("nothing") == nullptr);
  CHECK_THROWS_AS(file.at("nothing"), smelt::error);

  // The data begins at a multiple of 8 and the same input gives the same bytes.
  std::uint64_t header = 0;
  std::memcpy(&header, file.content().data(), 8);
  CHECK(header % 8 == 0);
  const auto again = folder.path() / "again.safetensors";
  st::save(again, tensors, metadata);
  CHECK(smelt::read_file(path) == smelt::read_file(again));
}

TEST_CASE("a written file has exactly the bytes the format prescribes", "[io][safetensors]") {
  std::string content;
  const std::vector<float> values{1.0F, -2.0F};
  const std::vector<st::tensor> tensors{{"w", {1, 2}, values}};
  st::write([&](std::span<const std::byte> b) { content.append(reinterpret_cast<const char*>(b.data()), b.size()); },
            tensors);
  const auto header = R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})"s;
  REQUIRE(header.size() == 56);
  CHECK(content == "\x38\0\0\0\0\0\0\0"s + header + "\0\0\x80\x3F\0\0\0\xC0"s);

  content.clear();
  st::write([&](std::span<const std::byte> b) { content.append(reinterpret_cast<const char*>(b.data()), b.size()); },
            {});
  CHECK(content == "\x08\0\0\0\0\0\0\0{}      "s);
  CHECK(st::parse_header(bytes_of_text(content), "f").entries.empty());
}

TEST_CASE("a writer refuses what no reader could take", "[io][safetensors]") {
  const auto values = ramp(6, 0.0F);
  const auto refuses = [&](std::vector<st::tensor> tensors) {
    try {
      st::write([](std::span<const std::byte>) { FAIL("wrote something"); }, tensors);
    } catch (const smelt::error& e) {
      CHECK(e.code() == smelt::errc::invalid_argument);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK(contains(refuses({{"w", {6}, values}, {"w", {6}, values}}), "two tensors are called 'w'"));
  CHECK(contains(refuses({{"w", {5}, values}}), "[5] was given 6 values"));
  CHECK(contains(refuses({{"w", {-2, -3}, values}}), "[-2, -3]"));
  CHECK(contains(refuses({{"w", {std::int64_t{1} << 40, std::int64_t{1} << 40}, values}}), "was given 6 values"));
  CHECK(contains(refuses({{"__metadata__", {6}, values}}), "__metadata__"));
  CHECK(contains(refuses({{"bad \xFF", {6}, values}}), "not valid UTF-8"));
  CHECK(contains(refuses({{"w", {1, 1, 1, 1, 1, 1, 1, 1, 6}, values}}), "9 dimensions"));
}

TEST_CASE("half, brain and double precision become floats", "[io][safetensors]") {
  const temporary_folder folder;
  const auto path = folder.path() / "mixed";
  const std::vector<std::uint16_t> halves{0x3C00, 0xC000, 0x0001, 0x83FF, 0x7BFF,
                                          0x7C00, 0x0000, 0x8000, 0x0400, 0x7E01};
  const std::vector<std::uint16_t> brains{0x3F80, 0xC000, 0x7F80, 0x0001};
  const std::vector<double> doubles{0.1, -1e-50, 1e300};
  const std::vector<std::uint8_t> bytes{1, 2, 3};
  // Three bytes first: nothing after them is aligned.
  auto content = R"({"u":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"s +
                 R"("h":{"dtype":"F16","shape":[10],"data_offsets":[3,23]},)" +
                 R"("b":{"dtype":"BF16","shape":[2,2],"data_offsets":[23,31]},)" +
                 R"("d":{"dtype":"F64","shape":[3],"data_offsets":[31,55]},)" +
                 R"("f":{"dtype":"F32","shape":[1],"data_offsets":[55,59]}})";
  content.resize((content.size() + 7) / 8 * 8, ' ');
  content = crafted(content, 0);
  const auto append = [&](const void* data, std::size_t n) { content.append(static_cast<const char*>(data), n); };
  const float f = 2.5F;
  append(bytes.data(), 3);
  append(halves.data(), 20);
  append(brains.data(), 8);
  append(doubles.data(), 24);
  append(&f, 4);
  smelt::write_file(path, content);
  const st::file file(path);

  std::vector<float> out(10);
  file.copy_floats(file.at("h"), out);
  CHECK(out[0] == 1.0F);
  CHECK(out[1] == -2.0F);
  CHECK(out[2] == 0x1p-24F);
  CHECK(out[3] == -1023 * 0x1p-24F);
  CHECK(out[4] == 65504.0F);
  CHECK(std::isinf(out[5]));
  CHECK((out[6] == 0.0F && !std::signbit(out[6])));
  CHECK((out[7] == 0.0F && std::signbit(out[7])));
  CHECK(out[8] == 0x1p-14F);
  CHECK(std::isnan(out[9]));
  out.resize(4);
  file.copy_floats(file.at("b"), out);
  CHECK(out[0] == 1.0F);
  CHECK(out[1] == -2.0F);
  CHECK(std::isinf(out[2]));
  CHECK(out[3] == std::bit_cast<float>(0x00010000U));
  out.resize(3);
  file.copy_floats(file.at("d"), out);
  CHECK(out[0] == 0.1F);
  CHECK(out[1] == 0.0F);
  CHECK(std::isinf(out[2]));
  CHECK_FALSE(file.floats_in_place(file.at("f")).has_value());
  CHECK_FALSE(file.floats_in_place(file.at("d")).has_value());
  out.resize(1);
  file.copy_floats(file.at("f"), out);
  CHECK(out[0] == 2.5F);
  CHECK_THROWS_WITH(file.copy_floats(file.at("f"), std::span<float>()),
                    Catch::Matchers::ContainsSubstring("has 1 elements"));
  out.resize(3);
  CHECK_THROWS_WITH(file.copy_floats(file.at("u"), out), Catch::Matchers::ContainsSubstring("dtype U8"));
}

TEST_CASE("every half converts to the float of the same value", "[io][safetensors]") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto value = st::detail::float_from_f16(static_cast<std::uint16_t>(bits));
    const int exponent = static_cast<int>((bits >> 10) & 31U);
    const double fraction = static_cast<double>(bits & 1023U);
    const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
    const double expected = (bits & 0x8000U) != 0 ? -magnitude : magnitude;
    if (exponent == 31) {
      wrong += (bits & 1023U) == 0 ? !std::isinf(value) : !std::isnan(value);
    } else {
      wrong += static_cast<double>(value) != expected;
    }
    wrong += std::signbit(value) != ((bits & 0x8000U) != 0);
  }
  CHECK(wrong == 0);
}

TEST_CASE("files that are something else are named", "[io][safetensors]") {
  CHECK(
      contains(rejection("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"), "Git LFS pointer"));
  // "version " as a 64-bit number is what other readers report as a header length.
  CHECK(contains(rejection("version https://git-lfs.github.com/spec/v1\n"), "2336927755350992246"));
  CHECK(contains(rejection("<!DOCTYPE html><html><head><title>404"), "HTML page"));
  CHECK(contains(rejection("\x80\x02}q\0(X\x05\0\0\0model"s), "pickle"));
  CHECK(contains(rejection("PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0"s), "zip archive"));
  CHECK(contains(rejection("GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0"s), "GGUF"));
  CHECK(contains(rejection("\x1F\x8B\x08\0\0\0\0\0\0\x03\x01\x02"s), "gzip"));
  CHECK(contains(rejection(""), "an empty file"));
  CHECK(contains(rejection(""), "have 0 bytes, need at least 8"));
  CHECK(contains(rejection("abc"), "have 3 bytes"));
  CHECK(contains(rejection(std::string(4096, '\0')), "zero bytes"));
  CHECK(contains(rejection(crafted("[1,2]   ", 0)), "does not begin with '{'"));
  CHECK(contains(rejection(crafted("", 4)), "empty"));
}

TEST_CASE("files cut short say what they have and what they need", "[io][safetensors]") {
  const auto whole = crafted(one("F32", "[4]", "[0,16]"), 16);
  CHECK(rejection(whole) == "accepted");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto message = rejection(whole.substr(0, size));
    CHECK(contains(message, "have " + std::to_string(size) + " bytes"));
    if (size >= 9) CHECK(contains(message, "truncated"));
    if (size >= whole.size() - 16) CHECK(contains(message, "need " + std::to_string(whole.size())));
    CHECK_FALSE(contains(message, "looks like a safetensors"));
  }
  CHECK(contains(rejection(whole + "extra"), "the last 5 of"));
}

TEST_CASE("crafted headers are refused in words", "[io][safetensors]") {
  struct row {
    std::string header;
    std::size_t data;
    std::string says;
  };
  const std::string half = "\"shape\":[2],\"data_offsets\":[0,8]}";
  const std::vector<row> rows{
      {one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, "more than 8 dimensions"},
      {one("F32", "[18446744073709551615,2]", "[0,8]"), 8, "18446744073709551615, which is above 2^63 - 1"},
      {one("F32", "[99999999999999999999999,2]", "[0,8]"), 8, "found 99999999999999999999999"},
      {one("F32", "[9223372036854775807,2]", "[0,8]"), 8, "more elements than 64 bits"},
      {one("F32", "[4398046511105,4194304]", "[0,8]"), 8, "more elements than 64 bits"},
      {one("F32", "[4611686018427387904]", "[0,8]"), 8, "more elements than 64 bits"},
      {one("U8", "[9223372036854775807]", "[0,9223372036854775807]"), 8, "truncated: have"},
      {one("F32", "[-2]", "[0,8]"), 8, "found -2"},
      {one("F32", "[2.0]", "[0,8]"), 8, "found 2.0"},
      {one("F32", "[\"2\"]", "[0,8]"), 8, "found the text '2'"},
      {one("F32", "[[2]]", "[0,8]"), 8, "found an array"},
      {one("F32", "2", "[0,8]"), 8, "shape must be a list of whole numbers, found 2"},
      {one("F32", "[2]", "[-8,0]"), 8, "found -8"},
      {one("F32", "[2]", "[8,0]"), 8, "run backwards"},
      {one("F32", "[2]", "[0]"), 8, "needs two numbers, has 1"},
      {one("F32", "[2]", "[]"), 8, "needs two numbers, has 0"},
      {one("F32", "[2]", "[0,8,8]"), 8, "more than two numbers"},
      {one("F32", "[2]", "[0,4]"), 4, "F32 [2] needs 8 bytes"},
      {one("F64", "[2]", "[0,8]"), 8, "F64 [2] needs 16 bytes"},
      {one("F32", "[2]", "[4,12]"), 12, "bytes [0, 4) before tensor 'w' belong to no tensor"},
      {one("F32", "[2]", "[18446744073709551608,18446744073709551615]"), 8, "above 2^63 - 1"},
      {one("F33", "[2]", "[0,8]"), 8, "dtype 'F33' is not supported (known: BOOL"},
      {one("F4", "[4]", "[0,2]"), 2, "dtype 'F4' is not supported"},
      {one("F32", "[0,3]", "[0,4]"), 4, "F32 [0, 3] needs 0 bytes"},
      {R"({"w":{"dtype":5,)" + half + "}", 8, "dtype must be a type's name, found 5"},
      {R"({"w":{)" + half + "}", 8, "tensor 'w': has no dtype"},
      {R"({"w":{"dtype":"F32","shape":[2]}})", 8, "has no data_offsets"},
      {R"({"w":{"dtype":"F32","data_offsets":[0,8]}})", 8, "has no shape"},
      {R"({"w":{"dtype":"F32","dtype":"F32",)" + half + "}", 8, "'dtype' appears twice"},
      {R"({"w":{"dtype":"F32","stride":1,)" + half + "}", 8, "unknown field 'stride'"},
      {R"({"w":7})", 0, "the entry 'w' must be an object, found 7"},
      {R"({"w":null})", 0, "found null"},
      {R"({"w":{"dtype":"F32",)" + half + R"(,"w":{"dtype":"F32",)" + half + "}", 8, "the name 'w' appears twice"},
      {R"({"__metadata__":{"a":"1"},"__metadata__":{"b":"1"}})", 0, "'__metadata__' appears twice"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "__metadata__ has the key 'a' twice"},
      {R"({"__metadata__":{"a":1}})", 0, "the value of 'a' must be text, found 1"},
      {R"({"__metadata__":{"a":{}}})", 0, "found an object"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "'a' and 'b' overlap at data byte 4"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8, "'a' and 'b' overlap at data byte 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       20, "bytes [8, 12) before tensor 'a'"},
      {R"({"w":{"dtype":"F32",)" + half, 8, "not valid JSON"},
      {R"({"w":{"dtype":"F32",)" + half + "}}", 8, "not valid JSON"},
      {"{\"\xFF\":1}", 0, "not valid JSON"},
      {"{\"w\":{\"dtype\":\"F32\"}}\0\0"s, 0, "has no shape"},
      {"{", 0, "not valid JSON"},
      {"{}{}", 0, "not valid JSON"},
      {"{" + std::string(100'000, '['), 0, "not valid JSON"},
      {R"({"w":)" + std::string(100'000, '['), 0, "found an array"},
  };
  for (const auto& r : rows) {
    const auto message = rejection(crafted(r.header, r.data));
    INFO(r.header.substr(0, 200));
    INFO(message);
    CHECK(contains(message, r.says));
    CHECK(message.size() < 600);
  }
  // A name of a megabyte does not become a message of a megabyte.
  const auto long_name = rejection(crafted("{\"" + std::string(1 << 20, 'n') + "\":1}", 0));
  CHECK(contains(long_name, "(1048576 bytes)"));
  CHECK(long_name.size() < 600);
}

TEST_CASE("unusual but valid headers are accepted", "[io][safetensors]") {
  CHECK(rejection(crafted(one("F32", "[0]", "[0,0]"), 0)) == "accepted");
  CHECK(rejection(crafted(one("F32", "[9223372036854775807,0,9223372036854775807]", "[0,0]"), 0)) == "accepted");
  CHECK(rejection(crafted(one("F32", "[]", "[0,4]"), 4)) == "accepted");
  CHECK(rejection(crafted(one("BOOL", "[3]", "[0,3]") + "     ", 3)) == "accepted");
  CHECK(rejection(crafted("{}", 0)) == "accepted");
  CHECK(rejection(crafted(R"({"__metadata__":{}})", 0)) == "accepted");
  // Not in the order of the data, with an empty tensor at a seam.
  const auto parsed = st::parse_header(
      bytes_of_text(crafted(
          R"({"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},"e":{"dtype":"F16","shape":[0],"data_offsets":[8,8]},)"
          R"("a":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}})",
          16)),
      "f");
  REQUIRE(parsed.entries.size() == 3);
  CHECK(parsed.entries[0].name == "a");
  CHECK(parsed.entries[1].name == "e");
  CHECK(parsed.entries[2].name == "b");
  for (const char* name : {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "U16", "I16", "F16", "BF16", "U32", "I32", "F32",
                           "U64", "I64", "F64"}) {
    REQUIRE(st::dtype_named(name).has_value());
    CHECK(st::name_of(*st::dtype_named(name)) == name);
  }
}

TEST_CASE("mutated headers are accepted or refused, never worse", "[io][safetensors]") {
  const auto base = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"s +
                    R"("b":{"dtype":"BF16","shape":[3,0],"data_offsets":[16,16]},)" +
                    R"("c":{"dtype":"I64","shape":[],"data_offsets":[16,24]}})";
  const auto whole = crafted(base, 24);
  REQUIRE(rejection(whole) == "accepted");
  const std::string alphabet = "{}[]\",:0123456789-.eEdtypeshapFB_\\u\0\xFF\x80 "s;
  std::mt19937 random(20240607);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int accepted = 0;
  for (int round = 0; round < 60'000; ++round) {
    auto text = whole;
    const auto edits = 1 + pick(4);
    for (std::size_t k = 0; k < edits; ++k) {
      const auto at = pick(text.size());
      switch (pick(6)) {
        case 0:
          text[at] = alphabet[pick(alphabet.size())];
          break;
        case 1:
          text[at] = static_cast<char>(text[at] ^ (1 << pick(8)));
          break;
        case 2:
          text.erase(at, 1 + pick(6));
          break;
        case 3:
          text.insert(at, text.substr(pick(text.size()), 1 + pick(40)));
          break;
        case 4:
          text.insert(at, 1, alphabet[pick(alphabet.size())]);
          break;
        default:
          text.resize(at);
          break;
      }
      if (text.empty()) text = "x";
    }
    // Half of the time the length is repaired, so that the JSON is reached.
    if (text.size() > 8 && pick(2) == 0) {
      const std::uint64_t length = text.size() - 8 > 24 ? text.size() - 8 - 24 : text.size() - 8;
      std::memcpy(text.data(), &length, 8);
    }
    // An exact heap copy, so that a read past the end is seen by the address sanitizer.
    const std::vector<char> copy(text.begin(), text.end());
    try {
      const auto parsed = st::parse_header(std::as_bytes(std::span(copy)), "f");
      ++accepted;
      for (const auto& e : parsed.entries) {
        if (parsed.data_begin + e.end > static_cast<std::int64_t>(copy.size()) || e.begin > e.end) FAIL("out of range");
      }
    } catch (const smelt::error& e) {
      if (e.code() != smelt::errc::corrupt) FAIL("unexpected code: " << e.what());
    }
  }
  // Mutations that only touch names, metadata or data stay valid; a parser that refuses everything would prove nothing.
  CHECK(accepted > 100);
  CHECK(accepted < 30'000);
}

TEST_CASE("files that cannot be read are named", "[io][safetensors]") {
  const temporary_folder folder;
  CHECK_THROWS_WITH(st::file(folder.path() / "absent"),
                    Catch::Matchers::ContainsSubstring("absent") && Catch::Matchers::ContainsSubstring("No such file"));
  CHECK_THROWS_WITH(st::file(folder.path()), Catch::Matchers::ContainsSubstring("directory"));
  smelt::write_file(folder.path() / "empty", "");
  CHECK_THROWS_WITH(st::file(folder.path() / "empty"), Catch::Matchers::ContainsSubstring("an empty file"));
}

TEST_CASE("all differences between a model and a file are listed at once", "[io][safetensors]") {
  const temporary_folder folder;
  const auto path = folder.path() / "model";
  const auto v = ramp(64, 0.0F);
  const auto first = [&](std::size_t n) { return std::span<const float>(v).first(n); };
  const std::vector<st::tensor> tensors{{"experts.0.gate", {8, 4}, first(32)},
                                        {"experts.1.gate", {4, 8}, first(32)},
                                        {"norm", {4}, first(4)},
                                        {"rotary.inv_freq", {2}, first(2)}};
  st::save(path, tensors);
  const std::vector<st::expected_tensor> expected{
      {"experts.0.gate", {8, 4}}, {"experts.1.gate", {8, 4}}, {"experts.2.gate", {8, 4}}, {"norm", {5}}};
  const auto report = st::match_tensors(expected, st::file(path));
  REQUIRE(report.problems.size() == 4);
  CHECK(report.problems[0] == "wrong shape of 'experts.1.gate': have [4, 8], need [8, 4] (transposed)");
  CHECK(report.problems[1] == "missing tensor 'experts.2.gate' [8, 4]");
  CHECK(report.problems[2] == "wrong shape of 'norm': have [4], need [5]");
  CHECK(report.problems[3] == "unexpected tensor 'rotary.inv_freq' [2]");
  CHECK(report.notes.empty());
  CHECK_THROWS_WITH(st::require_tensors(expected, st::file(path)),
                    Catch::Matchers::ContainsSubstring("experts.2.gate") &&
                        Catch::Matchers::ContainsSubstring("rotary.inv_freq") &&
                        Catch::Matchers::ContainsSubstring("4 tensors in the file, 4 in the model"));
  const std::vector<st::expected_tensor> fitting{
      {"experts.0.gate", {8, 4}}, {"experts.1.gate", {4, 8}}, {"norm", {4}}, {"rotary.inv_freq", {2}}};
  CHECK(st::require_tensors(fitting, st::file(path)).empty());

  // Of another model's file the first differences are enough to see which it is.
  std::vector<st::expected_tensor> others;
  for (int i = 0; i < 30; ++i) others.push_back({"others." + std::to_string(i), {1}});
  CHECK_THROWS_WITH(st::require_tensors(others, st::file(path)),
                    Catch::Matchers::ContainsSubstring("missing tensor 'others.19' [1]\n  and 14 more") &&
                        !Catch::Matchers::ContainsSubstring("others.20"));

  smelt::write_file(path, crafted(one("U8", "[4]", "[0,4]"), 4));
  const std::vector<st::expected_tensor> w{{"w", {4}}};
  CHECK(st::match_tensors(w, st::file(path)).problems ==
        std::vector<std::string>{"wrong dtype of 'w': have U8, need F32, F16, BF16 or F64"});
}

TEST_CASE("a stored head of a tied model is accepted when equal and named when not", "[io][safetensors]") {
  const temporary_folder folder;
  const auto path = folder.path() / "model";
  const auto table = ramp(12, 1.0F);
  auto head = table;
  const std::string table_name = "model.embed_tokens.weight";
  const std::string head_name = "lm_head.weight";
  const std::vector<st::expected_tensor> tied{{table_name, {3, 4}}};
  const std::vector<st::expected_tensor> untied{{table_name, {3, 4}}, {head_name, {3, 4}}};

  const auto save = [&](bool with_table, bool with_head) {
    std::vector<st::tensor> tensors;
    if (with_table) tensors.push_back({table_name, {3, 4}, table});
    if (with_head) tensors.push_back({head_name, {3, 4}, head});
    st::save(path, tensors);
    return st::file(path);
  };
  {
    const auto report = st::match_tensors(tied, save(true, false));
    CHECK(report.problems.empty());
    CHECK(report.notes.empty());
  }
  {
    const auto report = st::match_tensors(tied, save(true, true));
    CHECK(report.problems.empty());
    REQUIRE(report.notes.size() == 1);
    CHECK(contains(report.notes[0], "lm_head.weight"));
  }
  head[7] = std::nextafter(head[7], 100.0F);
  {
    const auto report = st::match_tensors(tied, save(true, true));
    REQUIRE(report.problems.size() == 1);
    CHECK(contains(report.problems[0], "differs"));
    CHECK(st::match_tensors(untied, save(true, true)).problems.empty());
  }
  {
    const auto report = st::match_tensors(untied, save(true, false));
    REQUIRE(report.problems.size() == 1);
    CHECK(contains(report.problems[0],
                   "missing tensor 'lm_head.weight' [3, 4] (the file may come from a model with a tied"));
  }
  {
    const auto report = st::match_tensors(tied, save(false, true));
    REQUIRE(report.problems.size() == 2);
    CHECK(contains(report.problems[0], "the file has lm_head.weight only"));
  }
}
