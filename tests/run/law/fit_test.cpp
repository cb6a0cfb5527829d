// Does a fit find the truth, the same one however the rows arrive, and does it refuse what it cannot know?
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <smelt/core/random.hpp>
#include <smelt/law/fit.hpp>
#include <smelt/law/forms/chinchilla.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <smelt/law/forms/test_time_depth.hpp>
#include <smelt/law/published.hpp>
#include <span>
#include <string>
#include <vector>

#include "law_data.hpp"

#if SMELT_HAS_NLOPT
#include <nlopt.hpp>
#endif

namespace {

using namespace smelt::law;
using Catch::Matchers::ContainsSubstring;

struct sparse_rows {
  std::vector<inputs_of<sparse_compute>> x;
  std::vector<double> y;

  [[nodiscard]] observations<sparse_compute> data() const { return {x, y}; }
};

sparse_rows sparse_grid(const std::string& arch, const std::string& column) {
  const auto table = smelt_tests::own_table("sparse_grid.csv");
  const auto f = smelt_tests::numbers(table, "F");
  const auto s = smelt_tests::numbers(table, "S");
  const auto d = smelt_tests::numbers(table, "D");
  const auto loss = smelt_tests::numbers(table, column);
  sparse_rows rows;
  for (std::size_t i = 0; i < f.size(); ++i) {
    if (table.at("arch")[i] != arch) continue;
    rows.x.push_back({f[i], s[i], d[i]});
    rows.y.push_back(loss[i]);
  }
  return rows;
}

/// 72 runs of a Chinchilla law with noise.
observations<chinchilla> noisy_chinchilla() {
  const smelt::random_stream random(5, 0);
  std::vector<inputs_of<chinchilla>> x;
  std::vector<double> y;
  for (int i = 0; i < 72; ++i) {
    x.push_back({1e8 * std::pow(1.6, i % 9), 2e9 * std::pow(1.9, i / 9)});
    y.push_back(predict<chinchilla>(published::hoffmann(), x.back()) *
                std::exp(2e-3 * random.normal(static_cast<std::uint64_t>(i))));
  }
  return {x, y};
}

}  // namespace

TEST_CASE("Without noise the fit is the truth", "[law]") {
  const fit_result base = fit<sparse_compute>(sparse_grid("baseline", "loss_true").data());
  CHECK(base.value("E") == Approx(1.62).epsilon(1e-12));
  CHECK(base.value("A") == Approx(12228.637635993095).epsilon(1e-9));
  CHECK(base.value("K") == Approx(48126.06574319156).epsilon(1e-9));
  CHECK(base.value("a") == Approx(0.46470588235294114).epsilon(1e-11));
  CHECK(base.value("b") == Approx(0.12).epsilon(1e-11));
  CHECK(base.value("c") == Approx(0.4836734693877551).epsilon(1e-11));
  CHECK(base.objective < 1e-24);
  CHECK(base.r_squared == Approx(1));
  CHECK(base.agreeing > base.starts / 2);
}

