// What does --data name? Files of text or token shards, or the corpus that scripts/corpus made.
#pragma once

#include <smelt/train/data.hpp>
#include <string>

namespace smelt::tool {

/// The text of a run.
struct named_data {
  std::string name;  ///< as given
  double validation_fraction = 0;
  dataset text;
};

/// Reads what `argument` names: `builtin` or `builtin:large`, the corpora that scripts/corpus makes, or a path as
/// load_dataset takes it. Ids of token shards are those of a model with `vocab` tokens, whose last one ends documents.
/// Throws smelt::error when the corpus has not been made, naming the command that makes it; otherwise as load_dataset.
[[nodiscard]] named_data data_of_argument(const std::string& argument, double validation_fraction, int vocab);

}  // namespace smelt::tool
