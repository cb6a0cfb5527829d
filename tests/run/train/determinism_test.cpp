// Does a whole run give the same bits however many threads compute it and however often it is interrupted?
#include <smelt/train/trainer.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/cpu/tbb_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/small_specs.hpp"
#include "support/synthetic_text.hpp"
#include "support/temporary_folder.hpp"
#include "support/update_last.hpp"

using namespace smelt;

namespace {

dataset text() {
  dataset_builder builder(0.1);
  for (const document& d : smelt_test::synthetic_documents(3, 200)) builder.add(d);
  return std::move(builder).finish();
}

/// Odd sizes on purpose: no dimension is a multiple of a vector or of a block.
spec looped_model() {
  spec s = smelt_test::tiny;
  s.vocab = 257;
  s.context = 37;
  s.width = 36;
  s.layers = 4;
  s.attention = {.heads = 6, .kv_heads = 3, .head_dim = 10, .norm = qk_norm::per_head};
  s.experts = {.stored = 11, .active = 3, .hidden = 21, .shared_hidden = 13, .renormalise = true};
  s.experts.balance_bias = true;
  s.loop = middle_twice;
  return s;
}

train_options run_of(std::int64_t steps, optimizer_kind optimizer = optimizer_kind::adamw) {
  return {.tokens = steps * 6 * 37,
          .length = 37,
          .sequences = 3,
          .accumulation = 2,
          .optimizer = optimizer,
          .learning_rate = 8e-3,
          .seed = 11};
}

/// All numbers of a run, as bits.
struct history {
  std::vector<std::uint64_t> losses, norms, balances;
  std::vector<std::uint32_t> weights;
  std::uint64_t validation = 0;

