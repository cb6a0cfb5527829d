#include "data_argument.hpp"

#include <cstdlib>
#include <filesystem>
#include <smelt/core/error.hpp>

namespace smelt::tool {

namespace {

/// Where scripts/corpus puts the corpus of that size.
std::filesystem::path builtin_corpus(const std::string& size) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  std::filesystem::path cache = variable("SMELT_CACHE");
  if (cache.empty()) {
    cache = variable("XDG_CACHE_HOME");
    if (cache.empty()) cache = variable("HOME") / ".cache";
    cache /= "smelt";
  }
  return cache / "corpus" / (size + ".jsonl");
}

/// The tokens of a shard for a model with `vocab` tokens: bytes when the model reads bytes.
token_format shard_format(int vocab) {
  if (vocab == token_format{}.vocab) return {};
  return {.name = "shard-" + std::to_string(vocab), .vocab = vocab, .end_of_document = vocab - 1};
}

}  // namespace

named_data data_of_argument(const std::string& argument, double validation_fraction, int vocab) {
  std::filesystem::path path = argument;
  std::error_code ignored;
  if (argument == "builtin" || argument == "builtin:large") {
    const std::string size = argument == "builtin" ? "small" : "large";
    path = builtin_corpus(size);
    if (!std::filesystem::exists(path, ignored))
      throw error(errc::io, "the builtin corpus is not there yet (needed: " + path.string() +
                                "); make it once with scripts/corpus " + size + ", or give --data a path of your own");
  }
  return {
      argument, validation_fraction,
      load_dataset(path, {.validation_fraction = validation_fraction, .documents = {}, .shards = shard_format(vocab)})};
}

}  // namespace smelt::tool
