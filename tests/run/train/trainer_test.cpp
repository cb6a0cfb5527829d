// Does a run learn, go on after an interruption to the bit, and refuse what is not its own?
#include <smelt/train/trainer.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/reference/backend.hpp>

#include "../tools/smelt/allocations.hpp"
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

/// The same with visits that learn: compressed with attention of its own, part of the widths, all of it.
spec with_plans(spec s) {
  s.loop.visits = visit_list{}
                      .then({.residual = {1, 2},
                             .learned = true,
                             .compression = 2,
                             .encoder = encoder_kind::conv,
                             .own_attention = true})
                      .then({.residual = {1, 4}, .active = 1, .expert_hidden = {1, 2}, .stream = {1, 2}})
                      .then({.learned = true});
  return s;
}

train_options quick(std::int64_t steps) {
  return {.tokens = steps * 4 * 32, .length = 32, .sequences = 2, .accumulation = 2, .learning_rate = 1e-2, .seed = 5};
}

/// Pages that the system has had to give this process.
long minor_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
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

TEST_CASE("coefficients are learned from where they start, and every step says what they are", "[train]") {
  const dataset data = text();
  const spec s = with_plans(small_model());
  serial backend{serial_executor(1)};
  trainer<dynamic_arch, serial> run(dynamic_arch(s), backend, data, quick(8));
  const step_record first = run.advance();
  REQUIRE(first.visit_coefficient.size() == 3);
  CHECK(first.visit_coefficient[0] == 0.5);
  CHECK(first.visit_coefficient[1] == 0.25);
  CHECK(first.visit_coefficient[2] == 1);
  step_record last;
  while (!run.done()) last = run.advance();
  CHECK(last.visit_coefficient[0] != 0.5);
  CHECK(last.visit_coefficient[1] == 0.25);
  CHECK(last.visit_coefficient[2] != 1);
  CHECK(std::fabs(last.visit_coefficient[2] - 1) < 0.1);
  CHECK(to_json(last)["visit_coefficient"].size() == 3);
}

