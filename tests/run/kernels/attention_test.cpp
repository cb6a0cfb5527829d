// Does attention keep the future out, whatever the scores and whatever lies there?
#include "support/backends.hpp"

#include "catch.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <string>
#include <vector>

namespace {

template <class B>
struct attended {
  using scalar = typename B::scalar;
  smelt::attention_shape shape;
  std::int64_t rows;
  std::vector<scalar> q, k, v, out, lse;
  std::vector<std::int32_t> first;

  attended(const smelt::attention_shape& shape_, std::int64_t rows_) : shape(shape_), rows(rows_) {
    const auto fill = [this](std::vector<scalar>& to, std::int64_t heads, std::uint64_t stream) {
      const smelt::random_stream random(21, stream);
      to.resize(static_cast<std::size_t>(rows * heads * shape.head_dim));
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<scalar>(random.normal(i));
    };
    fill(q, shape.heads, 1);
    fill(k, shape.kv_heads, 2);
    fill(v, shape.kv_heads, 3);
    first.assign(static_cast<std::size_t>(rows), 0);
  }

  smelt::matrix_view<scalar> view(std::vector<scalar>& a) const {
    const auto size = static_cast<std::int64_t>(a.size());
    return {a.data(), rows, size / rows};
  }

  void run(B& backend) {
    out.assign(q.size(), std::numeric_limits<scalar>::quiet_NaN());
    lse.assign(static_cast<std::size_t>(rows * shape.heads), std::numeric_limits<scalar>::quiet_NaN());
    backend.attention(shape, view(q), view(k), view(v), first, rows, view(out), lse);
  }
};

}  // namespace

TEMPLATE_TEST_CASE("NaN in a future key or value does not touch earlier rows", "[attention]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  const smelt::attention_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 16};
  TestType backend = smelt::test::make_backend<TestType>();
  for (const std::int64_t broken : {std::int64_t{5}, std::int64_t{40}, std::int64_t{69}}) {
    attended<TestType> clean(shape, 70);
    clean.run(backend);
    attended<TestType> dirty(shape, 70);
    const std::int64_t width = shape.kv_heads * shape.head_dim;
    for (std::int64_t i = 0; i < width; ++i) {
      dirty.k[broken * width + i] = std::numeric_limits<scalar>::quiet_NaN();
      dirty.v[broken * width + i] =
          i % 2 == 0 ? std::numeric_limits<scalar>::quiet_NaN() : std::numeric_limits<scalar>::infinity();
    }
    dirty.run(backend);
    const std::int64_t out_width = shape.heads * shape.head_dim;
    for (std::int64_t i = 0; i < broken * out_width; ++i) {
      REQUIRE(double(dirty.out[i]) == Approx(double(clean.out[i])).margin(1e-5));
    }
    // And it is not hidden either: rows that see it are not finite.
    CHECK_FALSE(std::isfinite(double(dirty.out[broken * out_width])));
  }
}

TEMPLATE_TEST_CASE("a masked key gets no weight however low the visible scores are", "[attention]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  const smelt::attention_shape shape{.heads = 1, .kv_heads = 1, .head_dim = 4};
  TestType backend = smelt::test::make_backend<TestType>();
  attended<TestType> a(shape, 8);
  // Scores of -20,000 for the past, +20,000 for the future.
  for (std::int64_t t = 0; t < 8; ++t) {
    for (std::int64_t i = 0; i < 4; ++i) {
      a.q[t * 4 + i] = scalar{100};
      a.k[t * 4 + i] = t < 4 ? scalar{-100} : scalar{100};
      a.v[t * 4 + i] = t < 4 ? scalar{1} : scalar{1000};
    }
  }
  a.run(backend);
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t i = 0; i < 4; ++i) CHECK(double(a.out[t * 4 + i]) == Approx(1.0).epsilon(1e-6));
    CHECK(double(a.lse[t]) == Approx(-20'000 + std::log(double(t + 1))).epsilon(1e-6));
  }
}

