// Does Muon move matrices by directions whose singular values are 1, and only the matrices it is given?
#include "support/backends.hpp"
#include "support/op_table.hpp"

#include "catch.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <smelt/core/error.hpp>
#include <smelt/kernels/orthogonal.hpp>
#include <vector>

namespace {

using matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using decomposition = Eigen::JacobiSVD<matrix>;

decomposition svd_of(const matrix& m) {
  return decomposition(m, Eigen::ComputeThinU | Eigen::ComputeThinV);
}

/// A matrix with these singular values and chance directions.
matrix with_singular_values(std::int64_t rows, std::int64_t cols, const std::vector<double>& values) {
  const std::vector<double> entries = smelt::test::normal_numbers(rows * cols, 7, 1);
  const decomposition chance = svd_of(Eigen::Map<const matrix>(entries.data(), rows, cols));
  const Eigen::VectorXd diagonal =
      Eigen::Map<const Eigen::VectorXd>(values.data(), static_cast<Eigen::Index>(values.size()));
  return chance.matrixU() * diagonal.asDiagonal() * chance.matrixV().transpose();
}

/// The direction in which an update moves a weight whose gradient this is, from rest.
template <class B>
matrix direction_of(B& backend, const matrix& gradient) {
  using scalar = typename B::scalar;
  std::vector<scalar> g(gradient.data(), gradient.data() + gradient.size());
  std::vector<scalar> w(g.size());
  std::vector<scalar> momentum(g.size());
  const smelt::matrix_range whole[] = {{0, gradient.rows(), gradient.cols()}};
  backend.muon({.learning_rate = 1}, whole, g, w, momentum);
  CHECK(std::all_of(g.begin(), g.end(), [](scalar e) { return e == 0; }));
  matrix moved(gradient.rows(), gradient.cols());
  for (Eigen::Index i = 0; i < moved.size(); ++i)
    moved.data()[i] = -double(w[static_cast<std::size_t>(i)]) / smelt::muon_scale(whole[0]);
  return moved;
}

/// Singular values from `least` to 1, evenly in their logarithms.
std::vector<double> spread_values(std::int64_t count, double least) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(std::pow(least, double(i) / double((std::max)(count - 1, std::int64_t{1}))));
  return values;
}

}  // namespace

TEMPLATE_TEST_CASE("Muon brings singular values to 1 and keeps their directions", "[muon]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  for (const auto& [rows, cols] : {std::pair{32, 96}, {96, 32}, {48, 48}, {7, 33}, {65, 18}, {1, 9}, {9, 1}}) {
    INFO(rows << " x " << cols);
    const auto least = (std::min)(rows, cols);
    // The norm of the squares is between the greatest and 2.3 of it here: the least stays above 0.02 of its root.
    const matrix gradient = with_singular_values(rows, cols, spread_values(least, 0.05)) * 1e-3;
    const matrix direction = direction_of(backend, gradient);
    const Eigen::VectorXd values = svd_of(direction).singularValues();
    CHECK(values.maxCoeff() < 1.094);
    CHECK(values.minCoeff() > 0.906);
    const decomposition of_gradient = svd_of(gradient);
    const matrix turned = of_gradient.matrixU().transpose() * direction * of_gradient.matrixV();
    const Eigen::VectorXd diagonal = turned.diagonal();
    CHECK((turned - matrix(diagonal.asDiagonal())).cwiseAbs().maxCoeff() < 1e-4);
  }
}

TEST_CASE("Muon brings singular values near 1 with every instruction set and type of products", "[muon]") {
  for (const smelt::test::cpu_variant& variant : smelt::test::usable_variants()) {
    INFO(variant.name());
    const bool rounded = variant.compute == smelt::compute_type::bf16;
    smelt::test::cpu_backend backend{smelt::threads_executor(2), variant.compute, variant.set};
    for (const auto& [rows, cols] : {std::pair{32, 96}, {96, 32}, {49, 49}, {7, 33}}) {
      INFO(rows << " x " << cols);
      const auto least = (std::min)(rows, cols);
      const matrix gradient = with_singular_values(rows, cols, spread_values(least, 0.05));
      const matrix direction = direction_of(backend, gradient);
      const Eigen::VectorXd values = svd_of(direction).singularValues();
      CHECK(values.maxCoeff() < (rounded ? 1.13 : 1.094));
      CHECK(values.minCoeff() > (rounded ? 0.87 : 0.906));
      const decomposition of_gradient = svd_of(gradient);
      const matrix turned = of_gradient.matrixU().transpose() * direction * of_gradient.matrixV();
      const Eigen::VectorXd diagonal = turned.diagonal();
      CHECK((turned - matrix(diagonal.asDiagonal())).cwiseAbs().maxCoeff() < (rounded ? 5e-2 : 1e-4));
    }
  }
}

