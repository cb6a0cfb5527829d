// Does every token receive what its latent gives it, once the latent exists, and nothing of another document's?
#include "support/backends.hpp"

#include "catch.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <smelt/kernels/shapes.hpp>
#include <string>
#include <vector>

namespace {

template <class S>
smelt::matrix_view<S> view(std::vector<S>& values, std::int64_t cols) {
  return {values.data(), cols == 0 ? 0 : static_cast<std::int64_t>(values.size()) / cols, cols};
}

smelt::write_back_shape shape_of(int width, int factor, smelt::writeback_kind kind) {
  return {.width = width, .factor = factor, .writeback = kind};
}

template <class B, class S = typename B::scalar>
std::vector<S> written(B& backend, const smelt::write_back_shape& shape, std::vector<S> h, std::vector<S> d,
                       std::vector<S> w, const std::vector<std::int32_t>& first, std::int64_t begin,
                       std::int64_t length) {
  std::vector<S> out(h.size(), std::numeric_limits<S>::quiet_NaN());
  const bool numbers = shape.writeback == smelt::writeback_kind::scalar;
  backend.write_back(shape, view(h, shape.width), view(d, shape.width), view(w, numbers ? shape.factor : shape.width),
                     first, begin, length, view(out, shape.width));
  return out;
}

template <class S>
std::vector<S> normal(std::int64_t size, std::uint64_t stream) {
  std::vector<S> values;
  const smelt::random_stream random(71, stream);
  for (std::int64_t i = 0; i < size; ++i)
    values.push_back(static_cast<S>(random.normal(static_cast<std::uint64_t>(i))));
  return values;
}

}  // namespace

TEMPLATE_TEST_CASE("a latent's receivers begin with its chunk's last token", "[write_back]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  // Two sequences of seven: latents of tokens 1 2 3 and 4 5 6 (counted from 1) are received by 3 4 5 and 6 7.
  const std::vector<scalar> h(14, scalar{0.5}), d{10, 20, 30, 40};
  const auto direct = shape_of(1, 3, smelt::writeback_kind::direct);
  CHECK(written(backend, direct, h, d, {}, {}, 0, 7) ==
        std::vector<scalar>{0.5, 0.5, 10.5, 10.5, 10.5, 20.5, 20.5, 0.5, 0.5, 30.5, 30.5, 30.5, 40.5, 40.5});
  const auto scaled = shape_of(1, 3, smelt::writeback_kind::scaled);
  CHECK(written(backend, scaled, h, d, {1, 2, 4}, {}, 0, 7) ==
        std::vector<scalar>{0.5, 0.5, 10.5, 20.5, 40.5, 20.5, 40.5, 0.5, 0.5, 30.5, 60.5, 120.5, 40.5, 80.5});
  const auto scalar_kind = shape_of(1, 3, smelt::writeback_kind::scalar);
  CHECK(written(backend, scalar_kind, h, d, {1, 2, 4}, {}, 0, 7) ==
        written(backend, scaled, h, d, {1, 2, 4}, {}, 0, 7));
  // Without a whole chunk nothing is received.
  CHECK(written(backend, direct, {1, 2}, {}, {}, {}, 0, 2) == std::vector<scalar>{1, 2});
}

TEMPLATE_TEST_CASE("normalised coefficients have a root mean square of 1, whatever the size of the weights",
                   "[write_back]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const auto shape = shape_of(2, 2, smelt::writeback_kind::normalised);
  for (const double size : {1.0, 1e-3, 1e4}) {
    const auto s = static_cast<scalar>(size);
    const std::vector<scalar> out =
        written(backend, shape, {0, 0, 0, 0, 0, 0}, {1, 1}, {3 * s, 4 * s, 2 * s, -2 * s}, {}, 0, 3);
    const double rms = std::sqrt((9 + 16) / 2.0);
    CHECK(double(out[2]) == Approx(3 / rms).epsilon(1e-5));
    CHECK(double(out[3]) == Approx(4 / rms).epsilon(1e-5));
    CHECK(double(out[4]) == Approx(1).epsilon(1e-5));
    CHECK(double(out[5]) == Approx(-1).epsilon(1e-5));
  }
  // Weights of 0 give nothing, not NaN.
  CHECK(written(backend, shape, {5, 6, 7, 8}, {1, 1}, {0, 0, 0, 0}, {}, 0, 2) == std::vector<scalar>{5, 6, 7, 8});
}