TEST_CASE("a resumed run has the bits of an uninterrupted one, whatever the threads", "[train]") {
  const dataset data = text();
  const bool plans = GENERATE(false, true);
  spec s = plans ? with_plans(small_model()) : small_model();
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

TEST_CASE("a run that computes layers again is the run that keeps them, and either goes on with the other", "[train]") {
  const dataset data = text();
  const bool plans = GENERATE(false, true);
  spec s = plans ? with_plans(small_model()) : small_model();
  s.experts.balance_bias = true;
  const smelt_test::temporary_folder folder;
  serial backend{serial_executor(1)};
  trainer<dynamic_arch, serial> keeps(dynamic_arch(s), backend, data, quick(6));
  train_options again = quick(6);
  again.recompute = true;
  trainer<dynamic_arch, serial> computes(dynamic_arch(s), backend, data, again);
  for (int step = 0; step < 3; ++step) CHECK(keeps.advance().loss == computes.advance().loss);
  computes.save(run_folder(folder.path()), 1);
  trainer<dynamic_arch, serial> resumed(dynamic_arch(s), backend, data, quick(6));
  resumed.resume(*open_newest_checkpoint(folder.path()).newest);
  while (!keeps.done()) CHECK(keeps.advance().loss == resumed.advance().loss);
  CHECK(std::ranges::equal(keeps.weights().all(), resumed.weights().all()));
}

TEST_CASE("after its first step a run asks the system for nothing", "[train]") {
  const dataset data = text();
  spec s = small_model();
  s.width = 64;
  s.experts = {.stored = 16, .active = 4, .hidden = 64, .renormalise = true};
  s.experts.balance_bias = true;
  std::vector<compute_type> types{compute_type::fp32};
  if (is_usable(instruction_set::avx512_bf16)) types.push_back(compute_type::bf16);
  const bool plans = GENERATE(false, true);
  if (plans) s = with_plans(s);
  for (const compute_type compute : types) {
    for (const bool recompute : {false, true}) {
      INFO(name_of(compute) << (plans ? " with visit plans" : "") << (recompute ? " computing layers again" : ""));
      threaded backend{threads_executor(2), compute};
      train_options o = quick(30);
      o.sequences = 16;
      o.tokens = 30 * o.step_tokens();
      o.recompute = recompute;
      trainer<dynamic_arch, threaded> run(dynamic_arch(s), backend, data, o);
      static_cast<void>(run.advance());
      const std::int64_t before = smelt::tool::allocations();
      const long faults = minor_faults();
      for (int step = 2; step <= 5; ++step) REQUIRE(run.advance().not_finite.empty());
      CHECK(smelt::tool::allocations() == before);
      CHECK(minor_faults() - faults < 4 * 100);
    }
  }
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

/// A backend with a kernel that can be made to write a NaN into a weight's gradient.
template <class Base>
class faulty_backend : public Base {
 public:
  using Base::Base;
  bool broken = false;
  template <class Shape>
  void linear_backward_weight(Shape shape, double scale, matrix_view<const float> x, matrix_view<const float> dy,
                              matrix_view<float> dw) {
    Base::linear_backward_weight(shape, scale, x, dy, dw);
    if (broken) dw.data[0] = std::numeric_limits<float>::quiet_NaN();
  }
};

using faulty = faulty_backend<serial>;

}  // namespace

TEST_CASE("a gradient that is not finite changes nothing and is named", "[train]") {
  const dataset data = text();
  faulty backend{serial_executor(1)};
  train_options o = quick(20);
  o.largest_skip_run = 3;
  trainer<dynamic_arch, faulty> run(dynamic_arch(small_model()), backend, data, o);
  run.advance();
  const std::vector<float> before(run.weights().all().begin(), run.weights().all().end());
  backend.broken = true;
  for (int i = 1; i <= 2; ++i) {
    const step_record r = run.advance();
    CHECK(r.skipped == i);
    CHECK(r.not_finite == "gradient of layer 0 output");
    CHECK(std::isnan(r.gradient_norm));
  }
  // What is thrown leaves the run as it was, however often it is tried.
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_WITH(run.advance(), ContainsSubstring("step 4: the gradient of layer 0 output is not finite") &&
                                         ContainsSubstring("changed no weight: 3") &&
                                         ContainsSubstring("now 0.00972861679)"));
    CHECK(run.step() == 3);
  }
  CHECK(std::equal(before.begin(), before.end(), run.weights().all().begin()));

  // A resumed run remembers how often it has failed in a row.
  const smelt_test::temporary_folder folder;
  run.save(run_folder(folder.path()), 1);
  trainer<dynamic_arch, faulty> resumed(dynamic_arch(small_model()), backend, data, o);
  resumed.resume(*open_newest_checkpoint(folder.path()).newest);
  CHECK_THROWS_WITH(resumed.advance(), ContainsSubstring("changed no weight: 3"));
  backend.broken = false;
  CHECK(resumed.advance().skipped == 2);
  backend.broken = true;
  for (int i = 3; i <= 4; ++i) CHECK(resumed.advance().skipped == i);
  CHECK_THROWS_WITH(resumed.advance(), ContainsSubstring("step 7"));
}

