// Does the router choose, weigh and judge as it should, down to ties, masks and broken logits?
#include "support/backends.hpp"

#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <span>
#include <string>
#include <vector>

namespace {

// One evaluation of a router with all that it gives.
template <class B>
struct routed {
  using scalar = typename B::scalar;
  smelt::router_shape shape;
  std::vector<scalar> scores;
  std::vector<std::int32_t> ids;
  std::vector<scalar> weights;
  std::vector<scalar> logsumexp;
  std::vector<scalar> load;

  routed(B& backend, const smelt::router_shape& shape_, std::vector<double> logit_values, std::vector<scalar> bias = {})
      : shape(shape_) {
    std::vector<scalar> logits(logit_values.begin(), logit_values.end());
    const auto tokens = static_cast<std::int64_t>(logits.size()) / shape.experts;
    scores.resize(logits.size());
    ids.assign(static_cast<std::size_t>(tokens * shape.active), -1);
    weights.resize(ids.size());
    logsumexp.resize(static_cast<std::size_t>(tokens));
    load.resize(static_cast<std::size_t>(shape.experts));
    backend.route(shape, smelt::matrix_view<scalar>(logits.data(), tokens, shape.experts), bias,
                  smelt::matrix_view<scalar>(scores.data(), tokens, shape.experts), ids,
                  smelt::matrix_view<scalar>(weights.data(), tokens, shape.active), logsumexp);
  }

  smelt::router_losses losses(B& backend, const std::vector<std::uint8_t>& mask = {}) {
    const auto tokens = static_cast<std::int64_t>(logsumexp.size());
    return backend.route_losses(shape, smelt::matrix_view<scalar>(scores.data(), tokens, shape.experts), ids, logsumexp,
                                mask, load);
  }
};

// Losses of given scores and ids, for which no logits need to exist.
template <class B>
smelt::router_losses losses_of(B& backend, const smelt::router_shape& shape, std::vector<double> scores,
                               const std::vector<std::int32_t>& ids, const std::vector<std::uint8_t>& mask = {}) {
  using scalar = typename B::scalar;
  std::vector<scalar> values(scores.begin(), scores.end());
  const auto tokens = static_cast<std::int64_t>(values.size()) / shape.experts;
  const std::vector<scalar> logsumexp(static_cast<std::size_t>(tokens), scalar{0});
  std::vector<scalar> load(static_cast<std::size_t>(shape.experts));
  return backend.route_losses(shape, smelt::matrix_view<scalar>(values.data(), tokens, shape.experts), ids, logsumexp,
                              mask, load);
}

}  // namespace

TEMPLATE_TEST_CASE("balance is 1 for uniform routing and E / k for collapse", "[route]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  for (const auto& [experts, active] : {std::pair{8, 2}, std::pair{64, 8}}) {
    const smelt::router_shape shape{.experts = experts, .active = active};
    const int tokens = experts;
    std::vector<double> uniform(static_cast<std::size_t>(tokens * experts), 1.0 / experts);
    std::vector<double> collapsed(static_cast<std::size_t>(tokens * experts), 0.0);
    std::vector<std::int32_t> spread;
    std::vector<std::int32_t> same;
    for (int t = 0; t < tokens; ++t) {
      for (int a = 0; a < active; ++a) {
        spread.push_back((t + a) % experts);
        same.push_back(a);
        collapsed[t * experts + a] = 1.0 / active;
      }
    }
    CHECK(losses_of(backend, shape, uniform, spread).balance == Approx(1.0).epsilon(1e-6));
    CHECK(losses_of(backend, shape, collapsed, same).balance == Approx(double(experts) / active).epsilon(1e-6));
  }
}

