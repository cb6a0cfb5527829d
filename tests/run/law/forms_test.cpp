// Do the forms say what their equations say? Against 50 digits, against finite differences, and at their limits.
#include <cmath>
#include <cstddef>
#include <smelt/core/random.hpp>
#include <smelt/law/fit.hpp>
#include <smelt/law/forms/chinchilla.hpp>
#include <smelt/law/forms/iso_depth.hpp>
#include <smelt/law/forms/joint_moe.hpp>
#include <smelt/law/forms/looped_moe.hpp>
#include <smelt/law/forms/score_sigmoid.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <smelt/law/forms/test_time_depth.hpp>
#include <smelt/law/gain.hpp>
#include <smelt/law/objective.hpp>
#include <smelt/law/observations.hpp>
#include <smelt/law/published.hpp>
#include <vector>

#include "catch.hpp"
#include "vectors.hpp"

namespace {

using namespace smelt::law;

template <std::size_t N>
void check_close(const std::array<double, N>& found, const std::array<double, N>& expected) {
  double size = 0;
  for (const double x : expected) size = std::fmax(size, std::fabs(x));
  for (std::size_t j = 0; j < N; ++j) {
    INFO("part " << j);
    CHECK(std::fabs(found[j] - expected[j]) <= 1e-12 * std::fmax(std::fabs(expected[j]), 1e-3 * size));
  }
}

/// Value and gradient by doubles and by packs; gradient by differences of the value, Hessian by those of the gradient,
/// both through the objective.
template <Form F>
void check_derivatives(const std::vector<inputs_of<F>>& x, const coefficients_of<F>& p) {
  const std::size_t n = p.size();
  std::vector<double> y;
  for (const auto& row : x) {
    const double value = predict<F>(p, row);
    y.push_back(F::fitted == response::logarithm ? value * std::exp(0.02 * std::sin(double(y.size()))) : value + 0.03);
  }
  const observations<F> data(x, y);
  const coefficients_of<F> q = data.to_fit_units(p);
  std::vector<pack> blocks;
  data.table().fill(blocks);
  for (const double delta : {1e9, 5e-3}) {
    objective f(view_of<F>(), blocks, delta);
    objective_sums here;
    objective_sums same;
    triangle majorant;
    triangle hessian;
    f.evaluate(detail::list_from(q), here);
    f.with_majorant(detail::list_from(q), same, majorant);
    CHECK(same.value == Approx(here.value).epsilon(1e-13));
    f.with_hessian(detail::list_from(q), same, hessian);
    CHECK(same.value == Approx(here.value).epsilon(1e-13));
    for (std::size_t j = 0; j < n; ++j)
      CHECK(same.gradient[j] == Approx(here.gradient[j]).epsilon(1e-11).margin(1e-13));

    double value = 0;
    std::vector<double> gradient(n, 0.0);
    for (std::size_t i = 0; i < data.size(); ++i) {
      coefficients_of<F> slope;
      const double residual = F::evaluate(q, data.prepared(i), slope) - data.fitted(i);
      const double size = std::fabs(residual);
      value += size <= delta ? residual * residual / 2 : delta * (size - delta / 2);
      for (std::size_t j = 0; j < n; ++j) gradient[j] += std::fmin(std::fmax(residual, -delta), delta) * slope[j];
      for (std::size_t j = 0; j < n; ++j) {
        coefficients_of<F> unused;
        const double h = 1e-6 * std::fmax(1.0, std::fabs(q[j]));
        coefficients_of<F> up = q;
        coefficients_of<F> down = q;
        up[j] += h;
        down[j] -= h;
        const double difference =
            (F::evaluate(up, data.prepared(i), unused) - F::evaluate(down, data.prepared(i), unused)) / (2 * h);
        INFO("row " << i << ", coefficient " << F::coefficients[j].name);
        CHECK(slope[j] == Approx(difference).epsilon(1e-5).margin(1e-8));
      }
    }
    CHECK(here.value == Approx(value).epsilon(1e-12));
    for (std::size_t j = 0; j < n; ++j) {
      CHECK(here.gradient[j] == Approx(gradient[j]).epsilon(1e-10).margin(1e-13));
      const double h = 1e-6 * std::fmax(1.0, std::fabs(q[j]));
      coefficient_list up = detail::list_from(q);
      coefficient_list down = detail::list_from(q);
      up[j] += h;
      down[j] -= h;
      objective_sums above;
      objective_sums below;
      f.evaluate(up, above);
      f.evaluate(down, below);
      if (delta < 1) continue;  // a residual may cross delta on the way
      for (std::size_t i = 0; i < n; ++i) {
        INFO("second derivative by " << F::coefficients[j].name << " and " << i);
        CHECK(hessian[i < j ? triangle_at(j, i) : triangle_at(i, j)] ==
              Approx((above.gradient[i] - below.gradient[i]) / (2 * h)).epsilon(1e-4).margin(1e-6));
      }
    }
    // the majorant, a row at a time
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t i = 0; i <= j; ++i) {
        double expected = 0;
        for (std::size_t k = 0; k < data.size(); ++k) {
          coefficients_of<F> slope;
          const double size = std::fabs(F::evaluate(q, data.prepared(k), slope) - data.fitted(k));
          expected += (size <= delta ? 1.0 : delta / size) * slope[j] * slope[i];
        }
        CHECK(majorant[triangle_at(j, i)] == Approx(expected).epsilon(1e-9).margin(1e-12));
      }
    }
  }
  // asked without its type the form says the same
  for (const auto& row : x)
    CHECK(predict(view_of<F>(), detail::list_from(p), row) == Approx(predict<F>(p, row)).epsilon(1e-13));
  // other units: the same losses
  scales_of<F> factor{};
  for (std::size_t k = 0; k < factor.size(); ++k) factor[k] = -3.0 + 5.0 * double(k);
  const coefficients_of<F> moved = rescaled<F>(p, factor);
  for (inputs_of<F> row : x) {
    const double expected = predict<F>(p, row);
    for (std::size_t j = 0; j < row.size(); ++j)
      if (F::inputs[j].scale >= 0) row[j] *= std::exp(factor[static_cast<std::size_t>(F::inputs[j].scale)]);
    CHECK(predict<F>(moved, row) == Approx(expected).epsilon(1e-12));
  }
}

