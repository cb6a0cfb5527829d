// Do the ops keep their heads at the edges of the numbers: overflow, zero learning rate, ignored targets, wrong ids?
#include "support/backends.hpp"
#include "support/op_table.hpp"

#include "catch.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <smelt/core/error.hpp>
#include <string>
#include <vector>

namespace {

template <class F>
std::string message_of(F f, smelt::errc code) {
  try {
    f();
  } catch (const smelt::error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  return "nothing was thrown";
}

template <class S>
smelt::matrix_view<S> view(std::vector<S>& values, std::int64_t rows) {
  return {values.data(), rows, static_cast<std::int64_t>(values.size()) / rows};
}

}  // namespace

TEMPLATE_TEST_CASE("the norm neither overflows nor hides what is not finite", "[norm]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  std::vector<scalar> x(100, scalar{1e20F});
  CHECK(backend.norm(x) == Approx(1e21).epsilon(1e-7));
  const double clip = 1.0 / backend.norm(x);
  CHECK(double(x[0]) * clip == Approx(0.1).epsilon(1e-7));
  x.assign(100'000, scalar{1e-30F});
  CHECK(backend.norm(x) == Approx(std::sqrt(1e5) * 1e-30).epsilon(1e-6));
  x.assign(3, scalar{0});
  CHECK(backend.norm(x) == 0.0);
  CHECK(backend.norm(std::vector<scalar>()) == 0.0);
  for (const std::size_t at : {std::size_t{0}, std::size_t{70'000}, std::size_t{99'999}}) {
    x.assign(100'000, scalar{1});
    x[at] = -std::numeric_limits<scalar>::infinity();
    CHECK(std::isinf(backend.norm(x)));
    x[at] = std::numeric_limits<scalar>::quiet_NaN();
    CHECK(std::isnan(backend.norm(x)));
  }
}

TEMPLATE_TEST_CASE("a learning rate of 0 leaves the weights' bits alone", "[adamw]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  std::vector<scalar> weight{scalar{1}, scalar{-0.0}, scalar{0}, scalar{1e-38F}, scalar{-3.5}};
  for (int i = 0; i < 30; ++i) weight.push_back(static_cast<scalar>(0.1 * i));
  const std::vector<scalar> before = weight;
  std::vector<scalar> first(weight.size());
  std::vector<scalar> second(weight.size());
  for (std::int64_t step = 1; step <= 5; ++step) {
    std::vector<scalar> gradient(weight.size(), scalar{-0.3F});
    const smelt::parameter_range all[] = {{0, static_cast<std::int64_t>(weight.size()), true}};
    backend.adamw({.learning_rate = 0, .weight_decay = 0.1, .step = step}, all, gradient, weight, first, second);
  }
  CHECK(std::memcmp(weight.data(), before.data(), weight.size() * sizeof(scalar)) == 0);
  CHECK(double(first[0]) == Approx(-0.3 * (1 - std::pow(0.9, 5))).epsilon(1e-5));
}

TEMPLATE_TEST_CASE("the first step of AdamW is the learning rate, and decay is apart", "[adamw]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  std::vector<scalar> weight{scalar{2}, scalar{2}};
  std::vector<scalar> gradient{scalar{1e-3F}, scalar{-50}};
  std::vector<scalar> first(2);
  std::vector<scalar> second(2);
  const smelt::parameter_range one_decayed[] = {{0, 1, true}, {1, 1, false}};
  backend.adamw({.learning_rate = 0.01, .weight_decay = 0.5, .step = 1}, one_decayed, gradient, weight, first, second);
  CHECK(double(weight[0]) == Approx(2 - 0.01 * (1 + 0.5 * 2)).epsilon(1e-5));
  CHECK(double(weight[1]) == Approx(2 + 0.01).epsilon(1e-5));
  CHECK(gradient == std::vector<scalar>(2));
}

TEMPLATE_TEST_CASE("ignored targets and padding rows contribute nothing", "[cross_entropy]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::head_shape shape{.width = 6, .vocab = 5};
  const scalar nan = std::numeric_limits<scalar>::quiet_NaN();
  std::vector<scalar> x(4 * 6, scalar{0.5F});
  std::vector<scalar> table(8 * 6, scalar{0.25F});
  for (std::size_t i = 0; i < 6; ++i) {
    x[2 * 6 + i] = nan;                                          // a row whose target is ignored
    for (std::size_t v = 5; v < 8; ++v) table[v * 6 + i] = nan;  // padding of the vocabulary
  }
  const std::vector<std::int32_t> targets{0, 4, -1, 2};
  std::vector<scalar> losses(4, nan);
  std::vector<scalar> logsumexp(4, nan);
  const smelt::loss_sum sum = backend.cross_entropy(shape, view(x, 4), view(table, 8), targets, losses, logsumexp);
  CHECK(sum.targets == 3);
  CHECK(sum.nats == Approx(3 * std::log(5.0)).epsilon(1e-6));
  CHECK(losses[2] == scalar{0});
  std::vector<scalar> dx(4 * 6, nan);
  std::vector<scalar> dtable(8 * 6, scalar{0});
  backend.cross_entropy_backward(shape, view(x, 4), view(table, 8), targets, logsumexp, 1.0 / 3, view(dx, 4),
                                 view(dtable, 8));
  for (std::size_t i = 0; i < 6; ++i) CHECK(dx[2 * 6 + i] == scalar{0});
  for (std::size_t i = 0; i < 5 * 6; ++i) CHECK(std::isfinite(dtable[i]));
  for (std::size_t i = 5 * 6; i < 8 * 6; ++i) CHECK(dtable[i] == scalar{0});

  const std::vector<std::int32_t> none(4, -1);
  const smelt::loss_sum nothing = backend.cross_entropy(shape, view(x, 4), view(table, 8), none, losses, logsumexp);
  CHECK(nothing.targets == 0);
  CHECK(nothing.nats == 0.0);
}

TEMPLATE_TEST_CASE("ids and targets out of range are named before anything is computed", "[cross_entropy][embed]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::head_shape shape{.width = 2, .vocab = 3};
  std::vector<scalar> x(4);
  std::vector<scalar> table(6);
  std::vector<scalar> losses(2, scalar{7});
  std::vector<scalar> logsumexp(2, scalar{7});
  const std::vector<std::int32_t> targets{0, 3};
  CHECK(message_of([&] { (void)backend.cross_entropy(shape, view(x, 2), view(table, 3), targets, losses, logsumexp); },
                   smelt::errc::invalid_argument) == "cross_entropy: targets[1] is 3, needs -1 to 2");
  CHECK(losses[0] == scalar{7});
  const std::vector<std::int32_t> ids{-1, 0};
  CHECK(message_of([&] { backend.embed(view(table, 3), ids, view(x, 2)); }, smelt::errc::invalid_argument) ==
        "embed: ids[0] is -1, needs 0 to 2");
  CHECK(message_of([&] { backend.embed_backward(view(x, 2), ids, view(table, 3)); }, smelt::errc::invalid_argument) ==
        "embed_backward: ids[0] is -1, needs 0 to 2");
}

TEMPLATE_TEST_CASE("every mismatch names the op, the argument, what is there and what is needed", "[check]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  std::vector<scalar> x(12);
  std::vector<scalar> w(8);
  std::vector<scalar> y(6);
  CHECK(message_of([&] { backend.linear(smelt::linear_shape{.in = 4, .out = 2}, view(x, 4), view(w, 2), view(y, 3)); },
                   smelt::errc::mismatch) == "linear: x is [4, 3], needs [4, 4]");
  CHECK(message_of([&] { backend.linear(smelt::linear_shape{.in = 4, .out = 2}, view(x, 3), view(w, 4), view(y, 3)); },
                   smelt::errc::mismatch) == "linear: w is [4, 2], needs [2, 4]");
  CHECK(message_of(
            [&] {
              backend.linear(smelt::linear_shape{.in = 4, .out = 2}, view(x, 3),
                             smelt::matrix_view<scalar>(nullptr, 2, 4), view(y, 3));
            },
            smelt::errc::mismatch) == "linear: w is null, needs [2, 4]");
  std::vector<scalar> gain(3);
  std::vector<scalar> rms(3);
  CHECK(message_of([&] { backend.rms_norm(smelt::norm_shape{.width = 4}, view(x, 3), gain, view(x, 3), rms); },
                   smelt::errc::mismatch) == "rms_norm: gain is [3], needs [4]");
  std::vector<std::int32_t> positions(4);
  const auto into_attention = [&](const smelt::attention_input_shape& shape) {
    backend.attention_input(shape, view(x, 4), smelt::attention_input_weights<const scalar>{}, positions,
                            smelt::attention_input_saved<scalar>{}, smelt::query_key_value<scalar>{});
  };
  CHECK(message_of([&] { into_attention({.width = 3, .heads = 1, .kv_heads = 1, .head_dim = 3}); },
                   smelt::errc::invalid_argument) == "attention_input: head_dim is 3, needs an even number");
  CHECK(message_of([&] { into_attention({.width = 3, .heads = 1, .kv_heads = 1, .head_dim = 2}); },
                   smelt::errc::mismatch) == "attention_input: weights.norm is [0], needs [3]");
  const smelt::parameter_range overlapping[] = {{0, 4, true}, {3, 2, true}};
  CHECK(message_of([&] { backend.adamw({.step = 0}, overlapping, y, y, y, y); }, smelt::errc::invalid_argument) ==
        "adamw: step is 0, needs at least 1");
  CHECK(message_of([&] { backend.adamw({}, overlapping, y, y, y, y); }, smelt::errc::invalid_argument) ==
        "adamw: a range starts at 3 and has 2 elements, needs to lie between 4 and 6");
  const smelt::parameter_range beyond[] = {{2, 5, true}};
  CHECK(message_of([&] { backend.adamw({}, beyond, y, y, y, y); }, smelt::errc::invalid_argument) ==
        "adamw: a range starts at 2 and has 5 elements, needs to lie between 0 and 6");
}

TEST_CASE("a 56 -> 444 projection has the same bits for 1, 2, 3 and 7 threads", "[linear][threads]") {
  const smelt::test::linear_case c(500, 56, 444);
  smelt::cpu one{smelt::threads_executor(1)};
  const auto expected = smelt::test::run_case(c, one);
  for (const int threads : {2, 3, 7}) {
    smelt::cpu many{smelt::threads_executor(threads)};
    const auto found = smelt::test::run_case(c, many);
    CHECK(found.outputs == expected.outputs);
    CHECK(found.gradients == expected.gradients);
  }
}

TEST_CASE("a shape the compiler knows gives the bits of the same shape at run time", "[constant]") {
  smelt::cpu backend{smelt::threads_executor(2)};
  constexpr smelt::linear_shape shape{.in = 48, .out = 33};
  std::vector<double> xs = smelt::test::normal_numbers(20 * 48, 1);
  std::vector<double> ws = smelt::test::normal_numbers(33 * 48, 2);
  std::vector<float> x(xs.begin(), xs.end());
  std::vector<float> w(ws.begin(), ws.end());
  std::vector<float> known(20 * 33);
  std::vector<float> given(20 * 33);
  backend.linear(smelt::constant<shape>{}, view(x, 20), view(w, 33), view(known, 20));
  backend.linear(shape, view(x, 20), view(w, 33), view(given, 20));
  CHECK(known == given);
}