TEMPLATE_TEST_CASE("each router evaluation is judged by itself", "[route]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::router_shape shape{.experts = 2, .active = 1};
  // One layer sends everything to expert 0, the other to expert 1: each is as bad as can be, and so is their mean,
  // though tokens of both layers together look balanced.
  const double first = losses_of(backend, shape, {1, 0, 1, 0}, {0, 0}).balance;
  const double second = losses_of(backend, shape, {0, 1, 0, 1}, {1, 1}).balance;
  CHECK((first + second) / 2 == 2.0);
  CHECK(losses_of(backend, shape, {1, 0, 1, 0, 0, 1, 0, 1}, {0, 0, 1, 1}).balance == 1.0);
}

TEMPLATE_TEST_CASE("masked tokens leave no trace in the losses", "[route]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::router_shape shape{.experts = 4, .active = 1};
  std::vector<double> scores(4 * 4, 0.25);
  std::vector<std::int32_t> ids{0, 1, 2, 3};
  const smelt::router_losses alone = losses_of(backend, shape, scores, ids);
  CHECK(alone.balance == 1.0);
  for (int pad = 0; pad < 4; ++pad) {
    scores.insert(scores.end(), {1, 0, 0, 0});
    ids.push_back(0);
  }
  const smelt::router_losses masked = losses_of(backend, shape, scores, ids, {1, 1, 1, 1, 0, 0, 0, 0});
  CHECK(masked.balance == alone.balance);
  CHECK(losses_of(backend, shape, scores, ids).balance == 1.75);
  CHECK(losses_of(backend, shape, scores, ids, std::vector<std::uint8_t>(8, 0)).balance == 0.0);

  // Bit for bit, with pads of NaN strewn among many tokens.
  const smelt::router_shape wide{.experts = 24, .active = 3};
  const smelt::random_stream random(5, 5);
  std::vector<double> logits;
  std::vector<double> padded_logits;
  std::vector<std::uint8_t> mask;
  for (std::uint64_t t = 0; t < 3000; ++t) {
    if (t % 3 == 1) {
      padded_logits.insert(padded_logits.end(), 24, std::numeric_limits<double>::quiet_NaN());
      mask.push_back(0);
    }
    for (std::uint64_t e = 0; e < 24; ++e) {
      logits.push_back(random.normal(t * 24 + e));
      padded_logits.push_back(logits.back());
    }
    mask.push_back(1);
  }
  routed<TestType> real(backend, wide, logits);
  routed<TestType> padded(backend, wide, padded_logits);
  const smelt::router_losses expected = real.losses(backend);
  const smelt::router_losses found = padded.losses(backend, mask);
  CHECK(found.balance == expected.balance);
  CHECK(found.z == expected.z);
  CHECK(padded.load == real.load);
}

TEMPLATE_TEST_CASE("the mean probability counts all experts", "[route]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  for (const smelt::score_function score : {smelt::score_function::softmax, smelt::score_function::sigmoid}) {
    const smelt::router_shape shape{.experts = 8, .active = 2, .score = score};
    const smelt::random_stream random(3, 3);
    std::vector<double> logits;
    for (std::uint64_t i = 0; i < 2 * 8; ++i) logits.push_back(2 * random.normal(i));
    routed<TestType> r(backend, shape, logits);
    const double balance = r.losses(backend).balance;
    double load = 0;
    for (const auto share : r.load) load += double(share);
    CHECK(load == Approx(1.0).epsilon(1e-6));
    // With P over all experts the losses of the indicator loads sum to E sum_e P_e = E.
    double total = 0;
    for (std::int32_t e = 0; e < 8; ++e) {
      routed<TestType> one = r;
      one.shape.active = 1;
      one.ids.assign(2, e);
      total += one.losses(backend).balance;
    }
    CHECK(total == Approx(8.0).epsilon(1e-6));
    CHECK(balance != Approx(1.0).epsilon(1e-3));
  }
}

