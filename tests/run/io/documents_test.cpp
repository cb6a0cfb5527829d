// Does a reader give every document whole, and say where one is wrong?
#include <smelt/io/atomic_file.hpp>
#include <smelt/io/documents.hpp>

#include "catch.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using namespace std::string_literals;

namespace {

// Documents of a file with this name and content.
struct one_file {
  smelt_test::temporary_folder folder;

  std::vector<smelt::document> read(const std::string& name, const std::string& content,
                                    smelt::document_options options = {}) const {
    smelt::write_file(folder.path() / name, content);
    return smelt::read_documents(folder.path() / name, options);
  }
};

}  // namespace

TEST_CASE("JSON Lines give one document a line with their fields", "[documents]") {
  const one_file file;
  const auto documents = file.read(
      "a.jsonl",
      "\xEF\xBB\xBF{\"text\": \"one\\n\\u0000\\u00e9\", \"category\": \"prose\", \"id\": 7, \"source\": \"s\"}\r\n"
      "\n  \t\r\n"
      "{\"licence\": [1], \"text\": \"two\", \"id\": \"x\", \"category\": null}\n"
      "{\"text\": \"\"}");
  REQUIRE(documents.size() == 3);
  CHECK(documents[0].text == "one\n\0\xC3\xA9"s);
  CHECK(documents[0].category == "prose");
  CHECK(documents[0].source == "s");
  CHECK(documents[0].id == "7");
  CHECK(documents[1].text == "two");
  CHECK(documents[1].category.empty());
  CHECK(documents[1].id == "x");
  CHECK(documents[2].text.empty());
  CHECK(documents[2].id.empty());
}

TEST_CASE("lines longer than the reader's buffer arrive whole", "[documents]") {
  const one_file file;
  std::string content;
  std::vector<std::size_t> sizes;
  for (std::size_t size = 65'500; size < 65'560; ++size) sizes.push_back(size);
  sizes.push_back(1'000'000);
  for (const std::size_t size : sizes) content += "{\"text\":\"" + std::string(size, 'x') + "\"}\n";
  const auto documents = file.read("a.jsonl", content);
  REQUIRE(documents.size() == sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) CHECK(documents[i].text == std::string(sizes[i], 'x'));
}

TEST_CASE("wrong JSON Lines are named by line, field and finding", "[documents]") {
  const one_file file;
  const std::string good = "{\"text\": \"fine\"}\n";
  const auto message = [&](const std::string& content) -> std::string {
    try {
      static_cast<void>(file.read("a.jsonl", content));
    } catch (const smelt::error& e) {
      CHECK(e.code() == smelt::errc::corrupt);
      return e.what();
    }
    return "no error";
  };
  CHECK_THAT(message(good + "\n{\"text\": 5}\n"),
             ContainsSubstring("a.jsonl:3: the field \"text\" must be a string, found number"));
  CHECK_THAT(message(good + "{\"content\": \"x\"}"), ContainsSubstring("a.jsonl:2: the field \"text\" is missing"));
  CHECK_THAT(message("{\"text\": \"x\", \"category\": [1]}"),
             ContainsSubstring("\"category\" must be a string, found array"));
  CHECK_THAT(message("{\"text\": \"x\", \"id\": 1.5}"), ContainsSubstring("\"id\" must be a string, found number"));
  CHECK_THAT(message(good + "[\"text\"]"), ContainsSubstring("a.jsonl:2: need a JSON object, found array"));
  CHECK_THAT(message(good + "{\"text\": \"x\""), ContainsSubstring("a.jsonl:2: not JSON: parse error"));
  CHECK_THAT(message("[\n{\"text\": \"x\"}\n]"), ContainsSubstring("one JSON array"));
  CHECK_THAT(message("{\"text\": \"caf\xE9\"}"), ContainsSubstring("byte 13 of the line (<0xE9>) is not UTF-8"));
  CHECK_THAT(message("{\"text\": \"\\ud800\"}"), ContainsSubstring("a.jsonl:1: not JSON"));
  CHECK_THAT(message("\xFF\xFE{\0"s), ContainsSubstring("UTF-16"));
  CHECK_THAT(message("version https://git-lfs.github.com/spec/v1\n"), ContainsSubstring("Git LFS pointer"));
  CHECK_THAT(message("\x1F\x8B\x08"), ContainsSubstring("gzip"));
  CHECK_THAT(message(""), ContainsSubstring("an empty file"));
  CHECK_THAT(message("<!DOCTYPE html><html>"), ContainsSubstring("HTML"));
}

