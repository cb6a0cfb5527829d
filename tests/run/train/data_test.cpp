// Do documents end up whole, once, on the side that their text decides?
#include <smelt/io/atomic_file.hpp>
#include <smelt/train/data.hpp>

#include "catch.hpp"
#include "support/synthetic_text.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;

namespace {

smelt::dataset build(const std::vector<smelt::document>& documents, double validation_fraction = 0.1) {
  smelt::dataset_builder builder(validation_fraction);
  for (const auto& d : documents) builder.add(d);
  return std::move(builder).finish();
}

// The documents of a side as text, from its tokens alone.
std::vector<std::string> texts(const smelt::token_sequence& side) {
  std::vector<std::string> result;
  for (std::size_t d = 0; d < side.starts.size(); ++d) {
    const auto begin = static_cast<std::size_t>(side.starts[d]);
    const auto end = d + 1 < side.starts.size() ? static_cast<std::size_t>(side.starts[d + 1]) : side.tokens.size();
    REQUIRE(end > begin);
    REQUIRE(side.tokens[end - 1] == 256);
    result.push_back(smelt::token_bytes(std::span(side.tokens).subspan(begin, end - begin - 1)));
  }
  return result;
}

}  // namespace

TEST_CASE("every document lands whole, on one side, with its category", "[data]") {
  const auto documents = smelt_test::synthetic_documents(1, 300);
  const smelt::dataset data = build(documents);
  CHECK(data.categories == std::vector<std::string>{"arithmetic", "brackets", "grammar"});
  CHECK(data.format == smelt::token_format{});

  std::map<std::string, std::string> category_of;
  for (const auto& d : documents) category_of[d.text] = d.category;
  REQUIRE(category_of.size() == documents.size());
  std::set<std::string> seen;
  for (const auto* side : {&data.train, &data.validation}) {
    const auto found = texts(*side);
    REQUIRE(found.size() == side->categories.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(seen.insert(found[i]).second);
      CHECK(category_of.at(found[i]) == data.categories.at(static_cast<std::size_t>(side->categories[i])));
    }
  }
  CHECK(seen.size() == documents.size());
  CHECK(data.validation.starts.size() == Approx(30).margin(20));
}

TEST_CASE("the split depends on each text alone", "[data]") {
  auto documents = smelt_test::synthetic_documents(2, 200);
  const auto validation_texts = [](const smelt::dataset& data) {
    const auto found = texts(data.validation);
    return std::set<std::string>(found.begin(), found.end());
  };
  const auto before = validation_texts(build(documents));

  std::reverse(documents.begin(), documents.end());
  CHECK(validation_texts(build(documents)) == before);

  for (auto& d : documents) d.category = "other";
  CHECK(validation_texts(build(documents)) == before);

  const auto half = std::vector<smelt::document>(documents.begin(), documents.begin() + 100);
  for (const auto& text : validation_texts(build(half))) CHECK(before.contains(text));

  // A copy goes where the original went; a larger share keeps what a smaller one had.
  documents.insert(documents.end(), documents.begin(), documents.begin() + 200);
  CHECK(validation_texts(build(documents)) == before);
  const auto larger = validation_texts(build(documents, 0.3));
  CHECK(std::includes(larger.begin(), larger.end(), before.begin(), before.end()));
}

TEST_CASE("a share of 0 or 1 gives one side everything", "[data]") {
  const auto documents = smelt_test::synthetic_documents(3, 20);
  CHECK(build(documents, 0.0).train.starts.size() == 20);
  CHECK(build(documents, 0.0).validation.tokens.empty());
  CHECK(build(documents, 1.0).validation.starts.size() == 20);
  for (const double wrong : {-0.1, 1.5, std::nan("")}) CHECK_THROWS_AS(build(documents, wrong), smelt::error);
}

TEST_CASE("an empty side is an error with what there is and what is needed", "[data]") {
  CHECK_THROWS_WITH(build({}), ContainsSubstring("have 0 documents of at least 1 byte, need 1"));
  CHECK_THROWS_WITH(build({{"", "", "", ""}}), ContainsSubstring("have 0 documents"));

  auto documents = smelt_test::synthetic_documents(4, 2);
  CHECK_THROWS_WITH(build(documents, 1e-9), ContainsSubstring("validation split is empty") &&
                                                ContainsSubstring("of 2 documents") &&
                                                ContainsSubstring("need at least 1"));
  CHECK_THROWS_WITH(build(documents, 1.0 - 1e-9), ContainsSubstring("training split is empty"));
}

TEST_CASE("a lone document is cut between characters", "[data]") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\xE2\x82\xAC";  // three bytes each
  for (const double fraction : {0.1, 0.101, 0.103, 0.5}) {
    const smelt::dataset data = build({{text, "money", "", ""}}, fraction);
    REQUIRE(texts(data.train).size() == 1);
    REQUIRE(texts(data.validation).size() == 1);
    const std::string first = texts(data.train).front();
    const std::string last = texts(data.validation).front();
    CHECK(first + last == text);
    CHECK_FALSE(smelt::first_invalid_utf8(first).has_value());
    CHECK_FALSE(smelt::first_invalid_utf8(last).has_value());
    CHECK(static_cast<double>(last.size()) == Approx(300 * fraction).margin(3));
    CHECK(data.categories == std::vector<std::string>{"money"});
  }
  CHECK_THROWS_WITH(build({{"x", "", "", ""}}, 0.1), ContainsSubstring("validation split is empty"));
}