TEST_CASE("a step is AdamW on the mean loss of its targets and the mean losses of its routers", "[train]") {
  const dataset data = text();
  for (const bool masks : {true, false}) {
    spec s = small_model();
    s.layers = 6;
    s.dense_layers = 1;
    s.dense_hidden = 24;
    s.width = 16;
    s.experts.shared_hidden = 8;
    s.experts.balance_bias = true;
    train_options o = quick(20);
    o.accumulation = 3;
    o.tokens = 20 * 3 * 64;
    o.clip = 0.2;
    o.weight_decay = 0.5;
    o.balance = 0.3;
    o.z = 0.2;
    o.balance_bias_step = 0.03;
    o.document_masks = masks;
    using backend_type = faulty_backend<reference<float>>;
    backend_type backend;
    trainer<dynamic_arch, backend_type> run(dynamic_arch(s), backend, data, o);
    language_model<dynamic_arch, backend_type> model(dynamic_arch(s), backend, o.sequences, o.length);

    weight_buffer<float> first(s);
    initialise(first, s, o.seed);
    REQUIRE(std::equal(first.all().begin(), first.all().end(), run.weights().all().begin()));
    weight_buffer<double> m(s), v(s);
    const batch_plan plan{.context = 32, .sequences = 2, .seed = 5, .document_masks = masks};
    const loop_span span = span_of(s);
    std::int64_t updates = 0;
    for (std::int64_t step = 0; step < 4; ++step) {
      INFO("step " << step << (masks ? " with" : " without") << " masks");
      weight_buffer<float> w(s);
      std::copy(run.weights().all().begin(), run.weights().all().end(), w.all().begin());
      if (step == 1) {  // A step that is skipped counts as a step, not as an update.
        backend.broken = true;
        CHECK(run.advance().skipped == 1);
        backend.broken = false;
        CHECK(std::equal(w.all().begin(), w.all().end(), run.weights().all().begin()));
        continue;
      }
      std::vector<batch> batches(3);
      std::vector<std::int64_t> targets;
      for (std::int64_t i = 0; i < 3; ++i) {
        fill_training_batch(data.train, plan, (3 * step + i) * 2, batches[static_cast<std::size_t>(i)]);
        targets.push_back(target_count(batches[static_cast<std::size_t>(i)]));
      }
      const std::int64_t counted = targets[0] + targets[1] + targets[2];
      if (!masks) CHECK(counted == 3 * 64);
      double nats = 0, balance = 0, z = 0;
      std::vector<double> visit_balance(2), visit_z(2);
      std::vector<std::int64_t> selections(static_cast<std::size_t>(s.layers * s.experts.stored));
      weight_buffer<float> g(s);
      for (const batch& b : batches) {
        const forward_result r = model.forward(w, view(b));
        nats += r.cross_entropy.nats;
        balance += r.mean_balance() / 3;
        z += r.mean_z() / 3;
        for (const router_evaluation& e : r.evaluations) {
          if (e.layer < span.first || e.layer >= span.first + span.count) continue;
          visit_balance[static_cast<std::size_t>(e.visit)] += e.losses.balance / (3 * span.count);
          visit_z[static_cast<std::size_t>(e.visit)] += e.losses.z / (3 * span.count);
        }
        for (const executed_layer e : schedule(s))
          for (const std::int32_t id : model.layer(e.index).routed.ids)
            ++selections[static_cast<std::size_t>(e.layer * s.experts.stored + id)];
        model.backward(w, view(b), {1.0 / static_cast<double>(counted), 0.3 / 3, 0.2 / 3}, g);
      }
      double squares = 0;
      g.layout().for_each([&](weight kind, int, const weight_place& p) {
        for (std::int64_t i = p.offset; kind != weight::balance_bias && i < p.offset + p.size(); ++i)
          squares += double(g.all()[static_cast<std::size_t>(i)]) * double(g.all()[static_cast<std::size_t>(i)]);
      });
      const double norm = std::sqrt(squares);
      REQUIRE(norm > 0.2);  // so that the clipping shows

      const step_record record = run.advance();
      ++updates;
      CHECK(record.step == step + 1);
      CHECK(record.tokens == (step + 1) * 3 * 64);
      CHECK(record.flops ==
            Approx(double(flops(s, conventions::smelt, 32).train_per_token) * double((step + 1) * 3 * 64)));
      CHECK(record.loss == Approx(nats / static_cast<double>(counted)));
      CHECK(record.balance == Approx(balance));
      CHECK(record.z == Approx(z));
      CHECK(record.gradient_norm == Approx(norm).epsilon(1e-5));
      CHECK(record.learning_rate == learning_rate(o, step, 20));
      for (std::size_t i = 0; i < 2; ++i) {
        CHECK(record.visit_balance[i] == Approx(visit_balance[i]));
        CHECK(record.visit_z[i] == Approx(visit_z[i]));
      }

      w.layout().for_each([&](weight kind, int layer, const weight_place& p) {
        INFO(describe(s, kind, layer));
        for (std::int64_t at = 0; at < p.size(); ++at) {
          const auto i = static_cast<std::size_t>(p.offset + at);
          const double old = w.all()[i];
          const double found = run.weights().all()[i];
          if (kind == weight::balance_bias) {
            // Against the mean of the layer's selections, over all its visits.
            const std::size_t row = static_cast<std::size_t>(layer * s.experts.stored);
            std::int64_t sum = 0;
            for (std::size_t e = 0; e < 8; ++e) sum += selections[row + e];
            const std::int64_t excess = 8 * selections[row + static_cast<std::size_t>(at)] - sum;
            if (excess != 0) REQUIRE(found == Approx(old + (excess < 0 ? 0.03 : -0.03)).margin(1e-6));
            continue;
          }
          const double gradient = double(g.all()[i]) * 0.2 / norm;
          m.all()[i] = 0.9 * m.all()[i] + 0.1 * gradient;
          v.all()[i] = 0.95 * v.all()[i] + 0.05 * gradient * gradient;
          const double t = static_cast<double>(updates);
          const double direction =
              m.all()[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v.all()[i] / (1 - std::pow(0.95, t))) + 1e-8);
          const double decay = p.rows > 1 ? 0.5 * old : 0.0;
          REQUIRE(found == Approx(old - record.learning_rate * (direction + decay)).margin(2e-6));
        }
      });
    }
  }
}