double between(const smelt::random_stream& random, std::uint64_t& at, double low, double high) {
  return low + (high - low) * random.uniform(at++);
}

template <class Map>
std::vector<inputs_of<looped_moe<Map>>> looped_rows() {
  const smelt::random_stream random(7, 3);
  std::uint64_t at = 0;
  std::vector<inputs_of<looped_moe<Map>>> rows;
  for (int i = 0; i < 21; ++i) {
    const double n = between(random, at, 0.2, 2.5);
    const double e = std::exp2(double(i % 5));
    rows.push_back(
        {n, between(random, at, 0.5, 0.9) * n, n * (1 + 0.5 * (e - 1)), e, 1.0 + i % 7, between(random, at, 50, 500)});
  }
  return rows;
}

template <class Map>
void check_looped(const std::array<double, Map::coefficients.size()>& map) {
  using F = looped_moe<Map>;
  coefficients_of<F> p{};
  const auto base = published::looped_moe();
  for (std::size_t j = 0; j < 11; ++j) p[j] = base[j];
  for (std::size_t j = 0; j < map.size(); ++j) p[11 + j] = map[j];
  check_derivatives<F>(looped_rows<Map>(), p);
  // one visit: the joint law
  coefficients_of<joint_moe> joint{};
  for (std::size_t j = 0; j < 11; ++j) joint[j] = p[j];
  for (auto row : looped_rows<Map>()) {
    row[4] = 1;
    CHECK(effective_parameters<Map>(map, row[0], row[1], row[2], 1) == row[0]);
    CHECK(predict<F>(p, row) == Approx(predict<joint_moe>(joint, {row[0], row[3], row[5]})).epsilon(1e-14));
  }
}

}  // namespace

TEST_CASE("Chinchilla's and SMELT's laws and gradients agree with 50 digits", "[law]") {
  for (const auto& v : smelt_tests::chinchilla_vectors) {
    coefficients_of<chinchilla> gradient;
    CHECK(chinchilla::evaluate(v.p, chinchilla::prepare({v.n, v.d}), gradient) == Approx(v.log_loss).epsilon(1e-12));
    check_close(gradient, v.gradient);
  }
  for (const auto& v : smelt_tests::smelt_vectors) {
    coefficients_of<sparse_compute> gradient;
    CHECK(sparse_compute::evaluate(v.p, sparse_compute::prepare({v.f, v.s, v.d}), gradient) ==
          Approx(v.log_loss).epsilon(1e-12));
    check_close(gradient, v.gradient);
    const frontier_point best = frontier(v.p, v.s, v.compute);
    CHECK(best.first == Approx(v.best_f).epsilon(1e-12));
    CHECK(best.tokens == Approx(v.best_d).epsilon(1e-12));
    CHECK(best.loss == Approx(v.best_loss).epsilon(1e-12));
    const two_term_law law = at_sparsity(v.p, v.s);
    CHECK(frontier_exponent(law) == Approx(v.gamma).epsilon(1e-12));
    CHECK(std::exp(log_frontier_amplitude(law)) == Approx(v.amplitude).epsilon(1e-12));
  }
}

