// Are frontiers, gains, choices and intervals those that the laws imply?
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <smelt/law/bootstrap.hpp>
#include <smelt/law/buckets.hpp>
#include <smelt/law/category.hpp>
#include <smelt/law/downstream.hpp>
#include <smelt/law/frontier.hpp>
#include <smelt/law/gain.hpp>
#include <smelt/law/hold_out.hpp>
#include <smelt/law/published.hpp>
#include <smelt/law/selection.hpp>
#include <smelt/law/sign_flip.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "law_data.hpp"
#include "vectors.hpp"

namespace {

using namespace smelt::law;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;

struct sparse_runs {
  observations<sparse_compute> data;
  std::vector<std::size_t> cells;
};

sparse_runs sparse_grid(const std::string& arch, const std::string& column) {
  const auto table = smelt_tests::own_table("sparse_grid.csv");
  const auto f = smelt_tests::numbers(table, "F");
  const auto s = smelt_tests::numbers(table, "S");
  const auto d = smelt_tests::numbers(table, "D");
  const auto cell = smelt_tests::numbers(table, "cell");
  const auto loss = smelt_tests::numbers(table, column);
  std::vector<inputs_of<sparse_compute>> x;
  std::vector<double> y;
  std::vector<std::size_t> cells;
  for (std::size_t i = 0; i < f.size(); ++i) {
    if (table.at("arch")[i] != arch) continue;
    x.push_back({f[i], s[i], d[i]});
    y.push_back(loss[i]);
    cells.push_back(static_cast<std::size_t>(cell[i]));
  }
  return {{x, y}, cells};
}

two_term_law at_95(const coefficients_of<sparse_compute>& p) {
  return at_sparsity(p, 0.95);
}

}  // namespace

TEST_CASE("The published laws give the published gains and frontiers", "[law]") {
  const auto base = published::smelt_baseline();
  const auto looped = published::smelt_looped();
  const struct {
    double sparsity, gain;
  } expected[] = {{0.85, 0.180}, {0.95, 0.158}, {0.97, 0.147}};
  for (const auto& e : expected) {
    CHECK(gain_between(at_sparsity(base, e.sparsity), at_sparsity(looped, e.sparsity), 1e21, budget_of::target).gain ==
          Approx(e.gain).margin(0.002));
  }
  CHECK(frontier_exponent(at_95(base)) == Approx(0.2371).margin(5e-5));
  CHECK(frontier_exponent(at_95(looped)) == Approx(0.2503).margin(5e-5));
  CHECK(frontier_exponent(at_95(looped)) / frontier_exponent(at_95(base)) == Approx(1.0554).margin(5e-5));
}

TEST_CASE("Gains agree with 50 digits, and the two conventions with each other", "[law]") {
  const auto base = fitted_from_values<sparse_compute>(
      {12228.637635993095, 48126.06574319156, 1.62, 0.46470588235294114, 0.12, 0.4836734693877551});
  const auto target = fitted_from_values<sparse_compute>(
      {20469.666121344744, 86128.15037940603, 1.636648334783658, 0.49019607843137253, 0.125, 0.5102040816326531});
  for (const auto& v : smelt_tests::gain_vectors) {
    const two_term_law b = at_sparsity(base, v.sparsity);
    const two_term_law t = at_sparsity(target, v.sparsity);
    const compute_gain g = gain_between(b, t, v.budget, budget_of::baseline, {1.3e19, 2.2e21});
    CHECK(g.loss == Approx(v.loss).epsilon(1e-12));
    CHECK(g.other == Approx(v.other).epsilon(1e-12));
    CHECK(g.gain == Approx(v.gain).margin(1e-12));
    CHECK(g.extrapolated == (v.budget > 2.2e21 || v.other > 2.2e21 || v.other < 1.3e19));
    const compute_gain back = gain_between(b, t, g.other, budget_of::target);
    CHECK(back.gain == Approx(g.gain).margin(1e-12));
  }
  // a loss that the other never reaches is an error, not 99.9 %
  CHECK_THROWS_WITH(gain_between(at_95(base), at_95(target), 1e40, budget_of::baseline),
                    ContainsSubstring("must be above the irreducible loss 1.6366"));
  CHECK_THROWS_WITH(frontier_compute(at_95(base), 1.5), ContainsSubstring("no compute reaches a loss of 1.5"));
  CHECK_THROWS_WITH(frontier(base, 1.0, 1e21), ContainsSubstring("input S"));
  CHECK_THROWS_WITH(frontier(base, 0.9, -1), ContainsSubstring("compute of a frontier must be above 0, found -1"));
}