TEST_CASE("a text file is one document, byte for byte", "[documents]") {
  const one_file file;
  for (const std::string& text :
       {"plain\n"s, "\xEF\xBB\xBF with a mark"s, "\x80"s, "caf\xE9 \xC3\xA9"s, "nul\0inside"s, "a\r\nb\r\n"s,
        "{\"text\": 1}"s, "GGUF is a format for models.\n"s, "BZh is how bzip2 files begin"s, "ggml runs models"s}) {
    const auto documents = file.read("a.txt", text);
    REQUIRE(documents.size() == 1);
    CHECK(documents[0].text == text);
    CHECK(documents[0].source == "a.txt");
    CHECK(documents[0].category.empty());
  }
  CHECK(file.read("page.html", "<!doctype html>\n<p>a page is text when it says so").size() == 1);
  CHECK(file.read("no_extension", "text").size() == 1);
}

TEST_CASE("a file that is not text says what it looks like", "[documents]") {
  const one_file file;
  struct example {
    std::string content;
    std::string cause;
  };
  for (const example& e :
       {example{"", "an empty file"},
        example{"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"},
        example{"<!DOCTYPE html><html></html>", "HTML"}, example{"<?xml version=\"1.0\"?><Error/>", "XML"},
        example{"PK\x03\x04\x14\0"s, "zip"}, example{"\x80\x02}q\0"s, "pickle"}, example{"GGUF\x03\0\0\0\0"s, "GGUF"},
        example{"\x1F\x8B\x08\0"s, "gzip"}, example{"\x10\0\0\0\0\0\0\0{\"a\":{}}"s, "safetensors"},
        example{"%PDF-1.7\nrest", "PDF"}, example{"\xFF\xFEh\0i\0"s, "UTF-16"}, example{"\xFE\xFF\0h\0i"s, "UTF-16"}}) {
    CAPTURE(e.cause);
    CHECK_THROWS_WITH(file.read("a.txt", e.content), ContainsSubstring("a.txt") && ContainsSubstring(e.cause));
  }

  // Asked for any bytes, all but nothing will do.
  const smelt::document_options any{.any_bytes = true};
  CHECK(file.read("a.txt", "\xFF\xFEh\0i\0"s, any).front().text == "\xFF\xFEh\0i\0"s);
  CHECK(file.read("a.txt", "GGUF\x03\0\0\0"s, any).front().text.size() == 8);
  CHECK_THROWS_WITH(file.read("a.txt", "", any), ContainsSubstring("an empty file"));

  CHECK_THROWS_WITH(file.read("a.json", "{}"), ContainsSubstring(".jsonl"));
  CHECK_THROWS_WITH(smelt::read_documents(file.folder.path() / "none"), ContainsSubstring("no such file"));
}

TEST_CASE("a folder gives its files in the order of their names", "[documents]") {
  const smelt_test::temporary_folder folder;
  const auto write = [&](const std::string& name, const std::string& content) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    smelt::write_file(folder.path() / name, content);
  };
  CHECK_THROWS_WITH(smelt::read_documents(folder.path()), ContainsSubstring("need at least 1 file, have 0"));

  write("prose/b.txt", "second");
  write("prose/a/deep.txt", "first");
  write("code/x.c", "int x;");
  write("code/empty.c", "");
  write("lines.jsonl", "{\"text\": \"l1\", \"category\": \"math\"}\n{\"text\": \"l2\"}\n");
  write("top.txt", "top");
  write(".hidden", "no");
  write(".git/config", "no");
  const auto documents = smelt::read_documents(folder.path());
  std::vector<std::string> seen;
  for (const auto& d : documents) seen.push_back(d.text + "|" + d.category + "|" + d.id);
  CHECK(seen == std::vector<std::string>{"int x;|code|code/x.c", "l1|math|", "l2||", "first|prose|prose/a/deep.txt",
                                         "second|prose|prose/b.txt", "top||top.txt"});
}