TEST_CASE("With noise and with outliers the minimum is the one found elsewhere to 13 digits", "[law]") {
  struct expected {
    const char* column;
    const char* arch;
    coefficients_of<sparse_compute> p;
    double objective, rmse_log, rmse, r_squared;
    std::int64_t inside;
  };
  const expected all[] = {
      {"loss",
       "baseline",
       {9.398631091710957, 10.95501840513298, 0.4834713716839715, 0.46406181655289047, 0.120182315178928,
        0.49103831862582353},
       5.868697353409091e-05,
       0.0015121593138721964,
       0.003561967602388282,
       0.9997609149786857,
       33},
      {"loss",
       "smelt",
       {9.916230860808271, 11.566721320047993, 0.49438819788129196, 0.48956334823364067, 0.12565746712402917,
        0.5190385548278602},
       5.0750568615783704e-05,
       0.0014084343035307848,
       0.0031773161275172957,
       0.9998107159490253,
       38},
      {"loss_heavy",
       "baseline",
       {9.412254202560293, 11.141795045993977, 0.48774614620607804, 0.4648110976774127, 0.1206123982835241,
        0.4993788617122849},
       0.00011511323890505968,
       0.004232356932959685,
       0.008824817646607731,
       0.9985076824957684,
       34},
      {"loss_heavy",
       "smelt",
       {9.88096265038115, 11.481429434267456, 0.4924545305532663, 0.48783450991349075, 0.12489373581182275,
        0.5152854125393491},
       5.930353359141322e-05,
       0.0017031462625482538,
       0.003846565355540244,
       0.9997229904985039,
       38},
  };
  for (const expected& e : all) {
    INFO(e.column << " " << e.arch);
    const fit_result r = fit<sparse_compute>(sparse_grid(e.arch, e.column).data());
    for (std::size_t j = 0; j < e.p.size(); ++j) CHECK(r.fitted[j] == Approx(e.p[j]).epsilon(1e-8));
    CHECK(r.objective == Approx(e.objective).epsilon(1e-11));
    CHECK(r.gradient < 1e-12);
    CHECK(r.rmse_log == Approx(e.rmse_log).epsilon(1e-7));
    CHECK(r.rmse == Approx(e.rmse).epsilon(1e-7));
    CHECK(r.r_squared == Approx(e.r_squared).epsilon(1e-9));
    CHECK(r.inside_delta == e.inside);
    CHECK(r.warnings.empty());
  }
}

namespace {

/// The fit of rows in other orders, by other numbers of threads, in other units, and shown otherwise.
template <Form F>
void check_invariant(std::vector<inputs_of<F>> x, std::vector<double> y, const fit_options& asked) {
  INFO(F::name << ", loss " << int(asked.loss) << ", delta " << asked.delta);
  fit_options options = asked;
  options.threads = 1;
  const fit_result one = fit<F>({x, y}, options);
  for (const std::size_t threads : {2u, 5u}) {
    options.threads = threads;
    const fit_result many = fit<F>({x, y}, options);
    CHECK(many.fitted == one.fitted);
    CHECK(many.objective == one.objective);
    CHECK(many.agreeing == one.agreeing);
    CHECK(many.condition == one.condition);
    CHECK(many.warnings == one.warnings);
  }
  options.threads = 0;
  options.report = reduction::mean;
  options.factor = 1e6;
  const fit_result shown = fit<F>({x, y}, options);
  CHECK(shown.fitted == one.fitted);
  CHECK(shown.shown_objective == Approx(1e6 * one.objective / double(x.size())).epsilon(1e-15));

  const smelt::random_stream random(17, 0);
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    for (std::size_t i = x.size(); i-- > 1;) {
      const std::size_t other = random.below(i + 1, turn * 1000 + i);
      std::swap(x[i], x[other]);
      std::swap(y[i], y[other]);
    }
    const fit_result again = fit<F>({x, y}, options);
    CHECK(again.fitted == one.fitted);
    CHECK(again.condition == one.condition);
  }

  scales_of<F> factor{};
  for (std::size_t k = 0; k < factor.size(); ++k) factor[k] = k % 2 == 0 ? -std::log(1e9) : std::log(4096.0);
  for (inputs_of<F>& row : x)
    for (std::size_t j = 0; j < row.size(); ++j)
      if (F::inputs[j].scale >= 0) row[j] *= std::exp(factor[static_cast<std::size_t>(F::inputs[j].scale)]);
  const fit_result scaled = fit<F>({x, y}, options);
  const coefficients_of<F> expected = rescaled<F>(coefficients_from<F>(one), factor);
  for (std::size_t j = 0; j < expected.size(); ++j)
    CHECK(scaled.fitted[j] == Approx(expected[j]).epsilon(1e-9).margin(1e-10));
  CHECK(scaled.objective == Approx(one.objective).epsilon(1e-10));
  CHECK(scaled.agreeing == one.agreeing);
}

}  // namespace