TEST_CASE("A frontier is the minimum along its budget", "[law]") {
  const auto p = published::smelt_looped();
  for (const double compute : {1e19, 1e21, 3e22}) {
    const frontier_point best = frontier(p, 0.9, compute);
    CHECK(best.first * best.tokens == Approx(compute));
    CHECK(best.loss == Approx(predict<sparse_compute>(p, {best.first, 0.9, best.tokens})).epsilon(1e-12));
    CHECK(predict<sparse_compute>(p, {best.first * 1.01, 0.9, best.tokens / 1.01}) > best.loss);
    CHECK(predict<sparse_compute>(p, {best.first / 1.01, 0.9, best.tokens * 1.01}) > best.loss);
    CHECK(frontier_compute(at_sparsity(p, 0.9), best.loss) == Approx(compute).epsilon(1e-9));
    CHECK(best.tokens_per_parameter == Approx(6 * best.tokens / best.first));
  }
  const frontier_point chinchilla_best = frontier(published::hoffmann(), 5.76e23);
  CHECK(6 * chinchilla_best.first * chinchilla_best.tokens == Approx(5.76e23));
  CHECK(chinchilla_best.compute == 5.76e23);
  CHECK(chinchilla_best.tokens_per_parameter == Approx(chinchilla_best.tokens / chinchilla_best.first));
}

TEST_CASE("The synthetic architectures: exponents, gains, and their paired intervals by cell", "[law]") {
  const sparse_runs base = sparse_grid("baseline", "loss");
  const sparse_runs target = sparse_grid("smelt", "loss");
  const fit_result base_fit = fit<sparse_compute>(base.data);
  const fit_result target_fit = fit<sparse_compute>(target.data);
  const auto b = coefficients_from<sparse_compute>(base_fit);
  const auto t = coefficients_from<sparse_compute>(target_fit);
  CHECK(frontier_exponent(at_95(b)) == Approx(0.23858).margin(5e-6));
  // 0.251935 to six digits
  CHECK(frontier_exponent(at_95(t)) == Approx(0.25194).margin(6e-6));
  const double budgets[] = {1.3e19, 1e20, 1e21, 2.2e21};
  const double gains[] = {0.0706, 0.1332, 0.1738, 0.1779};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(gain_between(at_95(b), at_95(t), budgets[i], budget_of::baseline).gain == Approx(gains[i]).margin(5.1e-5));
  }
  CHECK(frontier(b, 0.95, 1e21).tokens_per_parameter * 6.3 / 6 == Approx(100.09768328979987).epsilon(1e-6));

  const resampling draws = draw_with_replacement(12, 300, 20);
  const auto base_boot = bootstrap<sparse_compute>(base.data, base_fit, draws, {}, base.cells);
  const auto target_boot = bootstrap<sparse_compute>(target.data, target_fit, draws, {}, target.cells);
  std::vector<double> gain;
  for (std::size_t i = 0; i < draws.draws; ++i) {
    gain.push_back(
        std::isfinite(base_boot.fits[i][0]) && std::isfinite(target_boot.fits[i][0])
            ? gain_between(at_95(base_boot.fits[i]), at_95(target_boot.fits[i]), 1e21, budget_of::baseline).gain
            : std::nan(""));
  }
  const interval of_gain = percentile_interval(gain, 0.95);
  CHECK(of_gain.low < 0.1743);
  CHECK(of_gain.high > 0.1743);
  CHECK(of_gain.high - of_gain.low < 0.08);
  CHECK(of_gain.used + of_gain.failed == 300);
  const interval of_exponent =
      percentile_interval(base_boot.map([](const auto& p) { return frontier_exponent(at_95(p)); }), 0.95);
  CHECK(of_exponent.low < 0.237);
  CHECK(of_exponent.high > 0.237);

  // the same numbers in every run and for any number of threads
  const auto again = bootstrap<sparse_compute>(base.data, base_fit, draws, {.threads = 3}, base.cells);
  CHECK(again.fits == base_boot.fits);
}