TEMPLATE_TEST_CASE("renormalisation is a switch of its own", "[route]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  smelt::router_shape shape{.experts = 64, .active = 8};
  const routed<TestType> off(backend, shape, std::vector<double>(64, 0.3));
  for (const auto w : off.weights) CHECK(double(w) == Approx(1.0 / 64).epsilon(1e-6));
  shape.renormalise = true;
  const routed<TestType> on(backend, shape, std::vector<double>(64, 0.3));
  for (const auto w : on.weights) CHECK(double(w) == Approx(1.0 / 8).epsilon(1e-6));

  // Softmax, top k, renormalise equals the softmax of the k logits.
  const smelt::random_stream random(9, 9);
  std::vector<double> logits;
  for (std::uint64_t e = 0; e < 64; ++e) logits.push_back(3 * random.normal(e));
  const routed<TestType> r(backend, shape, logits);
  double sum = 0;
  for (const std::int32_t id : r.ids) sum += std::exp(logits[id]);
  for (std::size_t a = 0; a < 8; ++a)
    CHECK(double(r.weights[a]) == Approx(std::exp(logits[r.ids[a]]) / sum).epsilon(1e-5));
}

TEMPLATE_TEST_CASE("ties go to the lower index, in descending order, every time", "[route]", SMELT_HOST_BACKENDS) {
  // Enough experts to reach both ways of selecting.
  for (const int experts : {8, 64, 65, 512}) {
    const smelt::router_shape shape{.experts = experts, .active = 3};
    std::vector<double> logits(static_cast<std::size_t>(experts), -1.0);
    logits[1] = 2.0;
    logits[4] = 1.0;
    logits[6] = 1.0;
    logits[7] = 1.0;
    TestType backend = smelt::test::make_backend<TestType>();
    for (int call = 0; call < 20; ++call) {
      CHECK(routed<TestType>(backend, shape, logits).ids == std::vector<std::int32_t>{1, 4, 6});
    }
    CHECK(routed<TestType>(backend, shape, std::vector<double>(static_cast<std::size_t>(experts), 0.5)).ids ==
          std::vector<std::int32_t>{0, 1, 2});
  }
}

TEST_CASE("the number of threads does not change which of two equal experts wins", "[route]") {
  const smelt::router_shape shape{.experts = 24, .active = 4};
  const smelt::random_stream random(1, 2);
  std::vector<double> logits;
  // Few distinct values, so that nearly every boundary is a tie.
  for (std::uint64_t i = 0; i < 24 * 2000; ++i) logits.push_back(double(random.below(5, i)));
  smelt::reference<float> reference;
  const routed<smelt::reference<float>> expected(reference, shape, logits);
  for (int threads = 1; threads <= 16; ++threads) {
    smelt::cpu backend{smelt::threads_executor(threads)};
    for (int call = 0; call < 20; ++call) {
      REQUIRE(routed<smelt::cpu<smelt::threads_executor>>(backend, shape, logits).ids == expected.ids);
    }
  }
}

TEMPLATE_TEST_CASE("the selection bias selects and nothing else", "[route]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::router_shape shape{.experts = 4, .active = 2};
  const std::vector<double> logits{0.1, 0.2, 0.3, 0.4};
  const routed<TestType> plain(backend, shape, logits);
  const routed<TestType> biased(backend, shape, logits, std::vector<scalar>{scalar{1}, 0, 0, 0});
  CHECK(plain.ids == std::vector<std::int32_t>{3, 2});
  CHECK(biased.ids == std::vector<std::int32_t>{0, 3});
  CHECK(biased.scores == plain.scores);
  CHECK(biased.weights[0] == plain.scores[0]);
}

TEMPLATE_TEST_CASE("broken logits give valid, distinct ids and visible scores", "[route]", SMELT_HOST_BACKENDS) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  TestType backend = smelt::test::make_backend<TestType>();
  for (const int experts : {5, 100}) {
    const smelt::router_shape shape{.experts = experts, .active = 3, .renormalise = true};
    for (const double broken : {nan, inf, -inf}) {
      for (const int count : {1, experts - 1, experts}) {
        std::vector<double> logits(static_cast<std::size_t>(experts), 0.25);
        for (int e = 0; e < count; ++e) logits[e] = broken;
        const routed<TestType> r(backend, shape, logits);
        const std::set<std::int32_t> distinct(r.ids.begin(), r.ids.end());
        CHECK(distinct.size() == 3);
        CHECK(*distinct.begin() >= 0);
        CHECK(*distinct.rbegin() < experts);
        // One expert at minus infinity is a valid score of 0; anything else broken shows.
        if (broken != -inf || count == experts) CHECK_FALSE(std::isfinite(double(r.logsumexp[0])));
      }
    }
  }
}

