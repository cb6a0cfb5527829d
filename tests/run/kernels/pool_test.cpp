// Does a latent hold what its chunk's last token sees, and nothing else?
#include "support/backends.hpp"

#include "catch.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/kernels/shapes.hpp>
#include <string>
#include <vector>

namespace {

template <class S>
smelt::matrix_view<S> view(std::vector<S>& values, std::int64_t cols) {
  return {values.data(), cols == 0 ? 0 : static_cast<std::int64_t>(values.size()) / cols, cols};
}

/// Latents of rows that are numbers, with `w` and the first rows that each sees.
template <class B, class S = typename B::scalar>
std::vector<S> pooled(B& backend, const smelt::pool_shape& shape, std::vector<S> x, std::vector<S> w,
                      const std::vector<std::int32_t>& first, std::int64_t length) {
  const auto sequences = static_cast<std::int64_t>(x.size()) / shape.width / length;
  std::vector<S> z(static_cast<std::size_t>(sequences * (length / shape.factor) * shape.width),
                   std::numeric_limits<S>::quiet_NaN());
  backend.pool(shape, view(x, shape.width), view(w, shape.width), first, length, view(z, shape.width));
  return z;
}

}  // namespace

TEMPLATE_TEST_CASE("a latent is made of whole chunks of its own sequence", "[pool]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  // Two sequences of five rows of two numbers: the fifth row of each forms no latent.
  const std::vector<scalar> x{1, 10, 3, 30, 5, 50, 7, 70, 1000, 1000, 2, 20, 4, 40, 6, 60, 8, 80, 1000, 1000};
  const smelt::pool_shape mean{.width = 2, .factor = 2, .encoder = smelt::encoder_kind::mean};
  CHECK(pooled(backend, mean, x, {}, {}, 5) == std::vector<scalar>{2, 20, 6, 60, 3, 30, 7, 70});
  smelt::pool_shape conv = mean;
  conv.encoder = smelt::encoder_kind::conv;
  CHECK(pooled(backend, conv, x, {1, 0, 2, 0.5}, {}, 5) ==
        std::vector<scalar>{1 + 2 * 3, 15, 5 + 2 * 7, 35, 2 + 2 * 4, 20, 6 + 2 * 8, 40});
  // A scorer of 0 weighs all rows alike; log(3) for a difference of 1 weighs 1 to 3.
  smelt::pool_shape softmax = mean;
  softmax.encoder = smelt::encoder_kind::softmax;
  const std::vector<scalar> alike = pooled(backend, softmax, x, {0, 0}, {}, 5);
  for (std::size_t i = 0; i < 8; ++i) CHECK(alike[i] == Approx(std::vector{2, 20, 6, 60, 3, 30, 7, 70}[i]));
  const std::vector<scalar> weighed =
      pooled(backend, softmax, {0, 4, 1, 8}, {static_cast<scalar>(std::log(3.0)), 0}, {}, 2);
  CHECK(weighed[0] == Approx(0.75));
  CHECK(weighed[1] == Approx(7));
  // No whole chunk, no latent.
  CHECK(pooled(backend, mean, {1, 2}, {}, {}, 1).empty());
}