TEST_CASE("every option that decides the numbers is compared at resume", "[train]") {
  const dataset data = text();
  const smelt_test::temporary_folder folder;
  serial backend{serial_executor(1)};
  trainer<dynamic_arch, serial> run(dynamic_arch(small_model()), backend, data, quick(4));
  run.save(run_folder(folder.path()), 1);
  const checkpoint saved = *open_newest_checkpoint(folder.path()).newest;
  const auto refused = [&](const char* name, auto change) {
    INFO(name);
    train_options other = quick(4);
    change(other);
    trainer<dynamic_arch, serial> changed(dynamic_arch(small_model()), backend, data, other);
    CHECK_THROWS_WITH(changed.resume(saved), ContainsSubstring(std::string("\n  options/") + name + ": "));
  };
  refused("tokens", [](auto& o) { ++o.tokens; });
  refused("length", [](auto& o) { o.length = 16; });
  refused("sequences", [](auto& o) { o.sequences = 4; });
  refused("accumulation", [](auto& o) { o.accumulation = 1; });
  refused("learning_rate", [](auto& o) { o.learning_rate *= 1 + 1e-15; });
  refused("warmup_share", [](auto& o) { o.warmup_share = 0; });
  refused("decay", [](auto& o) { o.decay = decay_kind::wsd; });
  refused("decay_share", [](auto& o) { o.decay_share = 0.3; });
  refused("final_share", [](auto& o) { o.final_share = 0; });
  refused("weight_decay", [](auto& o) { o.weight_decay = 0; });
  refused("beta1", [](auto& o) { o.beta1 = 0.8; });
  refused("beta2", [](auto& o) { o.beta2 = 0.99; });
  refused("eps", [](auto& o) { o.eps = 1e-9; });
  refused("optimizer", [](auto& o) { o.optimizer = optimizer_kind::muon; });
  refused("clip", [](auto& o) { o.clip = 0; });
  refused("balance", [](auto& o) { o.balance = 0; });
  refused("z", [](auto& o) { o.z = 0; });
  refused("balance_bias_step", [](auto& o) { o.balance_bias_step = 0; });
  refused("document_masks", [](auto& o) { o.document_masks = false; });
  refused("seed", [](auto& o) { o.seed = 6; });
  refused("largest_skip_run", [](auto& o) { o.largest_skip_run = 9; });
}