TEST_CASE("The fit does not depend on threads, order of rows, units, or how its objective is shown", "[law]") {
  const sparse_rows rows = sparse_grid("smelt", "loss_heavy");
  check_invariant<sparse_compute>(rows.x, rows.y, {});
  check_invariant<sparse_compute>(rows.x, rows.y, {.loss = residual_loss::least_squares});
  const auto runs = noisy_chinchilla();
  std::vector<inputs_of<chinchilla>> x;
  for (std::size_t i = 0; i < runs.size(); ++i) x.push_back(runs.inputs(i));
  check_invariant<chinchilla>(x, runs.responses(), {});
  check_invariant<chinchilla>(x, runs.responses(), {.delta = 1e-5});
  std::vector<inputs_of<test_time_depth>> visits;
  std::vector<double> losses;
  for (int r = 1; r <= 12; ++r) {
    visits.push_back({double(r)});
    losses.push_back((2.1 + 0.35 * std::exp(-0.8 * (r - 1))) * (1 + 1e-3 * (r * 7 % 5 - 2)));
  }
  check_invariant<test_time_depth>(visits, losses, {});
}

TEST_CASE("Random starts find the same minimum, and are the same for the same seed", "[law]") {
  const auto data = sparse_grid("baseline", "loss").data();
  const fit_result grid = fit<sparse_compute>(data);
  const fit_result random = fit<sparse_compute>(data, {.random_starts = 64, .seed = 9});
  CHECK(random.starts == 64);
  CHECK(random.objective == Approx(grid.objective).epsilon(1e-12));
  CHECK(random.agreeing == fit<sparse_compute>(data, {.random_starts = 64, .seed = 9}).agreeing);
}

TEST_CASE("Least squares is the limit of a large delta, absolute deviations that of a small one", "[law]") {
  const auto data = noisy_chinchilla();
  const fit_result squares = fit<chinchilla>(data, {.loss = residual_loss::least_squares});
  const fit_result large = fit<chinchilla>(data, {.delta = 10});
  CHECK(large.objective == Approx(squares.objective).epsilon(1e-12));
  CHECK(large.value("alpha") == Approx(squares.value("alpha")).epsilon(1e-8));
  const fit_result corner = fit<chinchilla>(data, {.loss = residual_loss::least_absolute});
  const fit_result sharp = fit<chinchilla>(data, {.delta = 1e-7});
  CHECK(corner.inside_delta == 5);
  CHECK(sharp.value("alpha") == Approx(corner.value("alpha")).epsilon(1e-4));
  double sum = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    sum += std::fabs(std::log(predict<chinchilla>(coefficients_from<chinchilla>(corner), data.inputs(i))) -
                     data.fitted(i));
  }
  CHECK(corner.objective == Approx(sum).epsilon(1e-6));
}

TEST_CASE("Held coefficients stay, others move", "[law]") {
  const auto data = noisy_chinchilla();
  const fit_result free = fit<chinchilla>(data);
  const fit_result held = fit<chinchilla>(data, {.hold = {{"E", 1.69}, {"beta", 0.28}}});
  CHECK(held.value("E") == Approx(1.69).epsilon(1e-15));
  CHECK(held.value("beta") == 0.28);
  CHECK(held.states[2] == coefficient_state::held);
  CHECK(held.objective > free.objective);
  // an amplitude with its exponent, whatever the units of the fit
  const fit_result amplitude = fit<chinchilla>(data, {.hold = {{"A", 406.4}, {"alpha", 0.34}}});
  CHECK(amplitude.value("A") == Approx(406.4).epsilon(1e-12));
  CHECK_THROWS_WITH(fit<chinchilla>(data, {.hold = {{"A", 406.4}}}), ContainsSubstring("hold both"));
  // in the units of the data an amplitude can be held alone
  std::vector<inputs_of<chinchilla>> x;
  for (std::size_t i = 0; i < data.size(); ++i) x.push_back(data.inputs(i));
  const observations<chinchilla> as_given(x, data.responses(), fit_units::as_given);
  const auto from = coefficients_from<chinchilla>(free);
  const fit_result alone = fit<chinchilla>(as_given, {.hold = {{"A", free.value("A")}}}, std::span(&from, 1));
  CHECK(alone.states[0] == coefficient_state::held);
  CHECK(alone.objective == Approx(free.objective).epsilon(1e-9));
  CHECK_THROWS_WITH(fit<chinchilla>(data, {.hold = {{"alhpa", 1.0}}}), ContainsSubstring("did you mean alpha?"));
  CHECK_THROWS_WITH(fit<chinchilla>(data, {.hold = {{"E", -1.0}}}), ContainsSubstring("must be above 0, found -1"));
}