TEMPLATE_TEST_CASE("rows of an earlier document than the chunk's last one do not enter, whatever they hold", "[pool]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const scalar nan = std::numeric_limits<scalar>::quiet_NaN();
  // Documents {0, 1}, {2, 3} and {4, 5}, in chunks {0, 1, 2} and {3, 4, 5}.
  const std::vector<std::int32_t> first{0, 0, 2, 2, 4, 4};
  const smelt::pool_shape mean{.width = 1, .factor = 3, .encoder = smelt::encoder_kind::mean};
  const std::vector<scalar> x{nan, nan, 5, nan, 7, 9};
  CHECK(pooled(backend, mean, x, {}, first, 6) == std::vector<scalar>{5, 8});
  smelt::pool_shape conv = mean;
  conv.encoder = smelt::encoder_kind::conv;
  CHECK(pooled(backend, conv, x, {100, 2, 3}, first, 6) == std::vector<scalar>{15, 14 + 27});
  smelt::pool_shape softmax = mean;
  softmax.encoder = smelt::encoder_kind::softmax;
  const std::vector<scalar> z = pooled(backend, softmax, x, {0}, first, 6);
  CHECK(z[0] == Approx(5));
  CHECK(z[1] == Approx(8));

  // Nor do they get a gradient.
  for (const smelt::pool_shape& shape : {mean, conv, softmax}) {
    std::vector<scalar> rows = x, dz{1, 1}, dx(6, scalar{-2});
    std::vector<scalar> w(shape.encoder == smelt::encoder_kind::mean   ? 0
                          : shape.encoder == smelt::encoder_kind::conv ? 3
                                                                       : 1,
                          scalar{1});
    std::vector<scalar> dw(w.size());
    backend.pool_backward(shape, view(rows, 1), view(w, 1), first, 6, view(dz, 1), view(dx, 1), view(dw, 1));
    for (const int t : {0, 1, 3}) CHECK(dx[t] == scalar{-2});
    for (const int t : {2, 4, 5}) CHECK(dx[t] != scalar{-2});
    for (const scalar g : dw) CHECK(std::isfinite(g));
  }
}

TEMPLATE_TEST_CASE("scores far apart pool to the row with the greatest", "[pool]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::pool_shape shape{.width = 1, .factor = 3, .encoder = smelt::encoder_kind::softmax};
  CHECK(pooled<TestType>(backend, shape, {-3000, 2000, 1000}, {1000}, {}, 3) == std::vector<scalar>{2000});
  CHECK(pooled<TestType>(backend, shape, {-3000, -2000, -1000}, {1000}, {}, 3) == std::vector<scalar>{-1000});
}

TEMPLATE_TEST_CASE("pooling names what is wrong with its arguments", "[pool]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const auto message_of = [&](const smelt::pool_shape& shape, std::size_t x, std::size_t w, std::size_t z,
                              const std::vector<std::int32_t>& first, std::int64_t length) {
    std::vector<scalar> rows(x), weights(w), latents(z);
    try {
      backend.pool(shape, view(rows, 4), view(weights, 4), first, length, view(latents, 4));
    } catch (const smelt::error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  const smelt::pool_shape conv{.width = 4, .factor = 2, .encoder = smelt::encoder_kind::conv};
  CHECK(message_of(conv, 24, 8, 8, {}, 3) == "nothing was thrown");
  CHECK(message_of(conv, 24, 8, 8, {}, 4) == "pool: length is 4, needs a positive divisor of the 6 rows");
  CHECK(message_of(conv, 24, 8, 8, {}, 0) == "pool: length is 0, needs a positive divisor of the 6 rows");
  CHECK(message_of(conv, 24, 8, 12, {}, 3) == "pool: z is [3, 4], needs [2, 4]");
  CHECK(message_of(conv, 24, 12, 8, {}, 3) == "pool: w is [3, 4], needs [2, 4]");
  CHECK(message_of(conv, 24, 8, 8, {0, 0, 0, 3, 3, 2}, 3) == "pool: first[5] is 2, needs 3 to 5");
  CHECK(message_of(conv, 24, 8, 8, {0, 0, 0}, 3) == "pool: first is [3], needs [6]");
  CHECK(message_of({.width = 4, .factor = 0}, 24, 0, 0, {}, 3) == "pool: factor is 0, needs at least 1");
  CHECK(message_of({.width = 4, .factor = 2, .encoder = smelt::encoder_kind::mean}, 24, 4, 8, {}, 3) ==
        "pool: w is [1, 4], needs [0, 4]");
  CHECK(message_of({.width = 4, .factor = 2, .encoder = smelt::encoder_kind::softmax}, 24, 8, 8, {}, 3) ==
        "pool: w is [2, 4], needs [1, 4]");
}
