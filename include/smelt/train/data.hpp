// What does a model train and validate on? Documents turned into two token sequences, split by what each document says.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <smelt/core/error.hpp>
#include <smelt/io/checksum.hpp>
#include <smelt/io/documents.hpp>
#include <smelt/io/token_shard.hpp>
#include <smelt/io/tokens.hpp>

namespace smelt {

/// Documents packed one after another, each closed by the end-of-document token where the format has one.
struct token_sequence {
  std::vector<std::int32_t> tokens;      ///< [n]
  std::vector<std::int64_t> starts;      ///< [documents] position of each document's first token, ascending from 0
  std::vector<std::int32_t> categories;  ///< [documents] index into dataset::categories
};

/// Everything a run reads: fixed by the text and the options alone, not by a seed.
struct dataset {
  token_format format;
  token_sequence train;
  token_sequence validation;
  std::vector<std::string> categories;  ///< in alphabetical order; "unknown" stands for none
  std::uint64_t fingerprint = 0;        ///< a hash of all the above: a resumed run checks that its data is the same
};

/// How documents are divided.
struct data_options {
  /// The share of validation, between 0 (all of it trains) and 1 (all of it validates). Documents are chosen by a hash
  /// of their text, so that the choice does not depend on their order or number, and copies of a text stay on one side.
  /// A lone document is cut instead: its last part validates. So are token shards.
  double validation_fraction = 0.05;
  document_options documents = {};
  /// What the ids of token shards mean; text always becomes bytes.
  token_format shards = {};
};

namespace detail {

inline void open_document(token_sequence& side, std::int32_t category) {
  side.starts.push_back(static_cast<std::int64_t>(side.tokens.size()));
  side.categories.push_back(category);
}

// What documents without a category are counted under.
inline constexpr std::string_view unknown_category = "unknown";

inline void check_fraction(double fraction) {
  if (fraction >= 0.0 && fraction <= 1.0) return;  // NaN is not
  throw error(errc::invalid_argument,
              "the validation fraction must be between 0 and 1, found " + std::to_string(fraction));
}

// How many of `size` tokens train when the last part of them validates.
[[nodiscard]] inline std::int64_t training_part(std::size_t size, double validation_fraction) {
  return static_cast<std::int64_t>(size) - std::llround(static_cast<double>(size) * validation_fraction);
}

[[nodiscard]] inline std::uint64_t fingerprint(const dataset& data) {
  checksum64_stream hash;
  const auto update = [&hash](const auto& values) {
    const std::array<std::uint64_t, 1> size{values.size()};
    hash.update(std::as_bytes(std::span(size)));
    hash.update(std::as_bytes(std::span(values.data(), values.size())));
  };
  update(data.format.name);
  for (const token_sequence* side : {&data.train, &data.validation}) {
    update(side->tokens);
    update(side->starts);
    update(side->categories);
  }
  for (const std::string& category : data.categories) update(category);
  return hash.digest();
}

// Checks that a side with a share got something, and signs the dataset.
[[nodiscard]] inline dataset finished(dataset data, double validation_fraction) {
  const auto require = [&](const token_sequence& side, const char* name, double share) {
    if (share <= 0.0 || !side.tokens.empty()) return;
    const std::size_t documents = data.train.starts.size() + data.validation.starts.size();
    const std::size_t tokens = data.train.tokens.size() + data.validation.tokens.size();
    throw error(errc::invalid_argument,
                std::string("the ") + name + " split is empty: a share of " + std::to_string(share) + " of " +
                    std::to_string(documents) + " documents (" + std::to_string(tokens) +
                    " tokens) gave 0 documents, need at least 1; give more text or another validation fraction");
  };
  require(data.validation, "validation", validation_fraction);
  require(data.train, "training", 1.0 - validation_fraction);
  data.fingerprint = fingerprint(data);
  return data;
}

}  // namespace detail

/// Turns documents into byte tokens, one document at a time.
class dataset_builder {
 public:
  /// Throws invalid_argument for a validation fraction outside [0, 1].
  explicit dataset_builder(double validation_fraction = data_options{}.validation_fraction)
      : validation_fraction_(validation_fraction) {
    detail::check_fraction(validation_fraction);
  }

  /// Adds a document; one without text adds nothing.
  void add(const document& added) {
    if (added.text.empty()) return;
    const double draw = static_cast<double>(checksum64(added.text) >> 11) * 0x1p-53;  // in [0, 1)
    token_sequence& side = draw < validation_fraction_ ? data_.validation : data_.train;
    detail::open_document(side, category_index(added.category));
    append_byte_tokens(added.text, side.tokens);
    side.tokens.push_back(data_.format.end_of_document);
  }

  /// The dataset; the builder is spent. Throws invalid_argument when there is no text, or when a side that has a share
  /// got nothing.
  [[nodiscard]] dataset finish() && {
    const std::size_t documents = data_.train.starts.size() + data_.validation.starts.size();
    if (documents == 0) throw error(errc::invalid_argument, "no text: have 0 documents of at least 1 byte, need 1");
    if (documents == 1 && validation_fraction_ > 0.0 && validation_fraction_ < 1.0) cut_lone_document();
    sort_categories();
    return detail::finished(std::move(data_), validation_fraction_);
  }