TEST_CASE("What the data cannot determine is said", "[law]") {
  // every run with the same tokens: B, beta and E are one number
  std::vector<inputs_of<chinchilla>> x;
  std::vector<double> y;
  for (int i = 0; i < 12; ++i) {
    x.push_back({1e8 * std::pow(1.5, i), 1e10});
    y.push_back(predict<chinchilla>(published::hoffmann(), x.back()) * (1 + 1e-3 * (i % 3)));
  }
  const fit_result flat = fit<chinchilla>({x, y});
  CHECK(flat.condition > condition_limit);
  CHECK(std::ranges::any_of(flat.warnings,
                            [](const std::string& w) { return w.find("is not determined") != std::string::npos; }));

  // losses that do not fall with tokens: an exponent at its bound
  for (std::size_t i = 0; i < x.size(); ++i) x[i][1] = 1e9 * std::pow(1.4, double(i * 5 % 12));
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = 1.8 + 400 * std::pow(x[i][0], -0.34);
  const fit_result bound = fit<chinchilla>({x, y});
  CHECK_FALSE(bound.warnings.empty());
}

TEST_CASE("Rows that cannot be fitted are refused by name and value", "[law]") {
  const std::vector<inputs_of<chinchilla>> three{{1e8, 1e9}, {2e8, 1e9}, {3e8, 2e9}};
  CHECK_THROWS_WITH(fit<chinchilla>({three, {3.0, 2.9, 2.8}}),
                    ContainsSubstring("at least as many rows as coefficients, 5; found 3"));
  CHECK_THROWS_WITH(fit<chinchilla>({{{1e8, 1e9}}, {3.0}}), ContainsSubstring("found 1"));
  CHECK_THROWS_WITH(fit<chinchilla>({{}, {}}), ContainsSubstring("found 0"));
  std::vector<inputs_of<chinchilla>> many;
  for (int i = 0; i < 8; ++i) many.push_back({1e8 * (i + 1), 1e9 * (i + 2)});
  CHECK_THROWS_WITH(fit<chinchilla>({many, std::vector<double>(8, 2.5)}),
                    ContainsSubstring("the responses must differ for a fit; all 8 are 2.5"));
  std::vector<double> losses{3, 2.9, 2.8, std::nan(""), 2.6, 2.5, 2.4, 2.3};
  CHECK_THROWS_WITH(observations<chinchilla>(many, losses),
                    ContainsSubstring("input loss of row 3 must be above 0, found nan"));
  losses[3] = 0;
  CHECK_THROWS_WITH(observations<chinchilla>(many, losses), ContainsSubstring("row 3 must be above 0, found 0"));
  losses[3] = 2.7;
  many[5][1] = 0;
  CHECK_THROWS_WITH(observations<chinchilla>(many, losses),
                    ContainsSubstring("input D of row 5 must be above 0, found 0"));
  many[5][1] = std::numeric_limits<double>::infinity();
  try {
    static_cast<void>(observations<chinchilla>(many, losses));
    FAIL("an infinite D was taken");
  } catch (const smelt::error& e) {
    CHECK(e.code() == smelt::errc::not_finite);
  }
  CHECK_THROWS_WITH(observations<chinchilla>(many, {1.0}), ContainsSubstring("found 1 and 8"));
  CHECK_THROWS_WITH(fit<chinchilla>(noisy_chinchilla(), {.delta = 0}), ContainsSubstring("found 0"));
}