TEST_CASE("a run goes on with the products it began with", "[train]") {
  const dataset data = text();
  const smelt_test::temporary_folder folder;
  serial backend{serial_executor(1)};
  trainer<dynamic_arch, serial> run(dynamic_arch(small_model()), backend, data, quick(4));
  run.save(run_folder(folder.path() / "fp32"), 1);
  nlohmann::json state = open_newest_checkpoint(folder.path() / "fp32").newest->state;
  CHECK(state.at("dtype") == "fp32");
  const auto saved_as = [&](const char* name) {
    std::vector<safetensors::tensor> moments = file_tensors(run.weights(), run.architecture(), first_moment_suffix);
    for (safetensors::tensor& t : file_tensors(run.weights(), run.architecture(), second_moment_suffix))
      moments.push_back(std::move(t));
    save_checkpoint(run_folder(folder.path() / name), 1, file_tensors(run.weights(), run.architecture()), moments,
                    state, 1);
    return *open_newest_checkpoint(folder.path() / name).newest;
  };
  state["dtype"] = "bf16";
  CHECK_THROWS_WITH(run.resume(saved_as("bf16")),
                    ContainsSubstring("\n  dtype: the checkpoint has \"bf16\", this run has \"fp32\""));
  state["dtype"] = 16;
  CHECK_THROWS_WITH(run.resume(saved_as("number")), ContainsSubstring("\n  dtype: "));
  CHECK(run.step() == 0);
  state.erase("dtype");  // from before there was a choice
  run.resume(saved_as("old"));
  CHECK(run.step() == 1);
}

TEST_CASE("a run goes on with the optimizer it began with", "[train]") {
  const dataset data = text();
  serial backend{serial_executor(1)};
  const smelt_test::temporary_folder folder;
  train_options with_muon = quick(4);
  with_muon.optimizer = optimizer_kind::muon;
  trainer<dynamic_arch, serial> run(dynamic_arch(small_model()), backend, data, with_muon);
  run.save(run_folder(folder.path()), 1);
  checkpoint saved = *open_newest_checkpoint(folder.path()).newest;
  const auto resumed = [&](const train_options& options) {
    trainer<dynamic_arch, serial> other(dynamic_arch(small_model()), backend, data, options);
    other.resume(saved);
  };
  CHECK_NOTHROW(resumed(with_muon));
  train_options other = with_muon;
  other.momentum = 0.95;
  CHECK_THROWS_WITH(resumed(other),
                    ContainsSubstring("\n  options/momentum: the checkpoint has 0.9, this run has 0.95"));
  CHECK_THROWS_WITH(resumed(quick(4)),
                    ContainsSubstring("\n  options/optimizer: the checkpoint has \"muon\", this run has "
                                      "\"adamw\""));
  // From before there was a choice.
  saved.state["options"].erase("optimizer");
  saved.state["options"].erase("momentum");
  CHECK_NOTHROW(resumed(quick(4)));
  CHECK_THROWS_WITH(resumed(with_muon), ContainsSubstring("\n  options/optimizer: the checkpoint has \"adamw\""));
}

TEST_CASE("products in bf16 learn what products in fp32 learn", "[train]") {
  if (!is_usable(instruction_set::avx512_bf16)) return;
  const dataset data = text();
  const auto always = [] { return true; };
  serial exact{serial_executor(1)};
  serial rounded{serial_executor(1), compute_type::bf16};
  constexpr int seeds = 12;
  double course = 0, end = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    train_options o = quick(200);
    o.seed = static_cast<std::uint64_t>(seed);
    trainer<dynamic_arch, serial> a(dynamic_arch(small_model()), exact, data, o);
    trainer<dynamic_arch, serial> b(dynamic_arch(small_model()), rounded, data, o);
    bool differ = false;
    while (!a.done()) {
      const double expected = a.advance().loss;
      const double found = b.advance().loss;
      differ = differ || expected != found;
      course += (found - expected) / (200 * seeds);
    }
    CHECK(differ);
    const double last = b.evaluate(0, always).loss() - a.evaluate(0, always).loss();
    UNSCOPED_INFO("seed " << seed << ": " << last);
    end += last / seeds;
  }
  // In nats a token; the loss falls by four. Routing makes two runs that differ in one rounding drift apart as those of
  // two seeds do, by some 0.1 either way at the end: means over seeds do not.
  CHECK(std::abs(course) < 0.02);
  CHECK(std::abs(end) < 0.05);
}