  friend bool operator==(const history&, const history&) = default;
};

template <class Executor>
history run_with(Executor executor, const dataset& data, const train_options& options) {
  cpu<Executor> backend{std::move(executor)};
  trainer<dynamic_arch, cpu<Executor>> run(dynamic_arch(looped_model()), backend, data, options);
  history h;
  while (!run.done()) {
    backend.fill_scratch(std::byte{0xFF});
    const step_record r = run.advance();
    REQUIRE(r.not_finite.empty());
    h.losses.push_back(std::bit_cast<std::uint64_t>(r.loss));
    h.norms.push_back(std::bit_cast<std::uint64_t>(r.gradient_norm));
    h.balances.push_back(std::bit_cast<std::uint64_t>(r.balance));
  }
  h.validation = std::bit_cast<std::uint64_t>(run.evaluate(0, [] { return true; }).total.nats);
  for (const float w : run.weights().all()) h.weights.push_back(std::bit_cast<std::uint32_t>(w));
  return h;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("fifty steps give the same bits with 1, 2, 3 and 7 threads", "[train][threads]") {
  const dataset data = text();
  const optimizer_kind optimizer = GENERATE(optimizer_kind::adamw, optimizer_kind::muon);
  INFO(name_of(optimizer));
  const train_options options = run_of(50, optimizer);
  const history expected = run_with(serial_executor(), data, options);
  REQUIRE(expected.losses.size() == 50);
  CHECK(std::bit_cast<double>(expected.losses.back()) < 0.8 * std::bit_cast<double>(expected.losses.front()));
  for (const int threads : {1, 2, 3, 7}) {
    INFO(threads << " threads");
    CHECK((run_with(threads_executor(threads), data, options) == expected));
  }
#if defined(SMELT_TBB_EXECUTOR)
  CHECK((run_with(tbb_executor(3), data, options) == expected));
#endif
}

namespace {

/// A backend with a kernel that can be made to write an infinity into a weight's gradient.
template <class Executor>
struct breakable : cpu<Executor> {
  using cpu<Executor>::cpu;
  bool broken = false;
  template <class Shape>
  void linear_backward_weight(Shape shape, double scale, matrix_view<const float> x, matrix_view<const float> dy,
                              matrix_view<float> dw) {
    cpu<Executor>::linear_backward_weight(shape, scale, x, dy, dw);
    if (broken) dw.data[0] = std::numeric_limits<float>::infinity();
  }
};

/// A run in which everything happens that looks at weights or changes them: evaluations, looks at the weights, steps
/// that change nothing, a checkpoint and another run that goes on from it.
template <class Executor>
std::vector<std::uint64_t> eventful_run(Executor executor, const dataset& data, const spec& s, const train_options& o) {
  using backend_type = breakable<Executor>;
  backend_type backend{std::move(executor)};
  std::vector<std::uint64_t> found;
  const auto keep = [&](double value) { found.push_back(std::bit_cast<std::uint64_t>(value)); };
  const auto keep_all = [&](const weight_buffer<float>& w) {
    for (const float value : w.all()) keep(static_cast<double>(value));
  };
  const auto advance = [&](training& run, int steps) {
    for (int i = 0; i < steps; ++i) {
      const step_record r = run.advance();
      keep(r.loss);
      keep(r.gradient_norm);
      for (const double c : r.visit_coefficient) keep(c);
    }
  };
  const smelt_test::temporary_folder folder;
  trainer<dynamic_arch, backend_type> run(dynamic_arch(s), backend, data, o);
  advance(run, 2);
  keep(run.evaluate(1, [] { return true; }).total.nats);
  advance(run, 1);
  keep_all(run.weights());
  backend.broken = true;
  REQUIRE(run.advance().skipped == 1);
  backend.broken = false;
  advance(run, 2);
  run.save(run_folder(folder.path()), 1);
  advance(run, 1);
  trainer<dynamic_arch, backend_type> resumed(dynamic_arch(s), backend, data, o);
  resumed.resume(*open_newest_checkpoint(folder.path()).newest);
  advance(resumed, 2);
  resumed.resume(*open_newest_checkpoint(folder.path()).newest);
  advance(resumed, 1);
  keep_all(run.weights());
  keep_all(resumed.weights());
  return found;
}

}  // namespace

TEST_CASE("an update that is left for later gives the bits of one made at once", "[train][threads][full]") {
  const dataset data = text();
  const spec looped = looped_model();
  spec plain = looped, learned = looped, narrow = looped;
  plain.loop = {};
  plain.tied_head = true;
  learned.loop.visits = visit_list{}
                            .then({.residual = {1, 2},
                                   .learned = true,
                                   .compression = 2,
                                   .encoder = encoder_kind::conv,
                                   .writeback = writeback_kind::normalised,
                                   .own_attention = true})
                            .then({.learned = true});
  narrow.loop.visits = visit_list{}.then({.learned = true}).then({.expert_hidden = {2, 3}, .stream = {1, 2}});
  train_options one = run_of(12);
  one.accumulation = 1;
  one.tokens = 12 * 3 * 37;
  train_options again = one;
  again.recompute = true;
  for (const spec& s : {plain, looped, learned, narrow}) {
    for (const train_options& o : {one, again, run_of(12)}) {
      INFO("loop of " << span_of(s).visits << ", " << o.accumulation << " batches" << (o.recompute ? ", again" : ""));
      const std::vector<std::uint64_t> expected = eventful_run(serial_executor(), data, s, o);
      CHECK((eventful_run(smelt_test::update_last{}, data, s, o) == expected));
      for (const int threads : {2, 3, 7}) CHECK((eventful_run(threads_executor(threads), data, s, o) == expected));
#if defined(SMELT_TBB_EXECUTOR)
      CHECK((eventful_run(tbb_executor(2), data, s, o) == expected));
#endif
    }
  }
}

TEST_CASE("ten steps, a resume and ten more are twenty steps, to the last byte of the files", "[train]") {
  const dataset data = text();
  const smelt_test::temporary_folder folder;
  using backend_type = cpu<serial_executor>;
  backend_type backend{serial_executor()};
  using run_type = trainer<dynamic_arch, backend_type>;

  const train_options options = run_of(20, GENERATE(optimizer_kind::adamw, optimizer_kind::muon));
  run_type whole(dynamic_arch(looped_model()), backend, data, options);
  std::vector<double> losses;
  while (!whole.done()) losses.push_back(whole.advance().loss);
  const saved_checkpoint expected = whole.save(run_folder(folder.path() / "whole"), 1);

  {
    run_type first(dynamic_arch(looped_model()), backend, data, options);
    for (int i = 0; i < 10; ++i) first.advance();
    first.save(run_folder(folder.path() / "parts"), 1);
  }
  run_type second(dynamic_arch(looped_model()), backend, data, options);
  const found_checkpoint found = open_newest_checkpoint(folder.path() / "parts");
  REQUIRE(found.newest.has_value());
  // The state holds everything that the next step depends on.
  CHECK(found.newest->step == 10);
  CHECK(found.newest->state.at("visits") == 2);
  CHECK(found.newest->state.at("skipped") == 0);
  CHECK(found.newest->state.at("options").at("seed") == 11);
  CHECK(found.newest->state.at("tokenizer") == "bytes");
  CHECK(found.newest->state.at("data") == std::to_string(data.fingerprint));
  second.resume(*found.newest);
  for (std::size_t i = 10; i < 20; ++i) {
    const step_record r = second.advance();
    CHECK(r.step == static_cast<std::int64_t>(i) + 1);
    CHECK(r.loss == losses[i]);
  }
  CHECK(second.done());
  const saved_checkpoint got = second.save(run_folder(folder.path() / "parts"), 1);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    CHECK(bytes_of(got.folder / name) == bytes_of(expected.folder / name));
}

TEST_CASE("FLOPs a token do not depend on how a step is cut", "[train]") {
  const dataset data = text();
  cpu<serial_executor> backend{serial_executor()};
  std::vector<double> per_token;
  for (const auto& [sequences, accumulation] : {std::pair{8, 1}, std::pair{1, 8}, std::pair{2, 1}}) {
    train_options o = run_of(2);
    o.sequences = sequences;
    o.accumulation = accumulation;
    trainer<dynamic_arch, cpu<serial_executor>> run(dynamic_arch(looped_model()), backend, data, o);
    const step_record r = run.advance();
    CHECK(r.tokens == sequences * accumulation * 37);
    per_token.push_back(r.flops / static_cast<double>(r.tokens));
  }
  CHECK(per_token[0] == per_token[1]);
  CHECK(per_token[0] == per_token[2]);
  CHECK(per_token[0] == static_cast<double>(flops(looped_model(), conventions::smelt, 37).train_per_token));
}

TEST_CASE("the balance loss is part of the gradient unless its coefficient is 0, and never of an evaluation",
          "[train]") {
  const dataset data = text();
  cpu<serial_executor> backend{serial_executor()};
  const auto after_a_step = [&](double balance, double z) {
    train_options o = run_of(1);
    o.balance = balance;
    o.z = z;
    trainer<dynamic_arch, cpu<serial_executor>> run(dynamic_arch(looped_model()), backend, data, o);
    const double untrained = run.evaluate(0, [] { return true; }).total.nats;
    run.advance();
    return std::pair{untrained, std::vector<float>(run.weights()(weight::router, 0).data,
                                                   run.weights()(weight::router, 0).data + 11 * 36)};
  };
  const train_options defaults;
  REQUIRE(defaults.balance > 0);
  const auto none = after_a_step(0, 0);
  CHECK(after_a_step(0, 0).second == none.second);
  CHECK(after_a_step(defaults.balance, 0).second != none.second);
  CHECK(after_a_step(0, defaults.z).second != none.second);
  // The same model evaluates to the same number, to the bit, whatever the coefficients.
  CHECK(after_a_step(5, 5).first == none.first);
}

TEST_CASE("nearly all experts idle: steps stay finite and idle experts keep their weights", "[train]") {
  spec s = smelt_test::tiny;
  s.vocab = 257;
  s.experts = {.stored = 256, .active = 1, .hidden = 6, .renormalise = false};
  const dataset data = text();
  cpu<threads_executor> backend{threads_executor(2)};
  train_options o{.tokens = 3 * 4, .length = 4, .sequences = 1, .learning_rate = 1e-2, .weight_decay = 0, .seed = 2};
  trainer<dynamic_arch, cpu<threads_executor>> run(dynamic_arch(s), backend, data, o);
  const std::vector<float> before(run.weights().all().begin(), run.weights().all().end());
  for (int i = 0; i < 3; ++i) {
    backend.fill_scratch(std::byte{0xFF});
    const step_record r = run.advance();
    CHECK(r.not_finite.empty());
    CHECK(std::isfinite(r.loss));
  }
  int moved = 0;
  for (int layer = 0; layer < 2; ++layer) {
    const matrix_view<const float> gate = run.weights()(weight::expert_gate, layer);
    const std::int64_t offset = run.weights().layout()(weight::expert_gate, layer).offset;
    for (std::int64_t e = 0; e < 256; ++e) {
      bool changed = false;
      for (std::int64_t i = e * 48; i < (e + 1) * 48; ++i) {
        CHECK(std::isfinite(gate.data[i]));
        changed = changed || gate.data[i] != before[static_cast<std::size_t>(offset + i)];
      }
      moved += changed;
    }
  }
  // At most one expert a token, layer and step.
  CHECK(moved > 0);
  CHECK(moved <= 2 * 3 * 4);
}
