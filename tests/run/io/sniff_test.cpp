// Are files that are something else recognised, and others left alone?
#include <smelt/io/sniff.hpp>
#include <string>

#include "catch.hpp"

namespace {

std::string kind(const std::string& head) {
  return std::string(smelt::likely_kind(std::as_bytes(std::span(head.data(), head.size()))));
}

using namespace std::string_literals;

}  // namespace

TEST_CASE("impostors are named from their first bytes", "[io][sniff]") {
  CHECK(kind("").find("empty file") != std::string::npos);
  CHECK(kind("version https://git-lfs.github.com/spec/v1\noid sha256:0\n").find("Git LFS pointer") !=
        std::string::npos);
  CHECK(kind("\n\n <!DOCTYPE html>\n<html>").find("HTML page") != std::string::npos);
  CHECK(kind("\xEF\xBB\xBF<HTML lang=en>").find("HTML page") != std::string::npos);
  CHECK(kind("<?xml version=\"1.0\"?><Error>").find("XML") != std::string::npos);
  CHECK(kind("\x80\x02}q"s).find("pickle") != std::string::npos);
  CHECK(kind("PK\x03\x04zzzz"s).find("zip archive") != std::string::npos);
  CHECK(kind("GGUF\x03\0\0\0"s).find("GGUF") != std::string::npos);
  CHECK(kind("\x1F\x8B\x08\0"s).find("gzip") != std::string::npos);
  CHECK(kind("\x28\xB5\x2F\xFD\x04"s).find("zstd") != std::string::npos);
  CHECK(kind("\xFD"
             "7zXZ\0\0"s)
            .find("xz") != std::string::npos);
  CHECK(kind(std::string(257, 'a') + "ustar\0"s).find("tar") != std::string::npos);
  CHECK(kind("\xFF\xFEh\0i\0"s).find("UTF-16") != std::string::npos);
  CHECK(kind("\xFE\xFF\0h\0i"s).find("UTF-16") != std::string::npos);
  CHECK(kind("\x10\0\0\0\0\0\0\0{\"a\":"s).find("safetensors") != std::string::npos);
  CHECK(kind(std::string(64, '\0')).find("zero bytes") != std::string::npos);
}

TEST_CASE("ordinary text and near misses are not accused", "[io][sniff]") {
  CHECK(kind("{\"text\": \"hello\"}\n").empty());
  CHECK(kind("Once upon a time").empty());
  CHECK(kind("version 2 of the story").empty());
  CHECK(kind("PK is how the pack opened").empty());
  CHECK(kind("GGU").empty());
  CHECK(kind("\x80").empty());
  CHECK(kind("\x80\x81 lone continuation bytes").empty());
  CHECK(kind("< html is not a tag when spaced").empty());
  CHECK(kind(std::string(4, '\0')).empty());
  CHECK(kind("\xC3\xA9t\xC3\xA9").empty());
}