TEST_CASE("Resamples are the same everywhere, cells stay together, failures are counted", "[law]") {
  const resampling drawn = draw_as_numpy(240, 2, 42);
  std::mt19937 twister(42);
  std::vector<std::uint32_t> counts(480, 0);
  for (std::size_t i = 0; i < 480;) {
    const std::uint32_t index = static_cast<std::uint32_t>(twister()) & 255;
    if (index > 239) continue;
    ++counts[i / 240 * 240 + index];
    ++i;
  }
  CHECK(drawn.counts == counts);

  const resampling rows = draw_with_replacement(50, 20, 3);
  for (std::size_t b = 0; b < 20; ++b)
    CHECK(std::accumulate(rows.counts.begin() + static_cast<std::ptrdiff_t>(50 * b),
                          rows.counts.begin() + static_cast<std::ptrdiff_t>(50 * (b + 1)), 0u) == 50);
  CHECK(rows.counts == draw_with_replacement(50, 20, 3).counts);
  CHECK(rows.counts != draw_with_replacement(50, 20, 4).counts);
  const resampling most = draw_leaving_out(50, 0.1, 20, 3);
  for (std::size_t b = 0; b < 20; ++b)
    CHECK(std::accumulate(most.counts.begin() + static_cast<std::ptrdiff_t>(50 * b),
                          most.counts.begin() + static_cast<std::ptrdiff_t>(50 * (b + 1)), 0u) == 45);
  // a part of a row is rounded: 0.15 of 10 are 2
  const resampling part = draw_leaving_out(10, 0.15, 1, 3);
  CHECK(std::accumulate(part.counts.begin(), part.counts.end(), 0u) == 8);
  CHECK_THROWS_WITH(draw_leaving_out(50, 0, 20, 3), ContainsSubstring("fraction"));
  CHECK_THROWS_WITH(draw_with_replacement(0, 20, 3), ContainsSubstring("found 0"));

  // six rows for five coefficients: most draws have too few different ones
  std::vector<inputs_of<chinchilla>> x;
  std::vector<double> y;
  for (int i = 0; i < 6; ++i) {
    x.push_back({1e8 * std::pow(2.0, i % 3), 1e9 * std::pow(3.0, i / 2)});
    y.push_back(predict<chinchilla>(published::hoffmann(), x.back()) * (1 + 1e-3 * (i % 2)));
  }
  const observations<chinchilla> few(x, y);
  const auto boot = bootstrap<chinchilla>(few, fit<chinchilla>(few), draw_with_replacement(6, 100, 1));
  CHECK(boot.failed > 30);
  CHECK(boot.failed < 100);
  const interval alpha = boot.of_coefficient(3);
  CHECK(alpha.failed == boot.failed);
  CHECK(alpha.used + alpha.failed == 100);
  // a number that would not depend on the fit fails with it all the same
  const std::vector<double> ones = boot.map([](const auto&) { return 1.0; });
  CHECK(std::ranges::count_if(ones, [](double v) { return std::isnan(v); }) == boot.failed);
  CHECK_THROWS_WITH(bootstrap<chinchilla>(few, fit<chinchilla>(few), draw_with_replacement(7, 2, 1)),
                    ContainsSubstring("a unit for each of 6 rows, found 7"));
}