TEST_CASE("one direction alone ends near 1, however it is rounded", "[muon]") {
  for (const smelt::test::cpu_variant& variant : smelt::test::usable_variants()) {
    INFO(variant.name());
    smelt::test::cpu_backend backend{smelt::threads_executor(2), variant.compute, variant.set};
    for (const auto& [rows, cols] : {std::pair{128, 32}, {32, 128}, {32, 16}, {12, 8}, {4, 3}, {2, 1}}) {
      for (unsigned seed = 1; seed <= 25; ++seed) {
        for (const double power : {1.0, 3.0}) {  // 3: a few elements are most of it
          INFO(rows << " x " << cols << ", seed " << seed << ", power " << power);
          const auto column = [&](std::int64_t size, unsigned at) {
            std::vector<double> entries = smelt::test::normal_numbers(size, at, 1);
            for (double& e : entries) e = std::copysign(std::pow(std::abs(e), power), e);
            return Eigen::VectorXd(Eigen::Map<const Eigen::VectorXd>(entries.data(), size));
          };
          const matrix gradient = column(rows, 2 * seed) * column(cols, 2 * seed + 1).transpose();
          const double found = svd_of(direction_of(backend, gradient)).singularValues()[0];
          CHECK(found > 0.84);
          CHECK(found < 1.13);
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("no singular value passes 1.094, and small ones grow at most 55-fold", "[muon]",
                   SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  for (const auto& [rows, cols] : {std::pair{40, 72}, {72, 40}}) {
    std::vector<double> values = spread_values(40, 1e-5);
    std::fill(values.begin() + 30, values.end(), 0.0);
    const matrix direction = direction_of(backend, with_singular_values(rows, cols, values));
    const Eigen::VectorXd found = svd_of(direction).singularValues();
    double fourth_powers = 0;
    for (const double v : values) fourth_powers += std::pow(v, 4);
    const double bound = std::pow(fourth_powers, 0.25);
    CHECK(found.maxCoeff() < 1.094);
    for (Eigen::Index i = 0; i < found.size(); ++i)
      CHECK(found[i] <= 56 * values[static_cast<std::size_t>(i)] / bound + 1e-4);
  }
}

TEMPLATE_TEST_CASE("Muon's direction does not depend on the size of the gradient", "[muon]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  const matrix gradient = with_singular_values(24, 40, spread_values(24, 0.1));
  const matrix expected = direction_of(backend, gradient);
  for (const double factor : {0x1p-100, 0x1p-20, 0x1p+60}) {
    INFO(factor);
    CHECK(direction_of(backend, gradient * factor) == expected);
  }
}

TEMPLATE_TEST_CASE("Muon leaves alone what it is not given, and decays what does not move", "[muon]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const std::vector<scalar> ones(20, scalar{1});
  const smelt::matrix_range matrices[] = {{2, 2, 3}, {12, 3, 2}};
  std::vector<scalar> gradient = ones;
  std::fill_n(gradient.begin() + 12, 6, scalar{0});
  std::vector<scalar> weight = ones;
  std::vector<scalar> momentum(20);
  SECTION("with a learning rate") {
    backend.muon({.learning_rate = 0.5, .momentum = 0.75, .weight_decay = 0.5}, matrices, gradient, weight, momentum);
    for (std::size_t i = 0; i < 20; ++i) {
      INFO(i);
      const bool moves = i >= 2 && i < 8;
      const bool is_still = i >= 12 && i < 18;
      CHECK(gradient[i] == scalar(moves || is_still ? 0 : 1));
      CHECK(momentum[i] == scalar(moves ? 0.25 : 0));
      if (is_still) CHECK(weight[i] == scalar(0.75));
      if (!moves && !is_still) CHECK(weight[i] == 1);
      if (moves) CHECK(weight[i] < scalar(0.75));
    }
  }
  SECTION("without one") {
    backend.muon({.learning_rate = 0, .momentum = 0.75, .weight_decay = 0.5}, matrices, gradient, weight, momentum);
    CHECK(std::memcmp(weight.data(), ones.data(), 20 * sizeof(scalar)) == 0);
    CHECK(momentum[2] == scalar(0.25));
  }
}

TEMPLATE_TEST_CASE("matrices outside the buffers are refused", "[muon]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  std::vector<scalar> x(6, scalar{1});
  std::vector<scalar> more(7);
  const auto refused = [&](const smelt::matrix_range& m) {
    const smelt::matrix_range one[] = {m};
    CHECK_THROWS_AS(backend.muon({}, one, x, x, x), smelt::error);
    CHECK(x == std::vector<scalar>(6, scalar{1}));
  };
  refused({0, 2, 4});
  refused({1, 2, 3});
  refused({-1, 2, 3});
  refused({0, 0, 3});
  refused({0, std::int64_t{1} << 62, 4});
  const smelt::matrix_range overlapping[] = {{0, 2, 2}, {3, 1, 2}};
  CHECK_THROWS_WITH(backend.muon({}, overlapping, x, x, x),
                    "muon: a matrix starts at 3 and has 1 x 2 elements, needs to lie between 4 and 6");
  CHECK_THROWS_AS(backend.muon({}, {}, more, x, x), smelt::error);
  CHECK_THROWS_AS(backend.muon({}, {}, x, x, more), smelt::error);
}
