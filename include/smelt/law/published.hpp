// Which coefficients have been published? Those that the commands know by name, in the units that they were given in.
#pragma once

#include <smelt/law/forms/chinchilla.hpp>
#include <smelt/law/forms/iso_depth.hpp>
#include <smelt/law/forms/looped_moe.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <smelt/law/observations.hpp>

namespace smelt::law::published {

/// The SMELT law of the baseline: F training FLOPs a token, D tokens.
[[nodiscard]] inline coefficients_of<sparse_compute> smelt_baseline() {
  return fitted_from_values<sparse_compute>({1.366e3, 1.975e6, 1.4439, 0.3703, 0.1530, 0.6594});
}

/// The SMELT law of SMELT.
[[nodiscard]] inline coefficients_of<sparse_compute> smelt_looped() {
  return fitted_from_values<sparse_compute>({1.963e3, 5.264e6, 1.4493, 0.3892, 0.1460, 0.7011});
}

using looped_moe_form = looped_moe<bounded_map<true>>;

/// The looped mixtures' law: N in billions of parameters outside of embeddings, D in billions of tokens.
[[nodiscard]] inline coefficients_of<looped_moe_form> looped_moe() {
  return fitted_from_values<looped_moe_form>({0.8085, -0.1935, -0.1951, -0.0137, 3.4291, -0.2056, -0.7548, 0.0881,
                                              1.3555, 1.3174, 57.1201, 0.3682, 1.4037, 0.3286});
}
/// Its root mean square error: a step that gains less is not told from the error of the fit.
inline constexpr double looped_moe_error = 0.0037;

/// The iso-depth law fitted to 116 runs.
[[nodiscard]] inline coefficients_of<iso_depth> isodepth() {
  return fitted_from_values<iso_depth>({28.027, 915.82, 1.56773, 0.19924, 0.36863, 0.459});
}

/// Hoffmann et al., 2022, approach 3.
[[nodiscard]] inline coefficients_of<chinchilla> hoffmann() {
  return fitted_from_values<chinchilla>({406.4, 410.7, 1.69, 0.34, 0.28});
}

}  // namespace smelt::law::published