TEST_CASE("A hundred resamples of 240 rows are the same in every run, for any number of threads", "[law]") {
  const smelt::random_stream random(5, 0);
  std::vector<inputs_of<chinchilla>> x;
  std::vector<double> y;
  for (int i = 0; i < 240; ++i) {
    x.push_back({1e8 * std::pow(1.3, i % 20), 2e9 * std::pow(1.5, i / 20)});
    y.push_back(predict<chinchilla>(published::hoffmann(), x.back()) *
                std::exp(4e-3 * random.normal(static_cast<std::uint64_t>(i))));
  }
  const observations<chinchilla> data(x, y);
  const fit_result full = fit<chinchilla>(data);
  const resampling draws = draw_with_replacement(240, 100, 7);
  const auto one = bootstrap<chinchilla>(data, full, draws, {.threads = 1});
  CHECK(one.failed == 0);
  for (const std::size_t threads : {1u, 2u, 3u, 7u})
    CHECK(bootstrap<chinchilla>(data, full, draws, {.threads = threads}).fits == one.fits);
  // the draws are of rows, and a row is known by what it is: in another order other rows are drawn, but the spread
  // stays
  CHECK(one.of_coefficient(3).low < 0.34);
  CHECK(one.of_coefficient(3).high > 0.34);
  // a draw's fit is the fit of the rows drawn
  for (const std::size_t draw : {0u, 41u, 99u}) {
    std::vector<inputs_of<chinchilla>> drawn_x;
    std::vector<double> drawn_y;
    for (std::size_t i = 0; i < 240; ++i) {
      for (std::uint32_t k = 0; k < draws.count(draw, i); ++k) {
        drawn_x.push_back(x[i]);
        drawn_y.push_back(y[i]);
      }
    }
    const fit_result alone = fit<chinchilla>({drawn_x, drawn_y});
    for (std::size_t j = 0; j < 5; ++j) CHECK(one.fits[draw][j] == Approx(alone.fitted[j]).epsilon(1e-9));
  }
}

TEST_CASE("Percentiles interpolate as NumPy's do", "[law]") {
  const double values[] = {4, 1, 3, 2, std::nan("")};
  const interval i = percentile_interval(values, 0.8);
  CHECK(i.low == Approx(1.3));
  CHECK(i.median == Approx(2.5));
  CHECK(i.high == Approx(3.7));
  CHECK(i.failed == 1);
  CHECK(i.used == 4);
  CHECK(i.mean == Approx(2.5));
  CHECK(i.deviation == Approx(std::sqrt(1.25)));
  CHECK_THROWS_WITH(percentile_interval(values, 1.0), ContainsSubstring("between 0 and 1"));
  CHECK_THROWS_WITH(percentile_interval(std::vector<double>{std::nan("")}), ContainsSubstring("all 1 draws failed"));
}

TEST_CASE("Maps of visits fitted to at most eight visits are told apart at sixteen", "[law][full]") {
  const auto table = smelt_tests::own_table("looped_grid.csv");
  const auto n = smelt_tests::numbers(table, "N_act");
  const auto e = smelt_tests::numbers(table, "E");
  const auto r = smelt_tests::numbers(table, "R");
  const auto d = smelt_tests::numbers(table, "D");
  const auto loss = smelt_tests::numbers(table, "loss");
  const auto judge = [&](auto map) {
    using F = looped_moe<decltype(map)>;
    std::vector<inputs_of<F>> x;
    for (std::size_t i = 0; i < n.size(); ++i)
      x.push_back({n[i], 0.7 * n[i], n[i] * (1 + (e[i] - 1) / 2), e[i], r[i], d[i]});
    const observations<F> data(x, loss);
    return fit_holding_out<F>(data, [&](std::size_t i) { return r[i] <= 8; },
                              {.hold = {{"E_start", 1}, {"E_max", 256}}});
  };
  const hold_out_result bounded = judge(bounded_map<true>{});
  CHECK(bounded.fit.rows == 450);
  CHECK(bounded.rows_held_out == 75);
  CHECK(bounded.fit.objective <= 0.0001906697298165164 * (1 + 1e-6));
  CHECK(bounded.fit.value("k1") == Approx(1.114).margin(6e-4));
  CHECK(bounded.fit.value("k2") == Approx(2.437).margin(6e-4));
  CHECK(bounded.fit.value("theta") == Approx(0.234).margin(6e-4));
  CHECK(bounded.held_out.rmse == Approx(0.0020).margin(6e-5));
  const hold_out_result power = judge(power_map<true>{});
  CHECK(power.fit.objective <= 0.0004285492811236714 * (1 + 1e-6));
  CHECK(power.held_out.rmse == Approx(0.0248).margin(6e-5));
  CHECK(power.held_out.bias == Approx(-0.0241).margin(1e-4));
  const hold_out_result linear = judge(scaled_linear_map<true>{});
  CHECK(linear.fit.objective <= 0.0011762656721622231 * (1 + 1e-6));
  CHECK(linear.held_out.rmse == Approx(0.0491).margin(6e-5));
}

