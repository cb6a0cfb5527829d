// Does every op find its arrays updated, whatever is left of a deferred update and whoever works on it?
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/cpu/tbb_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/policy/cpu_tasks.hpp>
#include <smelt/kernels/timed_backend.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/op_table.hpp"
#include "support/update_last.hpp"

using namespace smelt;
using smelt_test::update_last;

namespace {

template <class Scalar>
bool same_bits(const std::vector<Scalar>& a, const std::vector<Scalar>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Scalar)) == 0);
}

bool same_bits(const test::arrays<float>& a, const test::arrays<float>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return same_bits(x, y); });
}

/// The arrays that an update moves, and the update of all their elements.
struct moved_arrays {
  std::vector<float> gradient, weight, first, second;
  std::vector<parameter_range> all;

  explicit moved_arrays(std::int64_t size)
      : gradient(test::rounded<float>({test::normal_numbers(size, 51, 0.1)})[0]),
        weight(test::rounded<float>({test::normal_numbers(size, 52)})[0]),
        first(static_cast<std::size_t>(size), 0.01F),
        second(static_cast<std::size_t>(size), 0.02F),
        all{{0, size, true}} {}
  friend bool operator==(const moved_arrays&, const moved_arrays&) = default;
};

constexpr adamw_step numbers{.learning_rate = 0.02, .weight_decay = 0.1, .step = 3};

template <class B>
void defer(B& backend, moved_arrays& of) {
  backend.adamw_deferred(numbers, of.all, of.gradient, of.weight, of.first, of.second);
}

/// What a case finds when input `n` and the gradient that its backward pass adds to have just been updated, before its
/// forward pass or between the passes.
template <class Case>
test::arrays<float> run_updated(const Case& c, cpu<update_last>& backend, std::size_t n, bool deferred, bool between) {
  using backend_type = cpu<update_last>;
  test::arrays<float> in = test::rounded_inputs<float>(c);
  test::arrays<float> out = test::empty_outputs<float>(c);
  test::arrays<float> dout = test::rounded<float>(test::output_gradients(c));
  test::arrays<float> din = test::rounded<float>(test::gradients_before(c));
  moved_arrays moments(static_cast<std::int64_t>(in[n].size()));
  std::vector<float>& gradient = c.inputs[n].kind == test::gradient::adds ? din[n] : moments.gradient;
  const auto update = [&] {
    if (deferred)
      backend.adamw_deferred(numbers, moments.all, gradient, in[n], moments.first, moments.second);
    else
      backend.adamw(numbers, moments.all, gradient, in[n], moments.first, moments.second);
  };
  if (!between) update();
  c.forward(backend, in, out);
  if (between) update();
  if constexpr (test::has_backward<Case, backend_type>) c.backward(backend, in, out, dout, din);
  backend.settle(in[n]);
  test::arrays<float> all = std::move(in);
  for (test::arrays<float>* more : {&out, &din}) all.insert(all.end(), more->begin(), more->end());
  all.push_back(moments.first);
  return all;
}

template <class Executor>
void check_pieces(Executor executor, const char* name) {
  INFO(name);
  cpu<Executor> backend{std::move(executor)};
  constexpr std::int64_t piece = policy::update_elements;
  cpu<serial_executor> serial{serial_executor()};
  const std::vector<float> other(300'000, 0.5F);
  for (const std::int64_t size : {std::int64_t{1}, piece - 1, piece, 5 * piece + 17}) {
    moved_arrays expected(size), found(size);
    // A gap in the middle, and one before.
    for (moved_arrays* m : {&expected, &found})
      m->all = {{size / 5, size / 3 - size / 5, true}, {size / 2, size - size / 2, false}};
    serial.adamw(numbers, expected.all, expected.gradient, expected.weight, expected.first, expected.second);
    defer(backend, found);
    // Parts on demand, some twice, others in the shadow of ops, and the rest.
    backend.settle(std::span(found.weight).subspan(static_cast<std::size_t>(size / 2)).first(1));
    CHECK(found.weight[static_cast<std::size_t>(size / 2)] == expected.weight[static_cast<std::size_t>(size / 2)]);
    CHECK(backend.dot(other, other) == serial.dot(other, other));
    backend.settle(std::span(found.second).last(1));
    CHECK(found.first.back() == expected.first.back());
    CHECK(backend.norm(other) == serial.norm(other));
    CHECK(backend.norm(found.gradient) == serial.norm(expected.gradient));
    backend.settle(found.weight);
    CHECK(found == expected);
  }
}

}  // namespace