TEST_CASE("Test-time depth is fitted", "[law]") {
  std::vector<inputs_of<test_time_depth>> x;
  std::vector<double> y;
  for (int r = 1; r <= 8; ++r) {
    x.push_back({double(r)});
    y.push_back(2.1 + 0.35 * std::exp(-0.8 * (r - 1)));
  }
  const fit_result r = fit<test_time_depth>({x, y});
  CHECK(r.value("L_inf") == Approx(2.1).epsilon(1e-11));
  CHECK(r.value("Z") == Approx(0.35).epsilon(1e-10));
  CHECK(r.value("z") == Approx(0.8).epsilon(1e-10));
}

TEST_CASE("Another library's solver confirms the minimum", "[law]") {
#if SMELT_HAS_NLOPT
  const auto data = sparse_grid("smelt", "loss").data();
  const fit_result ours = fit<sparse_compute>(data);
  std::vector<pack> blocks;
  data.table().fill(blocks);
  objective f(view_of<sparse_compute>(), blocks, 1e-3);
  const auto summary = data.summary();
  double best = 1;
  int agree = 0;
  for (int i = 0; i < 27; ++i) {
    const coefficients_of<sparse_compute> start =
        sparse_compute::start(summary, {0.5 * (i % 3), 0.5 * (i / 3 % 3), 0.5 * (i / 9), 0.5, 0.5});
    nlopt::opt solver(nlopt::LD_SLSQP, 6);
    auto wrapped = [&](const std::vector<double>& p, std::vector<double>& gradient) {
      objective_sums sums;
      coefficient_list q{};
      std::ranges::copy(p, q.begin());
      f.evaluate(q, sums);
      for (std::size_t j = 0; j < gradient.size(); ++j) gradient[j] = 1e6 * sums.gradient[j];
      return 1e6 * sums.value;
    };
    using function = decltype(wrapped);
    solver.set_min_objective([](const std::vector<double>& p, std::vector<double>& gradient,
                                void* self) { return (*static_cast<function*>(self))(p, gradient); },
                             &wrapped);
    solver.set_ftol_rel(1e-14);
    solver.set_maxeval(5000);
    std::vector<double> p(start.begin(), start.end());
    double value = 0;
    try {
      solver.optimize(p, value);
    } catch (const std::exception&) {  // a start that the solver gives up on
      continue;
    }
    value *= 1e-6;
    agree += value < ours.objective * 1.001 ? 1 : 0;
    best = std::fmin(best, value);
  }
  CHECK(agree > 0);
  CHECK(best >= ours.objective * (1 - 1e-12));
  CHECK(best == Approx(ours.objective).epsilon(1e-6));
#else
  WARN("skipped: NLopt is not installed");
#endif
}

TEST_CASE("A fit to few rows, or worse than the mean, says so", "[law]") {
  const auto rows = [](int count) {
    std::vector<inputs_of<chinchilla>> x;
    std::vector<double> y;
    for (int i = 0; i < count; ++i) {
      x.push_back({1e8 * std::pow(2.0, i % 4), 1e9 * std::pow(3.0, i / 4)});
      y.push_back(predict<chinchilla>(published::hoffmann(), x.back()) * (1 + 1e-3 * (i % 3)));
    }
    return observations<chinchilla>(x, y);
  };
  const auto warned = [](const fit_result& r, const std::string& words) {
    return std::ranges::any_of(r.warnings, [&](const std::string& w) { return w.find(words) != std::string::npos; });
  };
  CHECK(warned(fit<chinchilla>(rows(9)), "9 rows for 5 coefficients leave little to judge the fit by"));
  CHECK_FALSE(warned(fit<chinchilla>(rows(10)), "leave little"));
  // what is held needs no rows
  fit_options held;
  held.hold = {{"E", 1.69}};
  CHECK_FALSE(warned(fit<chinchilla>(rows(9), held), "leave little"));
  held.hold = {{"E", 100}};
  const fit_result worse = fit<chinchilla>(rows(16), held);
  CHECK(worse.r_squared < 0);
  CHECK(warned(worse, "R^2 is -"));
  CHECK_FALSE(warned(fit<chinchilla>(rows(16)), "R^2"));
}