TEST_CASE("The published looped law chooses the published visits, experts and sizes", "[law]") {
  const looped_law<bounded_map<true>> law{published::looped_moe(), 1e9};
  const auto ladder = published_ladder();
  selection_limits limits{.flops = 1.5e22, .bits = 4, .least_gain = published::looped_moe_error};
  CHECK(best_visits(law, ladder[0], 8, 8, limits) == 5);

  limits.flops = 5e21;
  limits.memory_bytes = 3e9;
  const double experts[] = {1, 2, 4, 8, 16, 32, 64};
  const selection s = select(law, ladder, experts, 8, limits);
  CHECK(s.choice.name == "1.0B");
  CHECK(s.choice.experts == 8);
  CHECK(s.choice.visits == 2);
  CHECK(s.choice.rejected.empty());
  CHECK(s.choice.memory_bytes <= 3e9);
  CHECK(6 * unrolled_parameters(s.choice.n_active, s.choice.n_loop, 2) * s.choice.tokens == Approx(5e21));
  CHECK(s.candidates.size() == 5 * 7 * 8);
  std::size_t unrejected = 0;
  for (const candidate& c : s.candidates) unrejected += c.rejected.empty() ? 1u : 0u;
  CHECK(unrejected == 1);
  CHECK(best_experts(law, ladder[2], 2, experts, limits) == 8);

  limits.memory_bytes = 1e6;
  CHECK_THROWS_WITH(select(law, ladder, experts, 8, limits), ContainsSubstring("no model of the ladder fits"));
  CHECK_THROWS_WITH(best_experts(law, ladder[2], 2, experts, limits),
                    ContainsSubstring("no number of experts of 1.0B"));
  limits.flops = 0;
  CHECK_THROWS_WITH(select(law, ladder, experts, 8, limits),
                    ContainsSubstring("training FLOPs must be above 0, found 0"));
}

TEST_CASE("Every candidate of a plan says in short why it was not chosen", "[law]") {
  const looped_law<bounded_map<true>> law{published::looped_moe(), 1e9};
  const auto ladder = published_ladder();
  selection_limits limits{.flops = 5e21, .memory_bytes = 3e9, .bits = 4, .least_gain = published::looped_moe_error};
  const double experts[] = {1, 8, 16, 64};
  const selection s = select(law, ladder, experts, 8, limits);
  const auto of = [&](const std::string& name, double e, std::int64_t visits) {
    for (const candidate& c : s.candidates)
      if (c.name == name && c.experts == e && c.visits == visits) return c;
    throw std::runtime_error("no such candidate");
  };
  CHECK(s.choice.why == rejection::none);
  CHECK(of("0.3B", 1, 3).why == rejection::loss);
  CHECK(of("0.3B", 1, 3).rejected == "0.437 nats above the choice");
  CHECK(of("1.0B", 8, 1).why == rejection::another_visit);
  CHECK(of("1.0B", 8, 1).rejected == "one more visit gains 0.0051 nats");
  CHECK(of("1.0B", 8, 3).why == rejection::least_gain);
  CHECK_THAT(of("1.0B", 8, 3).rejected, StartsWith("visit 3 costs 0.0") && EndsWith(" nats"));
  CHECK(of("0.3B", 64, 1).why == rejection::memory);
  CHECK(of("0.3B", 64, 1).rejected == "weights take 4.55GB of 3GB");
  // a token passes what is looped once more for every visit
  for (const candidate& c : s.candidates)
    CHECK(c.inference_flops == 2 * (c.n_active + static_cast<double>(c.visits - 1) * c.n_loop));

  // weights that just fit are taken, and those that just do not are told from the limit
  limits.memory_bytes = of("1.0B", 8, 1).memory_bytes;
  const std::size_t one = 2;
  CHECK(select(law, std::span(&ladder[one], 1), experts, 1, limits).choice.experts == 8);
  CHECK(best_experts(law, ladder[one], 2, experts, limits) == 8);
  limits.memory_bytes -= 1;
  CHECK(best_experts(law, ladder[one], 2, experts, limits) == 1);
  CHECK(select(law, std::span(&ladder[one], 1), experts, 1, limits).candidates[1].rejected ==
        "weights take 2.57949696GB of 2.579496959GB");
  limits.memory_bytes = 1e6;
  CHECK_THROWS_WITH(select(law, ladder, experts, 1, limits),
                    Equals("no model of the ladder fits in 1MB at 4 bits a weight; the least takes 86.5MB"));

  // of two that are alike the first is taken
  const std::vector<rung> twins{{"first", 768, 20}, {"second", 768, 20}};
  limits.memory_bytes = 3e9;
  CHECK(select(law, twins, experts, 2, limits).choice.name == "first");
}