TEST_CASE("every op finds what was deferred of its arrays done", "[ops][deferred]") {
  cpu<update_last> backend{update_last{}};
  test::for_each_case([&](const auto& c) {
    // Cases that copy an array for the op to work in it read that array themselves.
    if (c.forward_flops > 3e6 || c.op == "adamw" || c.op == "muon" || c.variant.find("_in_") != std::string::npos)
      return;
    for (std::size_t n = 0; n < c.inputs.size(); ++n) {
      if (c.inputs[n].name == "dtable before") continue;
      for (const bool between : {false, true}) {
        INFO(c.op << " " << c.variant << ", " << c.inputs[n].name << (between ? " between the passes" : ""));
        const auto expected = run_updated(c, backend, n, false, between);
        CHECK(same_bits(run_updated(c, backend, n, true, between), expected));
      }
    }
  });
}

TEST_CASE("updates follow each other, whatever is left of the one before", "[ops][deferred]") {
  cpu<update_last> backend{update_last{}};
  cpu<serial_executor> serial{serial_executor()};
  const std::int64_t size = 3 * policy::update_elements;
  moved_arrays expected(size), found(size);
  const matrix_range matrices[] = {{0, 40, 60}, {size - 600, 30, 20}};
  for (int step = 0; step < 2; ++step) {
    serial.adamw(numbers, expected.all, expected.gradient, expected.weight, expected.first, expected.second);
    defer(backend, found);
  }
  serial.muon({.learning_rate = 0.1}, matrices, expected.gradient, expected.weight, expected.first);
  backend.muon({.learning_rate = 0.1}, matrices, found.gradient, found.weight, found.first);
  CHECK(found == expected);
}

TEST_CASE("pieces of an update are done once, on demand or beside ops", "[ops][deferred][threads]") {
  check_pieces(serial_executor(), "one thread");
  check_pieces(update_last{}, "the update last");
  for (const int threads : {1, 2, 3, 7}) check_pieces(threads_executor(threads), "threads");
#if defined(SMELT_TBB_EXECUTOR)
  check_pieces(tbb_executor(2), "oneTBB");
#endif
}

TEST_CASE("one thread updates at once, as do a clocked backend that is not told otherwise, and a second update",
          "[ops][deferred]") {
  const moved_arrays before(100'000);
  moved_arrays expected = before;
  cpu<serial_executor> serial{serial_executor()};
  defer(serial, expected);
  CHECK(expected != before);

  cpu<update_last> two{update_last{}};
  moved_arrays found = before;
  timed<cpu<update_last>> clocked(two);
  defer(clocked, found);
  CHECK(found == expected);
  CHECK(clocked.times().front().op == "adamw");

  found = before;
  timed<cpu<update_last>> not_in_the_way(two, update_time::deferred);
  defer(not_in_the_way, found);
  CHECK(found == before);
  moved_arrays more(1000);
  defer(not_in_the_way, more);
  CHECK(found == expected);
  two.settle(more.weight);
  CHECK(more != moved_arrays(1000));
}

TEST_CASE("tasks that throw leave an update to be done", "[ops][deferred][threads]") {
  cpu_ops::context context{cpu_ops::any_executor(threads_executor(3))};
  moved_arrays of(200'000);
  const std::vector<float> before = of.weight;
  for (int round = 1; round <= 20; ++round) {
    context.defer({.ranges = of.all, .arrays = {of.gradient, of.weight, of.first, of.second}},
                  [](const cpu_ops::adamw_update& update, std::int64_t first, std::int64_t last) {
                    for (std::int64_t i = first; i < last; ++i) update.arrays[0][i] += 1.0F;
                  });
    for (int i = 0; i < 3; ++i) {
      CHECK_THROWS_AS(context.for_each(20,
                                       [](std::int64_t task) {
                                         if (task % 7 == 3) throw std::runtime_error("task");
                                       }),
                      std::runtime_error);
    }
    context.settle();
    CHECK(!context.has_update());
  }
  CHECK(of.weight == before);
  const moved_arrays once(200'000);
  for (std::size_t i = 0; i < before.size(); i += 997) {
    float expected = once.gradient[i];
    for (int round = 0; round < 20; ++round) expected += 1.0F;
    CHECK(of.gradient[i] == expected);
  }
}
