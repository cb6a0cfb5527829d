// How is a compute budget best split? The frontier of a law of two falling terms, in closed form.
#pragma once

#include <cmath>
#include <smelt/core/error.hpp>
#include <smelt/law/forms/chinchilla.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <smelt/law/observations.hpp>
#include <string>

namespace smelt::law {

/// L(x, y) = E + exp(log_first) x^-a + exp(log_second) y^-c under x y = C.
struct two_term_law {
  double irreducible = 0;  ///< E, nats a token
  double log_first = 0;
  double a = 0;
  double log_second = 0;
  double c = 0;
};

/// Where on the frontier a budget leads.
struct frontier_point {
  double compute = 0;  ///< C, FLOPs
  double first = 0;    ///< x*: F* in FLOPs a token, or N* in parameters
  double tokens = 0;   ///< D*
  double loss = 0;     ///< L* in nats a token
  double tokens_per_parameter = 0;
};

/// gamma = a c / (a + c): L* - E falls as C^-gamma.
[[nodiscard]] inline double frontier_exponent(const two_term_law& law) {
  return law.a * law.c / (law.a + law.c);
}

/// ln P, where L* = E + P C^-gamma.
[[nodiscard]] inline double log_frontier_amplitude(const two_term_law& law) {
  const double sum = law.a + law.c;
  // P = (a + c) (A/c)^(c/(a+c)) (K/a)^(a/(a+c))
  return std::log(sum) + law.c / sum * (law.log_first - std::log(law.c)) +
         law.a / sum * (law.log_second - std::log(law.a));
}

/// The split of x y = product that costs least. Throws invalid_argument for exponents or a product that are not above
/// 0.
[[nodiscard]] inline frontier_point frontier_split(const two_term_law& law, double product) {
  if (!(law.a > 0 && law.c > 0)) {
    throw error(errc::invalid_argument, "a frontier needs both exponents above 0, found " + detail::shown(law.a) +
                                            " and " + detail::shown(law.c));
  }
  if (!(product > 0 && std::isfinite(product)))
    throw error(errc::invalid_argument, "the compute of a frontier must be above 0, found " + detail::shown(product));
  const double sum = law.a + law.c;
  const double log_product = std::log(product);
  const double log_g = (std::log(law.a) + law.log_first - std::log(law.c) - law.log_second) / sum;
  const double log_first = log_g + law.c / sum * log_product;
  frontier_point point;
  point.compute = product;
  point.first = std::exp(log_first);
  point.tokens = std::exp(log_product - log_first);
  point.loss = law.irreducible + std::exp(log_frontier_amplitude(law) - frontier_exponent(law) * log_product);
  return point;
}

/// The product x y at which the frontier's loss is `loss`. Throws invalid_argument, naming both, unless loss > E.
[[nodiscard]] inline double frontier_compute(const two_term_law& law, double loss) {
  if (!(loss > law.irreducible)) {
    throw error(errc::invalid_argument, "no compute reaches a loss of " + detail::shown(loss) +
                                            ": it must be above the irreducible loss " +
                                            detail::shown(law.irreducible));
  }
  return std::exp((log_frontier_amplitude(law) - std::log(loss - law.irreducible)) / frontier_exponent(law));
}

/// The SMELT law at one sparsity, x = F and y = D. Throws for a sparsity outside of [0, 1).
[[nodiscard]] inline two_term_law at_sparsity(const coefficients_of<sparse_compute>& p, double sparsity) {
  detail::check_input(sparse_compute::name, sparse_compute::inputs[1], sparsity, -1);
  return {std::exp(p[2]), p[0] + p[4] * std::log1p(-sparsity), p[3], p[1], p[5]};
}

/// F*, D*, L* and tokens per dense-equivalent parameter, 6 D*/F*, of the SMELT law at compute C = F D.
[[nodiscard]] inline frontier_point frontier(const coefficients_of<sparse_compute>& p, double sparsity,
                                             double compute) {
  frontier_point point = frontier_split(at_sparsity(p, sparsity), compute);
  point.tokens_per_parameter = 6 * point.tokens / point.first;
  return point;
}

/// N*, D*, L* and tokens per parameter of the Chinchilla law at compute C = 6 N D. N* grows as C^(beta/(alpha+beta)).
[[nodiscard]] inline frontier_point frontier(const coefficients_of<chinchilla>& p, double compute) {
  frontier_point point = frontier_split({std::exp(p[2]), p[0], p[3], p[1], p[4]}, compute / 6);
  point.compute = compute;
  point.tokens_per_parameter = point.tokens / point.first;
  return point;
}

}  // namespace smelt::law
