// Where does a fit of irreducible loss and two falling terms start? From a part of the lowest loss that is irreducible,
// and a split of the rest.
#pragma once

#include <cmath>

namespace smelt::law {

/// Logarithms of three terms that add up to the mean loss.
struct start_shares {
  double constant;
  double first;
  double second;
};

/// `constant` from 0.3 to 0.95 of the lowest loss, `first` from 0.15 to 0.85 of the rest, each for parameters in [0,
/// 1].
[[nodiscard]] inline start_shares split_loss(double log_least, double log_mean, double constant, double first) {
  const double log_constant = log_least + std::log(0.3 + 0.65 * constant);
  const double rest = log_mean + std::log1p(-std::exp(log_constant - log_mean));
  const double part = 0.15 + 0.7 * first;
  return {log_constant, rest + std::log(part), rest + std::log1p(-part)};
}

}  // namespace smelt::law
