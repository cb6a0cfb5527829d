// What does an architecture gain on one kind of text? The law's shape kept, its irreducible loss (or an amplitude too)
// refitted to the losses on that text.
#pragma once

#include <smelt/law/fit.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <string>

namespace smelt::law {

/// What is refitted.
enum class category_freedom {
  irreducible,                ///< E alone
  irreducible_and_amplitude,  ///< E and A
};

/// The law `whole`, with E (and A) refitted to `data`, the losses of the same runs on one category. The other options
/// of the fit are taken from `options`.
[[nodiscard]] inline fit_result refit_category(const observations<sparse_compute>& data, const fit_result& whole,
                                               category_freedom freedom = category_freedom::irreducible,
                                               fit_options options = {}) {
  options.hold.clear();
  for (const char* name : {"A", "K", "a", "b", "c"}) {
    if (freedom == category_freedom::irreducible_and_amplitude && std::string(name) == "A") continue;
    options.hold.emplace_back(name, whole.value(name));
  }
  return fit<sparse_compute>(data, options);
}

}  // namespace smelt::law