TEMPLATE_TEST_CASE("documents in one sequence do not see each other", "[attention]", SMELT_HOST_BACKENDS) {
  const smelt::attention_shape shape{.heads = 2, .kv_heads = 1, .head_dim = 8};
  TestType backend = smelt::test::make_backend<TestType>();
  attended<TestType> a(shape, 50);
  for (std::int64_t t = 30; t < 50; ++t) a.first[t] = 30;
  a.run(backend);
  attended<TestType> b = a;
  for (std::int64_t i = 0; i < 30 * 8; ++i) b.k[i] = b.v[i] = 7;
  b.run(backend);
  for (std::int64_t i = 30 * 16; i < 50 * 16; ++i) REQUIRE(double(b.out[i]) == Approx(double(a.out[i])).margin(1e-6));
  CHECK(a.out[0] != b.out[0]);
}

TEMPLATE_TEST_CASE("attention names what is wrong with its arguments", "[attention]", SMELT_HOST_BACKENDS) {
  TestType backend = smelt::test::make_backend<TestType>();
  const auto message_of = [&](auto change) {
    attended<TestType> a({.heads = 2, .kv_heads = 1, .head_dim = 8}, 10);
    change(a);
    try {
      a.run(backend);
    } catch (const smelt::error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  CHECK(message_of([](auto& a) { a.first[4] = 5; }) == "attention: first[4] is 5, needs 0 to 4");
  CHECK(message_of([](auto& a) { a.first[4] = -1; }) == "attention: first[4] is -1, needs 0 to 4");
  CHECK(message_of([](auto& a) { a.first.pop_back(); }) == "attention: first is [9], needs [10]");
  CHECK(message_of([](auto& a) { a.shape.kv_heads = 3; }) ==
        "attention: heads is 2, needs a multiple of the 3 kv_heads");
  CHECK(message_of([](auto& a) { a.v.resize(40); }) == "attention: v is [10, 4], needs [10, 8]");
}

TEMPLATE_TEST_CASE("NaN in another document touches neither rows nor gradients of this one", "[attention]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  const smelt::attention_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 8};
  const std::int64_t rows = 70;
  const std::int64_t width = shape.heads * shape.head_dim;
  const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
  TestType backend = smelt::test::make_backend<TestType>();
  for (const std::int64_t border : {std::int64_t{1}, std::int64_t{16}, std::int64_t{37}, std::int64_t{69}}) {
    INFO("a document begins at " << border);
    attended<TestType> clean(shape, rows);
    for (std::int64_t t = border; t < rows; ++t) clean.first[t] = static_cast<std::int32_t>(border);
    attended<TestType> dirty = clean;
    for (std::int64_t i = 0; i < border * kv_width; ++i) {
      dirty.k[i] = std::numeric_limits<scalar>::infinity();
      dirty.v[i] = std::numeric_limits<scalar>::quiet_NaN();
    }
    const auto gradients = [&](attended<TestType>& a) {
      a.run(backend);
      std::vector<scalar> dout(a.q.size(), scalar{0.25F});
      std::vector<scalar> dq(a.q.size()), dk(a.k.size()), dv(a.v.size());
      backend.attention_backward(shape, a.view(a.q), a.view(a.k), a.view(a.v), a.first, rows, a.view(a.out), a.lse,
                                 a.view(dout), a.view(dq), a.view(dk), a.view(dv));
      return std::vector{a.out, dq, dk, dv};
    };
    const auto expected = gradients(clean);
    const auto found = gradients(dirty);
    for (std::size_t which = 0; which < 4; ++which) {
      const auto begin = static_cast<std::size_t>(border * (which < 2 ? width : kv_width));
      for (std::size_t i = begin; i < found[which].size(); ++i)
        REQUIRE(double(found[which][i]) == Approx(double(expected[which][i])).margin(1e-5));
    }
  }
}