TEMPLATE_TEST_CASE("a later document receives nothing of a latent, whatever it holds", "[write_back]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const scalar nan = std::numeric_limits<scalar>::quiet_NaN();
  // Chunks {0, 1, 2} and {3, 4, 5}; the second document begins at 3, behind the first latent's last token.
  const std::vector<std::int32_t> first{0, 0, 0, 3, 3, 3, 3};
  const std::vector<scalar> h{1, 2, 3, 4, 5, 6, 7};
  const auto shape = shape_of(1, 3, smelt::writeback_kind::direct);
  const std::vector<scalar> out = written(backend, shape, h, {nan, 10}, {}, first, 0, 7);
  CHECK(std::isnan(out[2]));
  for (const int t : {0, 1, 3, 4}) CHECK(out[t] == h[t]);
  CHECK(out[5] == 16);
  CHECK(out[6] == 17);
  // Nor does it pull at it.
  for (const auto kind :
       {smelt::writeback_kind::direct, smelt::writeback_kind::scaled, smelt::writeback_kind::scalar}) {
    std::vector<scalar> d{1, 10}, dd(2, nan), dout{nan, nan, 1, nan, nan, 2, 3};
    std::vector<scalar> w(kind == smelt::writeback_kind::direct ? 0 : 3, scalar{1}), dw(w.size());
    const std::int64_t cols = kind == smelt::writeback_kind::scalar ? 3 : 1;
    backend.write_back_backward(shape_of(1, 3, kind), view(d, 1), view(w, cols), first, 7, view(dout, 1), view(dd, 1),
                                view(dw, cols));
    CHECK(dd == std::vector<scalar>{1, 5});
    if (!dw.empty()) CHECK(dw == std::vector<scalar>{21, 30, 0});
  }
}

TEMPLATE_TEST_CASE("tokens that go on with a sequence receive the bits that they receive in the whole", "[write_back]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const int width = 21;
  const std::int64_t length = 23;
  for (const int factor : {1, 2, 3, 4, 40}) {
    for (const auto kind : {smelt::writeback_kind::direct, smelt::writeback_kind::scaled, smelt::writeback_kind::scalar,
                            smelt::writeback_kind::normalised}) {
      const smelt::write_back_shape shape = shape_of(width, factor, kind);
      const std::vector<scalar> h = normal<scalar>(length * width, 1), d = normal<scalar>(length / factor * width, 2);
      const std::vector<scalar> w = normal<scalar>(kind == smelt::writeback_kind::direct   ? 0
                                                   : kind == smelt::writeback_kind::scalar ? factor
                                                                                           : factor * width,
                                                   3);
      const std::vector<scalar> whole = written(backend, shape, h, d, w, {}, 0, length);
      for (std::int64_t begin = 1; begin < length; ++begin) {
        for (const std::int64_t count : {std::int64_t{1}, length - begin}) {
          const std::vector<scalar> part(h.begin() + begin * width, h.begin() + (begin + count) * width);
          const std::vector<scalar> known(d.begin(), d.begin() + (begin + count) / factor * width);
          const std::vector<scalar> out = written(backend, shape, part, known, w, {}, begin, count);
          INFO("factor " << factor << ", " << count << " tokens from " << begin);
          CHECK(out == std::vector<scalar>(whole.begin() + begin * width, whole.begin() + (begin + count) * width));
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("writing back names what is wrong with its arguments", "[write_back]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const auto message_of = [&](const smelt::write_back_shape& shape, std::size_t d, std::size_t w,
                              const std::vector<std::int32_t>& first, std::int64_t begin, std::int64_t length) {
    std::vector<scalar> rows(24), increments(d), weights(w), out(24);
    try {
      backend.write_back(shape, view(rows, 4), view(increments, 4), view(weights, 4), first, begin, length,
                         view(out, 4));
    } catch (const smelt::error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  const auto scaled = shape_of(4, 2, smelt::writeback_kind::scaled);
  CHECK(message_of(scaled, 8, 8, {}, 0, 3) == "nothing was thrown");
  CHECK(message_of(scaled, 16, 8, {}, 1, 3) == "nothing was thrown");
  CHECK(message_of(scaled, 16, 8, {}, 0, 3) == "write_back: d is [4, 4], needs [2, 4]");
  CHECK(message_of(scaled, 8, 8, {}, -1, 3) == "write_back: begin is -1, needs at least 0");
  CHECK(message_of(scaled, 8, 8, {}, 0, 4) == "write_back: length is 4, needs a positive divisor of the 6 rows");
  CHECK(message_of(scaled, 8, 12, {}, 0, 3) == "write_back: w is [3, 4], needs [2, 4]");
  CHECK(message_of(scaled, 16, 8, {0, 0, 0, 3, 3, 3}, 1, 3) ==
        "write_back: begin is 1, needs 0 where there are documents (first is not empty)");
  CHECK(message_of(shape_of(4, 2, smelt::writeback_kind::direct), 8, 8, {}, 0, 3) ==
        "write_back: w is [2, 4], needs [0, 4]");
  CHECK(message_of(shape_of(4, 2, smelt::writeback_kind::scalar), 8, 8, {}, 0, 3) ==
        "write_back: w is [2, 4], needs [1, 2]");
}

TEMPLATE_TEST_CASE("sums of products and differences refuse sizes that differ", "[dot][difference]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  std::vector<scalar> a(6, scalar{2}), b(5, scalar{3}), out(6);
  CHECK_THROWS_WITH(backend.dot(a, b), "dot: b is [5], needs [6]");
  CHECK_THROWS_WITH(backend.difference(view(a, 3), view(b, 5), view(out, 3)), "difference: b is [1, 5], needs [2, 3]");
  CHECK_THROWS_WITH(backend.difference(view(a, 3), view(a, 3), view(out, 2)),
                    "difference: out is [3, 2], needs [2, 3]");
  CHECK(backend.dot(a, a) == 24);
  CHECK(backend.dot(std::vector<scalar>(), std::vector<scalar>()) == 0);
}
