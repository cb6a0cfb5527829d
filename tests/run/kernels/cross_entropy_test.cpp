// Does the loss stay inside the vocabulary? Padding rows of the table are never read.
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/reference/backend.hpp>

#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <smelt/core/random.hpp>
#include <span>
#include <vector>

using namespace smelt;

namespace {

template <class Scalar>
struct loss_of {
  loss_sum sum;
  std::vector<Scalar> losses, logsumexp, dx, dtable;
};

template <class B, class Scalar = typename B::scalar>
loss_of<Scalar> run(B& backend, const head_shape& s, const std::vector<Scalar>& x, const std::vector<Scalar>& table,
                    const std::vector<std::int32_t>& targets) {
  const auto tokens = static_cast<std::int64_t>(targets.size());
  const auto rows = static_cast<std::int64_t>(table.size()) / s.width;
  const matrix_view<const Scalar> xs(x.data(), tokens, s.width), ts(table.data(), rows, s.width);
  loss_of<Scalar> r;
  r.losses.resize(targets.size());
  r.logsumexp.resize(targets.size());
  r.dx.resize(x.size());
  r.dtable.resize(table.size());
  r.sum = backend.cross_entropy(s, xs, ts, targets, r.losses, r.logsumexp);
  backend.cross_entropy_backward(s, xs, ts, targets, r.logsumexp, 0.5,
                                 matrix_view<Scalar>(r.dx.data(), tokens, s.width),
                                 matrix_view<Scalar>(r.dtable.data(), rows, s.width));
  return r;
}

template <class F>
void on_every_backend(F&& f) {
  reference<double> exact;
  reference<float> plain;
  cpu<serial_executor> serial{serial_executor()};
  f(exact);
  f(plain);
  f(serial);
}

template <class Scalar>
std::vector<Scalar> numbers(std::int64_t n, std::uint64_t stream) {
  const random_stream random(41, stream);
  std::vector<Scalar> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Scalar>(random.normal(i));
  return values;
}

}  // namespace

TEST_CASE("rows behind the vocabulary enter neither the loss nor a gradient", "[cross_entropy]") {
  on_every_backend([](auto& backend) {
    using scalar = typename std::decay_t<decltype(backend)>::scalar;
    // 47 rows of padding, as 50,257 tokens padded to 50,304 have; small and larger than a chunk of the vocabulary.
    for (const int vocab : {1, 17, 257, 1'100}) {
      const head_shape s{.width = 12, .vocab = vocab};
      const std::int64_t tokens = 9;
      const auto x = numbers<scalar>(tokens * s.width, 1);
      const auto table = numbers<scalar>(std::int64_t{vocab} * s.width, 2);
      std::vector<std::int32_t> targets;
      for (std::int32_t t = 0; t < tokens; ++t) targets.push_back(t == 4 ? -1 : (t * 37) % vocab);
      const auto plain = run(backend, s, x, table, targets);
      for (const scalar filling : {scalar(1e4), std::numeric_limits<scalar>::quiet_NaN()}) {
        auto padded_table = table;
        padded_table.resize(table.size() + std::size_t{47} * 12, filling);
        const auto padded = run(backend, s, x, padded_table, targets);
        CHECK(padded.sum.nats == plain.sum.nats);
        CHECK(padded.sum.targets == 8);
        CHECK(padded.losses == plain.losses);
        CHECK(padded.logsumexp == plain.logsumexp);
        CHECK(padded.dx == plain.dx);
        std::vector<scalar> losses(plain.losses.size()), dx(x.size()), dtable(padded_table.size());
        const loss_sum at_once = backend.cross_entropy_with_gradient(
            s, matrix_view<const scalar>(x.data(), tokens, s.width),
            matrix_view<const scalar>(padded_table.data(), vocab + 47, s.width), targets, 0.5, losses,
            matrix_view<scalar>(dx.data(), tokens, s.width), matrix_view<scalar>(dtable.data(), vocab + 47, s.width));
        CHECK(at_once.nats == plain.sum.nats);
        CHECK(losses == plain.losses);
        CHECK(std::all_of(dtable.begin() + vocab * 12, dtable.end(), [](scalar d) { return d == 0; }));
        CHECK(std::equal(plain.dtable.begin(), plain.dtable.end(), padded.dtable.begin()));
        for (std::size_t i = table.size(); i < padded_table.size(); ++i) REQUIRE(padded.dtable[i] == 0);
      }
    }
    // Equal logits: the loss is the log of the vocabulary, not of the table.
    const head_shape s{.width = 2, .vocab = 250};
    const auto uniform = run(backend, s, std::vector<scalar>(2), std::vector<scalar>(512), {3});
    CHECK(double(uniform.losses[0]) == Approx(std::log(250.0)).epsilon(1e-6));
  });
}