TEST_CASE("A step is taken when it gains enough, and none is skipped", "[law]") {
  const double halves[] = {2.0, 1.5, 1.0};
  CHECK(steps_worth_taking(halves, 0.5) == 2);  // just enough is enough
  const double losses[] = {2.0, 1.9, 1.895, 1.8, 1.85};
  CHECK(steps_worth_taking(losses, 0.01) == 1);
  CHECK(steps_worth_taking(losses, 0.004) == 3);
  CHECK(steps_worth_taking(losses, 0.0) == 3);
  CHECK(steps_worth_taking(losses, 0.2) == 0);
}

TEST_CASE("A category keeps the law's shape", "[law]") {
  const sparse_runs runs = sparse_grid("smelt", "loss_true");
  const fit_result whole = fit<sparse_compute>(runs.data);
  const auto p = coefficients_from<sparse_compute>(whole);
  std::vector<inputs_of<sparse_compute>> x;
  std::vector<double> harder;
  std::vector<double> steeper;
  for (std::size_t i = 0; i < runs.data.size(); ++i) {
    x.push_back(runs.data.inputs(i));
    harder.push_back(runs.data.response_of(i) + 0.3);
    auto q = p;
    q[0] += std::log(1.5);
    steeper.push_back(predict<sparse_compute>(q, x.back()) - 0.2);
  }
  const fit_result e = refit_category({x, harder}, whole);
  CHECK(e.value("E") == Approx(whole.value("E") + 0.3).epsilon(1e-9));
  CHECK(e.value("A") == Approx(whole.value("A")).epsilon(1e-12));
  const fit_result both = refit_category({x, steeper}, whole, category_freedom::irreducible_and_amplitude);
  CHECK(both.value("E") == Approx(whole.value("E") - 0.2).epsilon(1e-8));
  CHECK(both.value("A") == Approx(whole.value("A") * 1.5).epsilon(1e-7));
}

