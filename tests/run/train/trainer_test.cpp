#include <smelt/train/trainer.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/reference/backend.hpp>

#include "catch.hpp"
#include "support/small_specs.hpp"
#include "support/synthetic_text.hpp"
#include "support/temporary_folder.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

namespace {

dataset text(std::uint64_t seed = 3) {
  dataset_builder builder(0.1);
  for (const document& d : smelt_test::synthetic_documents(seed, 200)) builder.add(d);
  return std::move(builder).finish();
}

spec small_model() {
  spec s = smelt_test::tiny;
  s.vocab = 257;
  s.context = 32;
  s.width = 32;
  s.layers = 4;
  s.attention = {.heads = 4, .kv_heads = 2, .head_dim = 8};
  s.experts = {.stored = 8, .active = 2, .hidden = 16, .renormalise = true};
  s.loop = middle_twice;
  return s;
}

train_options quick(std::int64_t steps) {
  return {.tokens = steps * 4 * 32, .length = 32, .sequences = 2, .accumulation = 2, .learning_rate = 1e-2, .seed = 5};
}

using serial = cpu<serial_executor>;
using threaded = cpu<threads_executor>;

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a looped model learns text it can learn", "[train]") {
  const dataset data = text();
  serial backend{serial_executor(1)};
  trainer<dynamic_arch, serial> run(dynamic_arch(small_model()), backend, data, quick(150));
  const auto always = [] { return true; };
  const double before = run.evaluate(0, always).loss();
  CHECK(before == Approx(std::log(257.0)).margin(0.15));
  step_record last;
  while (!run.done()) last = run.advance();
  const evaluation after = run.evaluate(0, always);
  CHECK(after.loss() < 0.5 * before);
  double nats = 0;
  std::int64_t targets = 0;
  for (const loss_sum& category : after.by_category) {
    nats += category.nats;
    targets += category.targets;
  }
  CHECK(targets == after.total.targets);
  CHECK(nats == Approx(after.total.nats).epsilon(1e-6));
  CHECK(last.step == 150);
  CHECK(last.tokens == 150 * 4 * 32);
  CHECK(last.visit_balance.size() == 2);
  CHECK(last.skipped == 0);
  CHECK_THAT(to_json(last).dump(), ContainsSubstring("visit_z"));
}

TEST_CASE("a resumed run has the bits of an uninterrupted one, whatever the threads", "[train]") {
  const dataset data = text();
  spec s = small_model();
  s.experts.balance_bias = true;
  const smelt_test::temporary_folder folder;

  serial one{serial_executor(1)};
  trainer<dynamic_arch, serial> whole(dynamic_arch(s), one, data, quick(12));
  std::vector<double> losses;
  while (!whole.done()) losses.push_back(whole.advance().loss);
  const saved_checkpoint expected = whole.save(run_folder(folder.path() / "whole"), 1);

  threaded three{threads_executor(3)};
  {
    trainer<dynamic_arch, threaded> first(dynamic_arch(s), three, data, quick(12));
    for (std::size_t i = 0; i < 5; ++i) CHECK(first.advance().loss == losses[i]);
    first.save(run_folder(folder.path() / "parts"), 1);
  }
  trainer<dynamic_arch, threaded> second(dynamic_arch(s), three, data, quick(12));
  second.resume(*open_newest_checkpoint(folder.path() / "parts").newest);
  CHECK(second.step() == 5);
  for (std::size_t i = 5; i < 12; ++i) CHECK(second.advance().loss == losses[i]);
  const saved_checkpoint got = second.save(run_folder(folder.path() / "parts"), 1);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    CHECK(bytes_of(got.folder / file) == bytes_of(expected.folder / file));
}

TEST_CASE("a checkpoint of something else is refused with every difference", "[train]") {
  const dataset data = text();
  const smelt_test::temporary_folder folder;
  serial backend{serial_executor(1)};
  trainer<dynamic_arch, serial> run(dynamic_arch(small_model()), backend, data, quick(4));
  run.save(run_folder(folder.path()), 1);
  const found_checkpoint found = open_newest_checkpoint(folder.path());

  train_options other = quick(4);
  other.learning_rate = 0.5;
  other.seed = 6;
  trainer<dynamic_arch, serial> changed(dynamic_arch(small_model()), backend, data, other);
  CHECK_THROWS_WITH(changed.resume(*found.newest), ContainsSubstring("learning_rate") && ContainsSubstring("seed"));

  spec narrower = small_model();
  narrower.experts.stored = 6;
  trainer<dynamic_arch, serial> different(dynamic_arch(narrower), backend, data, quick(4));
  CHECK_THROWS_WITH(different.resume(*found.newest), ContainsSubstring("spec"));

  const dataset more = text(4);
  trainer<dynamic_arch, serial> elsewhere(dynamic_arch(small_model()), backend, more, quick(4));
  CHECK_THROWS_WITH(elsewhere.resume(*found.newest), ContainsSubstring("data"));
}