TEST_CASE("The looped law's maps, values and gradients agree with 50 digits", "[law]") {
  const auto check = [](const auto& v, auto map_type) {
    using map = decltype(map_type);
    using F = looped_moe<map>;
    coefficients_of<F> p{};
    for (std::size_t j = 0; j < 9; ++j) p[j] = v.p[j];
    p[9] = std::log(v.e_start);
    p[10] = std::log(v.e_max);
    std::array<double, map::coefficients.size()> of_map{};
    for (std::size_t j = 0; j < of_map.size(); ++j) p[11 + j] = of_map[j] = v.p[9 + j];
    CHECK(effective_parameters<map>(of_map, v.n, v.n_loop, v.n / v.m, v.visits) == Approx(v.n_eff).epsilon(1e-12));
    coefficients_of<F> gradient;
    CHECK(F::evaluate(p, F::prepare({v.n, v.n_loop, v.n / v.m, v.experts, v.visits, v.d}), gradient) ==
          Approx(v.log_loss).epsilon(1e-12));
    std::array<double, 12> found{};
    for (std::size_t j = 0; j < 9; ++j) found[j] = gradient[j];
    for (std::size_t j = 0; j < of_map.size(); ++j) found[9 + j] = gradient[11 + j];
    check_close(found, v.gradient);
  };
  for (const auto& v : smelt_tests::looped_vectors) {
    INFO(v.map);
    if (v.map == "bounded") check(v, bounded_map<true>{});
    if (v.map == "linear") check(v, scaled_linear_map<true>{});
    if (v.map == "power") check(v, power_map<true>{});
    double unused = 0;
    CHECK(std::exp(log_saturated_experts(std::log(v.e_start), std::log(v.e_max), v.experts, unused, unused)) ==
          Approx(v.e_hat).epsilon(1e-12));
  }
  for (const auto& v : smelt_tests::experts_vectors) {
    double unused = 0;
    CHECK(std::exp(log_saturated_experts(std::log(v.start), std::log(v.most), v.experts, unused, unused)) ==
          Approx(v.e_hat).epsilon(1e-12));
  }
}

TEST_CASE("Every form's gradient and Hessian agree with finite differences, and other units change no loss", "[law]") {
  const smelt::random_stream random(11, 0);
  std::uint64_t at = 0;
  std::vector<inputs_of<chinchilla>> nd;
  std::vector<inputs_of<sparse_compute>> fsd;
  std::vector<inputs_of<iso_depth>> depth;
  std::vector<inputs_of<joint_moe>> moe;
  std::vector<inputs_of<test_time_depth>> visits;
  std::vector<inputs_of<score_sigmoid<1>>> losses;
  for (int i = 0; i < 19; ++i) {
    nd.push_back({between(random, at, 1e8, 1e10), between(random, at, 1e9, 1e11)});
    fsd.push_back({between(random, at, 6e8, 1e10), between(random, at, 0, 0.97), between(random, at, 2e10, 2e11)});
    depth.push_back({between(random, at, 1e7, 1e8), between(random, at, 5e7, 3e8), double(1 << i % 4),
                     between(random, at, 1e9, 1e10)});
    moe.push_back({between(random, at, 0.2, 3), std::exp2(i % 6), between(random, at, 20, 500)});
    visits.push_back({1.0 + i % 9});
    losses.push_back({between(random, at, 1.8, 3.2)});
  }
  check_derivatives<chinchilla>(nd, published::hoffmann());
  check_derivatives<sparse_compute>(fsd, published::smelt_looped());
  check_derivatives<iso_depth>(depth, published::isodepth());
  coefficients_of<joint_moe> joint{};
  for (std::size_t j = 0; j < 11; ++j) joint[j] = published::looped_moe()[j];
  check_derivatives<joint_moe>(moe, joint);
  check_derivatives<test_time_depth>(visits, {std::log(2.1), std::log(0.4), 0.6});
  check_derivatives<score_sigmoid<1>>(losses, {0.2, std::log(0.6), std::log(5.0), 2.4});
  check_derivatives<score_sigmoid<-1>>(losses, {0.2, std::log(0.6), std::log(5.0), 2.4});
}