TEST_CASE("a checkpoint that cannot be resumed changes nothing", "[train]") {
  const dataset data = text();
  const smelt_test::temporary_folder folder;
  serial backend{serial_executor(1)};
  const spec s = small_model();
  trainer<dynamic_arch, serial> run(dynamic_arch(s), backend, data, quick(4));
  run.advance();
  run.save(run_folder(folder.path() / "good"), 1);
  const nlohmann::json good = open_newest_checkpoint(folder.path() / "good").newest->state;

  trainer<dynamic_arch, serial> untouched(dynamic_arch(s), backend, data, quick(4));
  trainer<dynamic_arch, serial> tried(dynamic_arch(s), backend, data, quick(4));
  const weight_buffer<float> others(s);
  int number = 0;
  const auto refused = [&](const nlohmann::json& state, bool whole, const char* words) {
    INFO(words);
    const auto place = folder.path() / std::to_string(++number);
    std::vector<safetensors::tensor> moments = file_tensors(others, s, first_moment_suffix);
    for (safetensors::tensor& t : file_tensors(others, s, second_moment_suffix)) moments.push_back(std::move(t));
    if (!whole) moments.pop_back();
    save_checkpoint(run_folder(place), 1, file_tensors(others, s), moments, state, 1);
    CHECK_THROWS_WITH(tried.resume(*open_newest_checkpoint(place).newest), ContainsSubstring(words));
    CHECK_THROWS_AS(tried.resume(*open_newest_checkpoint(place).newest), error);
    CHECK(tried.step() == 0);
    CHECK(
        std::equal(untouched.weights().all().begin(), untouched.weights().all().end(), tried.weights().all().begin()));
  };
  refused(good, false, "missing tensor 'lm_head.weight.second_moment'");
  for (const char* name : {"skipped", "skip_run", "options", "spec", "data"}) {
    nlohmann::json state = good;
    state.erase(name);
    refused(state, true, name == std::string("options") ? "learning_rate: the checkpoint has none" : name);
  }
  for (const nlohmann::json& value :
       {nlohmann::json(-1), nlohmann::json(2), nlohmann::json("0"), nlohmann::json(0.5)}) {
    nlohmann::json state = good;
    state["skipped"] = value;
    refused(state, true, "skipped must be an integer from 0 to 1");
  }
  refused(nlohmann::json::array(), true, "spec");
  CHECK(tried.advance().loss == untouched.advance().loss);
}

TEST_CASE("what a trainer cannot train is refused at once", "[train]") {
  const dataset data = text();
  serial backend{serial_executor(1)};
  using trained = trainer<dynamic_arch, serial>;
  spec s = small_model();
  s.vocab = 256;
  CHECK_THROWS_WITH(trained(dynamic_arch(s), backend, data, quick(4)),
                    ContainsSubstring("257") && ContainsSubstring("256"));
  s = small_model();
  train_options o = quick(4);
  o.length = 33;
  CHECK_THROWS_WITH(trained(dynamic_arch(s), backend, data, o), ContainsSubstring("found 33"));
  // More than a model can hold: the text is looked at before the memory is taken.
  s.context = 1 << 30;
  o.length = 1 << 30;
  o.sequences = 1;
  CHECK_THROWS_WITH(trained(dynamic_arch(s), backend, data, o), ContainsSubstring("too little training text"));
}

TEST_CASE("a step without any target trains the routers alone", "[train]") {
  // Documents of one token: with masks, no token has a successor in its own document.
  dataset data = text();
  data.train.starts.clear();
  for (std::size_t i = 0; i < data.train.tokens.size(); ++i) data.train.starts.push_back(static_cast<std::int64_t>(i));
  data.train.categories.assign(data.train.tokens.size(), 0);
  serial backend{serial_executor(1)};
  train_options o = quick(2);
  o.weight_decay = 0;
  trainer<dynamic_arch, serial> run(dynamic_arch(small_model()), backend, data, o);
  const std::vector<float> before(run.weights().all().begin(), run.weights().all().end());
  const step_record r = run.advance();
  CHECK(r.loss == 0);
  CHECK(r.balance > 0);
  CHECK(r.not_finite.empty());
  const weight_layout layout(small_model());
  const auto same = [&](weight w, int layer) {
    const weight_place p = layout(w, layer);
    const auto now =
        run.weights().all().subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.size()));
    return std::equal(now.begin(), now.end(), before.begin() + p.offset);
  };
  CHECK(same(weight::head, 0));
  CHECK(same(weight::final_norm, 0));
  CHECK_FALSE(same(weight::router, 0));
}
