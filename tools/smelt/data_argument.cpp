#include "data_argument.hpp"

#include <cstdlib>
#include <filesystem>
#include <smelt/core/error.hpp>

namespace smelt::tool {

namespace {

/// Where scripts/corpus puts the small corpus.
std::filesystem::path builtin_corpus() {
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
  return cache / "corpus" / "small.jsonl";
}

}  // namespace

named_data data_of_argument(const std::string& argument, double validation_fraction) {
  std::filesystem::path path = argument;
  std::error_code ignored;
  if (argument == "builtin") {
    path = builtin_corpus();
    if (!std::filesystem::exists(path, ignored))
      throw error(errc::io, "the builtin corpus is not there yet (needed: " + path.string() +
                                "); make it once with scripts/corpus small, or give --data a path of your own");
  }
  return {argument, validation_fraction, load_dataset(path, {.validation_fraction = validation_fraction})};
}

}  // namespace smelt::tool
