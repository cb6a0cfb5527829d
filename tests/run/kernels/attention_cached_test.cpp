// Does a token that goes on with a sequence see what it may, and nothing else?
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/backends.hpp"
#include "support/op_table.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr attention_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr std::int64_t width = 32, kv = 16;

template <class S>
struct cached_arguments {
  std::vector<S> q, k, v, out;
  std::int64_t queries, keys;
  cached_arguments(std::int64_t queries_, std::int64_t keys_) : queries(queries_), keys(keys_) {
    const auto fill = [](std::vector<S>& to, std::int64_t size, std::uint64_t stream) {
      const std::vector<double> numbers = test::normal_numbers(size, stream);
      to.assign(numbers.begin(), numbers.end());
    };
    fill(q, queries * width, 1);
    fill(k, keys * kv, 2);
    fill(v, keys * kv, 3);
    out.assign(q.size(), S(7));
  }
  template <class B>
  void run(B& b, std::int64_t window) {
    b.attention_cached(shape, matrix_view<const S>(q.data(), queries, width), matrix_view<const S>(k.data(), keys, kv),
                       matrix_view<const S>(v.data(), keys, kv), window, matrix_view<S>(out.data(), queries, width));
  }
};

}  // namespace

TEMPLATE_TEST_CASE("keys that a query does not see cannot matter, whatever they hold", "[kernels][attention_cached]",
                   SMELT_HOST_BACKENDS) {
  using S = typename TestType::scalar;
  auto b = test::make_backend<TestType>();
  // Few queries and many, the whole sequence and a window.
  for (const auto& [queries, keys, window] : std::vector<std::array<std::int64_t, 3>>{
           {1, 40, 9}, {3, 40, 9}, {30, 70, 0}, {30, 70, 12}, {70, 70, 0}, {40, 300, 150}}) {
    INFO(queries << " queries, " << keys << " keys, window " << window);
    cached_arguments<S> clean(queries, keys);
    clean.run(b, window);
    // The first query's window, and what the last query alone sees.
    const std::int64_t first = window > 0 ? keys - queries + 1 - window : 0;
    cached_arguments<S> poisoned(queries, keys);
    for (const S bad : {std::numeric_limits<S>::quiet_NaN(), std::numeric_limits<S>::infinity()}) {
      for (std::int64_t i = 0; i < keys * kv; ++i) {
        const std::int64_t key = i / kv;
        if (key < first || (queries > 1 && key == keys - 1)) poisoned.k[i] = poisoned.v[i] = bad;
      }
      poisoned.run(b, window);
      const std::int64_t unharmed = queries > 1 ? queries - 1 : 1;
      for (std::int64_t i = 0; i < unharmed * width; ++i)
        REQUIRE(double(poisoned.out[i]) == Approx(double(clean.out[i])).epsilon(1e-4).margin(1e-5));
    }
    if (queries > 1) CHECK(std::isnan(poisoned.out.back()));
  }
}

TEMPLATE_TEST_CASE("arguments that do not fit are refused by name", "[kernels][attention_cached]",
                   SMELT_HOST_BACKENDS) {
  using S = typename TestType::scalar;
  auto b = test::make_backend<TestType>();
  CHECK_THROWS_WITH(cached_arguments<S>(5, 4).run(b, 0),
                    ContainsSubstring("attention_cached: rows of k is 4, needs at least 5"));
  CHECK_THROWS_WITH(cached_arguments<S>(1, 4).run(b, -1), ContainsSubstring("attention_cached: window is -1"));
  cached_arguments<S> a(2, 4);
  const matrix_view<const S> q(a.q.data(), 2, width), k(a.k.data(), 4, kv), v(a.v.data(), 3, kv);
  const matrix_view<S> out(a.out.data(), 2, width);
  CHECK_THROWS_WITH(b.attention_cached(shape, q, k, v, 0, out), ContainsSubstring("attention_cached: v is [3, 16]"));
  const attention_shape uneven{.heads = 4, .kv_heads = 3, .head_dim = 8};
  CHECK_THROWS_WITH(b.attention_cached(uneven, q, k, k, 0, out),
                    ContainsSubstring("needs a multiple of the 3 kv_heads"));
  cached_arguments<S> none(0, 4);
  none.run(b, 0);
}
