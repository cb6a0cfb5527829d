// Which models can be chosen from? A ladder of widths and depths, each with any number of experts, some layers looped.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace smelt::law {

/// A model of `layers` equal layers; the first and last `outside` of them are not looped.
struct rung {
  std::string name;
  double width = 0;
  double layers = 0;
  double outside = 2;            ///< layers before the loop, and as many after it
  double key_value_width = 256;  ///< heads of keys and values times their size
  double hidden_factor = 12;     ///< parameters of one expert, in units of width^2
};

/// The parameters of a rung with E experts for each one used, embeddings not counted.
struct rung_counts {
  double n_active = 0;
  double n_loop = 0;   ///< those of the active ones inside of the loop
  double n_total = 0;  ///< all that are stored
};

/// A layer has H (2 H + 2 key_value_width) parameters of attention and hidden_factor H^2 of each expert.
[[nodiscard]] inline rung_counts counts_of(const rung& model, double experts) {
  if (!(model.width > 0 && model.layers > 2 * model.outside && experts >= 1)) {
    throw error(errc::invalid_argument, "rung " + model.name + " needs a width above 0, more than " +
                                            std::to_string(static_cast<std::int64_t>(2 * model.outside)) +
                                            " layers and at least 1 expert, found " + std::to_string(model.width) +
                                            ", " + std::to_string(model.layers) + " and " + std::to_string(experts));
  }
  const double attention = model.width * (2 * model.width + 2 * model.key_value_width);
  const double expert = model.hidden_factor * model.width * model.width;
  return {model.layers * (attention + expert), (model.layers - 2 * model.outside) * (attention + expert),
          model.layers * (attention + expert * experts)};
}

/// The ladder of the looped mixtures' paper: 4 heads of keys and values of 64, the first and last two layers not
/// looped.
[[nodiscard]] inline std::vector<rung> published_ladder() {
  return {{"0.3B", 768, 20}, {"0.6B", 1024, 26}, {"1.0B", 1280, 32}, {"1.6B", 1536, 38}, {"2.4B", 1792, 44}};
}

}  // namespace smelt::law