TEST_CASE("the fingerprint changes with the data and only with it", "[data]") {
  auto documents = smelt_test::synthetic_documents(5, 50);
  const auto before = build(documents).fingerprint;
  CHECK(build(documents).fingerprint == before);
  CHECK(build(documents, 0.3).fingerprint != before);
  documents[7].text += "!";
  CHECK(build(documents).fingerprint != before);
  documents[7].text.pop_back();
  documents[7].category = "other";
  CHECK(build(documents).fingerprint != before);
}

TEST_CASE("shards are split by position and document", "[data]") {
  const std::vector<std::int32_t> tokens{1, 2, 256, 3, 4, 5, 256, 6, 7, 256};
  const smelt::dataset data = smelt::token_dataset(tokens, {}, 0.4);
  CHECK(data.train.tokens == std::vector<std::int32_t>{1, 2, 256, 3, 4, 5});
  CHECK(data.train.starts == std::vector<std::int64_t>{0, 3});
  CHECK(data.validation.tokens == std::vector<std::int32_t>{256, 6, 7, 256});
  CHECK(data.validation.starts == std::vector<std::int64_t>{0, 1});
  CHECK(data.categories == std::vector<std::string>{"unknown"});
  CHECK_THROWS_WITH(smelt::token_dataset(tokens, {"narrow", 256, -1}, 0.4), ContainsSubstring("256 at position 2"));
  CHECK(smelt::token_dataset(tokens, {"wide", 300, -1}, 0.4).train.starts.size() == 1);
  CHECK_THROWS_WITH(smelt::token_dataset(tokens, {}, 0.01), ContainsSubstring("validation split is empty"));
}

TEST_CASE("a dataset is loaded from documents or shards alike", "[data]") {
  const smelt_test::temporary_folder folder;
  const auto documents = smelt_test::synthetic_documents(6, 60);
  std::string lines;
  for (const auto& d : documents) lines += nlohmann::json{{"text", d.text}, {"category", d.category}}.dump() + "\n";
  smelt::write_file(folder.path() / "a.jsonl", lines);
  const smelt::data_options options{.validation_fraction = 0.2};
  const smelt::dataset data = smelt::load_dataset(folder.path() / "a.jsonl", options);
  CHECK(data.fingerprint == build(documents, 0.2).fingerprint);
  CHECK(smelt::load_dataset(folder.path(), options).fingerprint == data.fingerprint);

  const auto shards = folder.path() / "shards";
  std::filesystem::create_directory(shards);
  smelt::write_token_shard(shards / "1.bin", std::vector<std::int32_t>{4, 5, 256}, 257);
  smelt::write_token_shard(shards / "0.bin", std::vector<std::int32_t>{1, 2, 3}, 257);
  smelt::write_file(shards / "README.md", "not data");
  CHECK(smelt::load_dataset(shards, {.validation_fraction = 0.0}).train.tokens ==
        std::vector<std::int32_t>{1, 2, 3, 4, 5, 256});
  CHECK(smelt::load_dataset(shards / "1.bin", {.validation_fraction = 0.0}).train.tokens.size() == 3);
  CHECK_THROWS_WITH(smelt::load_dataset(folder.path() / "none"), ContainsSubstring("no such file"));
  CHECK_THROWS_AS(smelt::load_dataset(folder.path() / "none.bin"), smelt::error);
}

TEST_CASE("a model must know every token of the data", "[data]") {
  const smelt::dataset data = build(smelt_test::synthetic_documents(7, 60));
  CHECK_NOTHROW(smelt::check_vocab(data, 257));
  CHECK_NOTHROW(smelt::check_vocab(data, 320));
  CHECK_THROWS_WITH(smelt::check_vocab(data, 256), ContainsSubstring("need a vocabulary of 257, the model has 256"));
}

TEST_CASE("synthetic text is what it claims to be, for every seed the same", "[data]") {
  const auto documents = smelt_test::synthetic_documents(8, 90);
  CHECK(documents.size() == 90);
  CHECK(documents.front().text == smelt_test::synthetic_documents(8, 1).front().text);
  CHECK(documents.front().text != smelt_test::synthetic_documents(9, 1).front().text);
  for (const auto& d : documents) {
    CHECK(d.text.size() > 50);
    CHECK(d.text.size() < 1500);
    if (d.category == "brackets") {
      std::string open;
      for (const char c : d.text) {
        const auto closes = std::string(")]}>").find(c);
        if (closes == std::string::npos) {
          if (c != '\n') open += c;
        } else {
          REQUIRE_FALSE(open.empty());
          REQUIRE(open.back() == "([{<"[closes]);
          open.pop_back();
        }
        if (c == '\n') REQUIRE(open.empty());
      }
    }
  }
}