TEST_CASE("a learning rate of zero changes no bit in spite of weight decay", "[train]") {
  const dataset data = text();
  train_options still = quick(5);
  still.learning_rate = 0;
  serial backend{serial_executor(1)};
  trainer<dynamic_arch, serial> run(dynamic_arch(small_model()), backend, data, still);
  const std::vector<float> before(run.weights().all().begin(), run.weights().all().end());
  while (!run.done()) run.advance();
  CHECK(std::equal(before.begin(), before.end(), run.weights().all().begin()));
}

namespace {

/// The serial CPU backend with a kernel that can be made to write a NaN into a weight's gradient.
class faulty : public serial {
 public:
  faulty() : serial(serial_executor(1)) {}
  bool broken = false;
  template <class Shape>
  void linear_backward_weight(Shape shape, matrix_view<const float> x, matrix_view<const float> dy,
                              matrix_view<float> dw) {
    serial::linear_backward_weight(shape, x, dy, dw);
    if (broken) dw.data[0] = std::numeric_limits<float>::quiet_NaN();
  }
};

}  // namespace

TEST_CASE("a gradient that is not finite changes nothing and is named", "[train]") {
  const dataset data = text();
  faulty backend;
  train_options o = quick(20);
  o.largest_skip_run = 3;
  trainer<dynamic_arch, faulty> run(dynamic_arch(small_model()), backend, data, o);
  run.advance();
  const std::vector<float> before(run.weights().all().begin(), run.weights().all().end());
  backend.broken = true;
  for (int i = 1; i <= 2; ++i) {
    const step_record r = run.advance();
    CHECK(r.skipped == i);
    CHECK(r.not_finite == "layer 0 query");
    CHECK(std::isnan(r.gradient_norm));
  }
  CHECK_THROWS_WITH(run.advance(), ContainsSubstring("not finite") && ContainsSubstring("step 4"));
  CHECK(std::equal(before.begin(), before.end(), run.weights().all().begin()));
}

TEST_CASE("the norm of all gradients does not overflow and names what is not finite", "[train]") {
  reference<float> backend;
  const spec s = smelt_test::tiny;
  weight_buffer<float> g(s);
  CHECK(norm_of(backend, g).norm == 0);
  for (std::size_t i = 0; i < 50; ++i) {
    g(weight::embedding).data[i] = 1e20F;
    g(weight::output, 1).data[i % 50] = 1e20F;
  }
  CHECK(norm_of(backend, g).norm == Approx(1e21).epsilon(1e-6));
  g(weight::expert_down, 1).data[3] = std::numeric_limits<float>::infinity();
  CHECK(norm_of(backend, g).not_finite == "layer 1 expert_down");
}

TEST_CASE("learning rates are right at every edge", "[train]") {
  train_options o{.learning_rate = 1.0, .warmup_share = 0.1, .final_share = 0.1};
  CHECK(learning_rate(o, 0, 1) > 0);
  for (const decay_kind decay : {decay_kind::constant, decay_kind::cosine, decay_kind::wsd}) {
    o.decay = decay;
    for (const std::int64_t steps : {1, 2, 3, 10, 100}) {
      for (std::int64_t step = 0; step < steps + 3; ++step) {
        const double rate = learning_rate(o, step, steps);
        CHECK(rate > 0);
        CHECK(rate <= 1.0);
        CHECK(std::isfinite(rate));
      }
      CHECK(learning_rate(o, steps + 5, steps) == learning_rate(o, steps - 1, steps));
    }
    if (decay != decay_kind::constant) CHECK(learning_rate(o, 99, 100) == Approx(0.1));
    for (std::int64_t step = 0; step < 9; ++step) CHECK(learning_rate(o, step, 100) < learning_rate(o, step + 1, 100));
  }
  o.decay = decay_kind::wsd;
  CHECK(learning_rate(o, 50, 100) == 1.0);
  CHECK(learning_rate(o, 79, 100) == 1.0);
  CHECK(learning_rate(o, 80, 100) < 1.0);
}

TEST_CASE("options outside their domain are named with the value", "[train]") {
  CHECK_THROWS_WITH(validate(train_options{.tokens = 0}), ContainsSubstring("tokens") && ContainsSubstring("found 0"));
  CHECK_THROWS_WITH(validate(train_options{.learning_rate = std::nan("")}), ContainsSubstring("learning_rate"));
  CHECK_THROWS_WITH(validate(train_options{.beta2 = 1.0}), ContainsSubstring("beta2"));
  CHECK_THROWS_WITH(validate(train_options{.accumulation = -1}), ContainsSubstring("accumulation"));
}