TEST_CASE("Scores are judged against the curve of the baseline, in the metric's direction", "[law]") {
  std::vector<double> loss;
  std::vector<double> accuracy;
  std::vector<double> mistakes;
  for (int i = 0; i < 12; ++i) {
    loss.push_back(1.9 + 0.1 * i);
    accuracy.push_back(0.25 + 0.6 / (1 + std::exp(5 * (loss.back() - 2.4))));
    mistakes.push_back(1 - accuracy.back());
  }
  const double others[] = {2.0, 2.3, 2.7};
  std::vector<double> scores;
  std::vector<double> errors;
  for (const double l : others) {
    scores.push_back(0.25 + 0.6 / (1 + std::exp(5 * (l - 2.4))) + (l < 2.5 ? 0.02 : -0.01));
    errors.push_back(1 - scores.back());
  }
  const downstream_result up = downstream_residuals(loss, accuracy, others, scores, better::higher);
  CHECK(up.curve.value("tau") == Approx(2.4).epsilon(1e-6));
  CHECK(up.curve.value("alpha") == Approx(5).epsilon(1e-6));
  CHECK(up.residuals[0] == Approx(0.02).margin(1e-7));
  CHECK(up.residuals[2] == Approx(-0.01).margin(1e-7));
  CHECK(up.wins == 2);
  CHECK(up.mean == Approx(0.01).margin(1e-7));
  const downstream_result down = downstream_residuals(loss, mistakes, others, errors, better::lower);
  CHECK(down.residuals[0] == Approx(0.02).margin(1e-7));
  CHECK(down.wins == 2);
}

TEST_CASE("Sign flips: every pattern of few differences, random ones of many", "[law]") {
  const double five[] = {1, 2, 3, 4, 5};
  const sign_flip_result exact = sign_flip_test(five);
  CHECK(exact.exact);
  CHECK(exact.flips == 32);
  CHECK(exact.p_two_sided == 2.0 / 32);
  CHECK(exact.p_greater == 1.0 / 32);
  const std::vector<double> twenty(20, 1.0);
  CHECK(sign_flip_test(twenty).exact);
  CHECK(sign_flip_test(twenty).p_greater == 1.0 / (1 << 20));
  // the observed signs count among those that are drawn
  const std::vector<double> more(21, 1.0);
  CHECK(sign_flip_test(more, 9).flips == 10);
  CHECK(sign_flip_test(more, 9).p_greater == 0.1);
  // sums that rounding alone tells apart are equal: 0.1 + 0.2 - 0.3 is 0 with either sign
  const double rounded[] = {0.1, 0.2, -0.3, 0.05};
  CHECK(sign_flip_test(rounded).p_greater == 8.0 / 16);
  const double balanced[] = {1, -1, 1, -1};
  CHECK(sign_flip_test(balanced).p_two_sided == 1);
  std::vector<double> many;
  const smelt::random_stream random(3, 0);
  for (std::uint64_t i = 0; i < 100; ++i) many.push_back(0.2 + random.normal(i));
  const sign_flip_result drawn = sign_flip_test(many, 20'000, 5);
  CHECK_FALSE(drawn.exact);
  double sum = 0;
  double squares = 0;
  for (const double x : many) {
    sum += x;
    squares += x * x;
  }
  CHECK(drawn.p_greater == Approx(0.5 * std::erfc(sum / std::sqrt(2 * squares))).margin(0.01));
  CHECK(drawn.p_two_sided == sign_flip_test(many, 20'000, 5).p_two_sided);
  // signs are tossed for each difference on its own: two, far apart, agree half of the time
  std::vector<double> two(64, 0.0);
  two[3] = two[35] = 1;
  CHECK(sign_flip_test(two, 20'000, 5).p_two_sided == Approx(0.5).margin(0.02));
  CHECK_THROWS_WITH(sign_flip_test({}), ContainsSubstring("at least 1 difference"));
}

TEST_CASE("Means by loss quartile and the tilt between ends", "[law]") {
  const double loss[] = {3, 1, 2, 4, 8, 7, 6, 5};
  const auto group = quantile_groups(loss, 4);
  CHECK(group == std::vector<std::size_t>{1, 0, 0, 1, 3, 3, 2, 2});
  const double alike[] = {1, 1, 1, 1};
  CHECK(quantile_groups(alike, 2) == std::vector<std::size_t>{0, 0, 1, 1});  // ties go by place
  const double gain[] = {0.2, 0.1, 0.1, 0.2, 0.5, 0.3, 0.3, 0.3};
  const auto means = mean_by_group(gain, group);
  CHECK(means[3] == Approx(0.4));
  CHECK(tilt(means) == Approx(0.3));
  CHECK_THROWS_WITH(quantile_groups(loss, 9), ContainsSubstring("found 9"));
}