 private:
  [[nodiscard]] std::int32_t category_index(const std::string& name) {
    const auto next = static_cast<std::int32_t>(category_indices_.size());
    return category_indices_.try_emplace(name.empty() ? std::string(detail::unknown_category) : name, next)
        .first->second;
  }

  void cut_lone_document() {
    token_sequence whole = std::move(data_.train.starts.empty() ? data_.validation : data_.train);
    data_.train = {};
    data_.validation = {};
    whole.tokens.pop_back();  // its end
    std::int64_t training = detail::training_part(whole.tokens.size(), validation_fraction_);
    // A UTF-8 character (a lead byte and up to three of 0x80 to 0xBF) stays whole.
    for (int moved = 0; moved < 3 && training > 0 && std::cmp_less(training, whole.tokens.size()); ++moved) {
      const std::int32_t token = whole.tokens[static_cast<std::size_t>(training)];
      if (token < 0x80 || token > 0xBF) break;
      --training;
    }
    const auto fill = [&](token_sequence& side, auto first, auto last) {
      if (first == last) return;
      detail::open_document(side, whole.categories.front());
      side.tokens.assign(first, last);
      side.tokens.push_back(data_.format.end_of_document);
    };
    const auto middle = whole.tokens.begin() + training;
    fill(data_.train, whole.tokens.begin(), middle);
    fill(data_.validation, middle, whole.tokens.end());
  }

  // Categories are numbered as they are met; their final numbers depend on the names only.
  void sort_categories() {
    std::vector<std::int32_t> final_index(category_indices_.size());
    for (const auto& [name, index] : category_indices_) {
      final_index[static_cast<std::size_t>(index)] = static_cast<std::int32_t>(data_.categories.size());
      data_.categories.push_back(name);
    }
    for (token_sequence* side : {&data_.train, &data_.validation}) {
      for (std::int32_t& category : side->categories) category = final_index[static_cast<std::size_t>(category)];
    }
  }

  double validation_fraction_;
  dataset data_;
  std::map<std::string, std::int32_t> category_indices_;
};

/// Ready-made tokens as a dataset: the last part validates, and each end-of-document token closes a document. Throws
/// invalid_argument for a fraction outside [0, 1], tokens outside the format's vocabulary, or an empty side.
[[nodiscard]] inline dataset token_dataset(std::span<const std::int32_t> tokens, token_format format,
                                           double validation_fraction = data_options{}.validation_fraction) {
  detail::check_fraction(validation_fraction);
  check_tokens(tokens, format.vocab);
  dataset data;
  data.format = std::move(format);
  data.categories = {std::string(detail::unknown_category)};
  const std::int64_t training = detail::training_part(tokens.size(), validation_fraction);
  const auto fill = [&data](token_sequence& side, std::span<const std::int32_t> part) {
    side.tokens.assign(part.begin(), part.end());
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (i > 0 && part[i - 1] != data.format.end_of_document) continue;
      side.starts.push_back(static_cast<std::int64_t>(i));
      side.categories.push_back(0);
    }
  };
  fill(data.train, tokens.first(static_cast<std::size_t>(training)));
  fill(data.validation, tokens.subspan(static_cast<std::size_t>(training)));
  return detail::finished(std::move(data), validation_fraction);
}

/// Reads the documents or the token shards at `path`: whatever document_reader reads, a `.bin` shard, or a folder with
/// `.bin` shards, which are taken in the order of their names and joined, other files being left out. Throws as
/// document_reader, read_token_shard, dataset_builder and token_dataset do.
[[nodiscard]] inline dataset load_dataset(const std::filesystem::path& path, const data_options& options = {}) {
  detail::check_fraction(options.validation_fraction);
  std::vector<std::filesystem::path> shards;
  if (std::error_code failed; std::filesystem::is_directory(path, failed)) {
    auto item = std::filesystem::directory_iterator(path, failed);
    for (; !failed && item != std::filesystem::directory_iterator(); item.increment(failed)) {
      if (item->path().extension() == ".bin") shards.push_back(item->path());
    }
    if (failed) throw error(errc::io, "cannot list '" + path.string() + "': " + failed.message());
    std::sort(shards.begin(), shards.end());
  } else if (path.extension() == ".bin") {
    shards.push_back(path);
  }

  if (shards.empty()) {
    dataset_builder builder(options.validation_fraction);
    document_reader reader(path, options.documents);
    for (document next; reader.next(next);) builder.add(next);
    return std::move(builder).finish();
  }
  std::vector<std::int32_t> tokens;
  for (const auto& shard : shards) {
    const std::vector<std::int32_t> more = read_token_shard(shard, options.shards.vocab);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return token_dataset(tokens, options.shards, options.validation_fraction);
}

/// Checks that a model with `vocab` logical tokens knows every token of the data; throws mismatch with both numbers.
inline void check_vocab(const dataset& data, std::int64_t vocab) {
  if (vocab >= data.format.vocab) return;
  throw error(errc::mismatch, "the data's tokens (\"" + data.format.name + "\") need a vocabulary of " +
                                  std::to_string(data.format.vocab) + ", the model has " + std::to_string(vocab));
}

}  // namespace smelt