TEST_CASE("Every map of visits has its gradient, and is the joint law at one visit", "[law]") {
  check_looped<linear_map>({});
  check_looped<scaled_linear_map<false>>({std::log(0.2)});
  check_looped<scaled_linear_map<true>>({std::log(0.2), 0.3});
  check_looped<power_map<false>>({0.5});
  check_looped<power_map<true>>({0.5, 0.2});
  check_looped<bounded_map<false>>({std::log(0.4), std::log(1.4)});
  check_looped<bounded_map<true>>({std::log(0.3682), std::log(1.4037), 0.3286});
}

TEST_CASE("The bounded map's limits: a dense model, many visits, and a line", "[law]") {
  const std::array<double, 3> map{std::log(0.3682), std::log(1.4037), 0.3286};
  const double n = 0.6e9;
  const double loop = 0.42e9;
  // visits without end
  CHECK(effective_parameters<bounded_map<true>>(map, n, loop, 5 * n, 1e9) ==
        Approx(n + 0.3682 * std::pow(0.2, -0.3286) * loop).epsilon(1e-13));
  // m = 1: the form without the sparsity exponent
  for (const double visits : {1.0, 2.0, 5.0}) {
    CHECK(effective_parameters<bounded_map<true>>(map, n, loop, n, visits) ==
          Approx(effective_parameters<bounded_map<false>>({map[0], map[1]}, n, loop, n, visits)).epsilon(1e-14));
  }
  // k1 = k k2 without end: the line of slope k
  CHECK(effective_parameters<bounded_map<true>>({std::log(2e8), std::log(1e9), 0}, n, loop, 3 * n, 5) ==
        Approx(effective_parameters<scaled_linear_map<true>>({std::log(0.2), 0}, n, loop, 3 * n, 5)).epsilon(1e-8));
  // and power with phi = 1 unrolls the loop
  CHECK(effective_parameters<power_map<false>>({1.0}, n, loop, n, 4) ==
        Approx(effective_parameters<linear_map>({}, n, loop, n, 4)).epsilon(1e-14));
}

TEST_CASE("Huber's loss is right inside, at and beyond delta", "[law]") {
  for (const auto& v : smelt_tests::huber_vectors) {
    // one row whose law says L_inf + Z exactly
    const std::vector<inputs_of<test_time_depth>> x{{1.0}};
    const observations<test_time_depth> data(x, {2.0});
    std::vector<pack> blocks;
    data.table().fill(blocks);
    objective_sums sums;
    const coefficient_list p{std::log(1.5) + v.residual, std::log(0.5) + v.residual, 1};
    objective(view_of<test_time_depth>(), blocks, 1e-3).evaluate(p, sums);
    CHECK(sums.value == Approx(v.value).epsilon(1e-11).margin(1e-25));
  }
}

TEST_CASE("A law is not asked outside of its domain", "[law]") {
  using Catch::Matchers::ContainsSubstring;
  CHECK_THROWS_WITH(predict<chinchilla>(published::hoffmann(), {1e9, 0}),
                    ContainsSubstring("input D must be above 0, found 0"));
  CHECK_THROWS_WITH(predict<sparse_compute>(published::smelt_looped(), {1e9, 1, 1e9}),
                    ContainsSubstring("input S must be at least 0 and below 1, found 1"));
  CHECK_THROWS_WITH(predict<chinchilla>(published::hoffmann(), {std::nan(""), 1e9}),
                    ContainsSubstring("input N must be above 0, found nan"));
  const coefficient_list p = detail::list_from(published::hoffmann());
  CHECK_THROWS_WITH(predict(view_of<chinchilla>(), p, std::vector<double>{1e9, 0}),
                    ContainsSubstring("input D must be above 0, found 0"));
  CHECK_THROWS_WITH(predict(view_of<chinchilla>(), p, std::vector<double>{1e9}),
                    ContainsSubstring("chinchilla takes 2 inputs, found 1"));
  CHECK_THROWS_WITH(predict<iso_depth>(published::isodepth(), {1e8, 1e8, 0.5, 1e9}),
                    ContainsSubstring("input r must be at least 1, found 0.5"));
}