TEMPLATE_TEST_CASE("the balance loss depends on the logits and pushes them", "[route]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::router_shape shape{.experts = 4, .active = 1};
  routed<TestType> a(backend, shape, {1, 0, 0, 0, 0.9, 0.1, 0, 0});
  routed<TestType> b(backend, shape, {3, 0, 0, 0, 2.9, 0.1, 0, 0});
  CHECK(a.losses(backend).balance != b.losses(backend).balance);
  std::vector<scalar> dweights(2, scalar{0});
  std::vector<scalar> dlogits(8);
  backend.route_backward(shape, smelt::matrix_view<scalar>(a.scores.data(), 2, 4), a.ids,
                         smelt::matrix_view<scalar>(a.weights.data(), 2, 1), a.logsumexp, a.load, {},
                         smelt::matrix_view<scalar>(dweights.data(), 2, 1), {.balance = 1.0},
                         smelt::matrix_view<scalar>(dlogits.data(), 2, 4));
  // Expert 0 takes every token: its logit must fall, the others' rise.
  CHECK(double(dlogits[0]) > 0.01);
  CHECK(double(dlogits[1]) < -0.01);
}

TEMPLATE_TEST_CASE("tokens are grouped by expert in token order", "[route]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::router_shape shape{.experts = 4, .active = 2};
  const std::vector<std::int32_t> ids{2, 0, 0, 3, 2, 3};
  std::vector<std::int32_t> offsets(5);
  std::vector<std::int32_t> assignment(6);
  std::vector<std::int32_t> row(6);
  const smelt::grouping_view<std::int32_t> grouping(offsets, assignment, row);
  backend.group_by_expert(shape, ids, grouping);
  CHECK(offsets == std::vector<std::int32_t>{0, 2, 2, 4, 6});
  CHECK(assignment == std::vector<std::int32_t>{1, 2, 0, 4, 3, 5});
  for (std::int32_t g = 0; g < 6; ++g) CHECK(row[assignment[g]] == g);

  const std::vector<std::int32_t> wrong{2, 0, 0, 4, 2, 3};
  try {
    backend.group_by_expert(shape, wrong, grouping);
    FAIL("an id that is no expert was taken");
  } catch (const smelt::error& e) {
    CHECK(e.code() == smelt::errc::invalid_argument);
    CHECK_THAT(std::string(e.what()), Catch::Matchers::ContainsSubstring("ids[3] is 4, needs 0 to 3"));
  }
}

TEST_CASE("the CPU chooses other experts than the reference only where rounding decides", "[route]") {
  const smelt::router_shape shape{.experts = 128, .active = 8};
  const smelt::random_stream random(3, 4);
  std::vector<double> logits;
  for (std::uint64_t i = 0; i < 128 * 2000; ++i) logits.push_back(double(float(random.normal(i))));
  smelt::reference<double> exact;
  smelt::test::cpu_backend rounded = smelt::test::make_backend<smelt::test::cpu_backend>();
  const routed<smelt::reference<double>> expected(exact, shape, logits);
  const routed<smelt::test::cpu_backend> found(rounded, shape, logits);
  for (std::ptrdiff_t t = 0; t < 2000; ++t) {
    const auto chosen = [t](const std::vector<std::int32_t>& ids) {
      return std::set<std::int32_t>(ids.begin() + 8 * t, ids.begin() + 8 * t + 8);
    };
    if (chosen(found.ids) == chosen(expected.ids)) continue;
    std::vector<double> sorted(logits.begin() + 128 * t, logits.begin() + 128 * (t + 1));
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    INFO("token " << t);
    CHECK(sorted[7] - sorted[8] < 1e-5);
  }
}
