// Does a model that reads a sequence token by token say what the forward pass over all of it says?
#include <smelt/infer/decoder.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/timed_backend.hpp>
#include <smelt/model/language_model.hpp>
#include <string>
#include <vector>

#include "../tools/smelt/allocations.hpp"
#include "catch.hpp"
#include "support/backends.hpp"
#include "support/model_fixture.hpp"
#include "support/small_specs.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;
using smelt_test::random_weights;

namespace {

using oracle = reference<double>;
using rows_of_logits = std::vector<std::vector<double>>;

/// Large enough for vectors, panels and windows that fill up, small enough for a moment.
constexpr spec small_looped{
    .vocab = 70,
    .context = 640,
    .width = 32,
    .layers = 4,
    .dense_layers = 1,
    .dense_hidden = 40,
    .attention = {.heads = 8, .kv_heads = 2, .head_dim = 16, .norm = qk_norm::per_head, .window = 37},
    .experts = {.stored = 8, .active = 2, .hidden = 24, .shared_hidden = 20},
    .loop = middle_twice};

spec with_global_layer(spec s, int layer) {
  s.attention.global_layers = layer_set{}.with(layer);
  return s;
}

std::vector<std::int32_t> random_tokens(const spec& s, std::int64_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  const random_stream random(5, 1);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(s.vocab), i));
  return tokens;
}

/// The logits at every position of one sequence, by the forward pass that training has and by plain sums.
template <class B>
rows_of_logits logits_of_forward(const spec& s, B& backend, const weight_buffer<typename B::scalar>& w,
                                 const std::vector<std::int32_t>& tokens) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  const std::vector<std::int32_t> targets(tokens.size(), -1), first(tokens.size(), 0);
  language_model<dynamic_arch, B> model(dynamic_arch(s), backend, 1, length, saved_activations::none);
  static_cast<void>(model.forward(w, {tokens, targets, first, 1, length}));
  rows_of_logits rows;
  for (std::int64_t t = 0; t < length; ++t) {
    std::vector<double>& logits = rows.emplace_back(static_cast<std::size_t>(s.vocab));
    for (std::int64_t v = 0; v < s.vocab; ++v)
      for (std::int64_t h = 0; h < s.width; ++h)
        logits[static_cast<std::size_t>(v)] += double(model.hidden()(t, h)) * double(w.head()(v, h));
  }
  return rows;
}

template <class Logits>
std::ptrdiff_t greatest(const Logits& logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

/// The greatest difference as a share of the greatest logit; infinite where one is not a number.
template <class Scalar>
double distance(std::span<const Scalar> found, const std::vector<double>& expected) {
  double worst = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(double(found[i]) - expected[i]);
    worst = error <= worst ? worst : std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    size = (std::max)(size, std::fabs(expected[i]));
  }
  return found.size() == expected.size() ? worst / size : std::numeric_limits<double>::infinity();
}

/// Reads a prompt of `prompt` tokens, then the others one by one, and compares the logits at each of them. A decoder
/// that was just made need not be cleared.
template <class B>
void check_against(const rows_of_logits& expected, decoder<dynamic_arch, B>& found,
                   const std::vector<std::int32_t>& tokens, std::size_t prompt, double tolerance) {
  if (found.size() > 0) found.clear();
  for (std::size_t t = (std::max)(prompt, std::size_t{1}) - 1; t < tokens.size(); ++t) {
    INFO("a prompt of " << prompt << " tokens, position " << t);
    const std::span<const typename B::scalar> logits =
        t + 1 == prompt ? found.prefill(std::span(tokens).first(prompt)) : found.decode(tokens[t]);
    REQUIRE(found.size() == static_cast<std::int64_t>(t) + 1);
    REQUIRE(distance(logits, expected[t]) <= tolerance);
    REQUIRE(greatest(logits) == greatest(expected[t]));
  }
}

}  // namespace

TEST_CASE("tokens one by one, and prompts of every length, give the logits of the forward pass", "[infer]") {
  oracle backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_buffer<double> w = random_weights<double>(s);
    const std::vector<std::int32_t> tokens = random_tokens(s, 12);
    const rows_of_logits expected = logits_of_forward(s, backend, w, tokens);
    decoder<dynamic_arch, oracle> found(dynamic_arch(s), backend, w, 12);
    for (std::size_t prompt = 0; prompt <= tokens.size(); ++prompt)
      check_against(expected, found, tokens, prompt, 1e-11);
  }
}

TEST_CASE("the CPU backend decodes what the reference computes, with every instruction set", "[infer]") {
  oracle exact;
  for (const test::cpu_variant& variant : test::usable_variants()) {
    if (variant.compute != compute_type::fp32) continue;
    cpu backend(threads_executor(2), variant.compute, variant.set);
    for (const auto& [name, s] : smelt_test::all_variants()) {
      INFO(variant.name() << ", " << name);
      const std::vector<std::int32_t> tokens = random_tokens(s, 12);
      const rows_of_logits expected = logits_of_forward(s, exact, random_weights<double>(s), tokens);
      const weight_buffer<float> w = random_weights<float>(s);
      // What sums of floats in another order may be off by: in some models, several times as much as in others.
      reference<float> rounding;
      const rows_of_logits rounded = logits_of_forward(s, rounding, w, tokens);
      double tolerance = 1e-5;
      for (std::size_t t = 0; t < tokens.size(); ++t)
        tolerance = (std::max)(tolerance, 3 * distance(std::span<const double>(rounded[t]), expected[t]));
      REQUIRE(tolerance < 2e-4);
      decoder<dynamic_arch, decltype(backend)> found(dynamic_arch(s), backend, w, s.context);
      for (const std::size_t prompt : {0, 1, 5, 12}) check_against(expected, found, tokens, prompt, tolerance);
    }
  }
}

TEST_CASE("long prompts, windows that fill up, and loops: the same logits", "[infer]") {
  for (const spec& s : {small_looped, with_global_layer(small_looped, 2)}) {
    const std::vector<std::int32_t> tokens = random_tokens(s, 600);
    oracle exact;
    const rows_of_logits expected = logits_of_forward(s, exact, random_weights<double>(s), tokens);
    cpu backend{threads_executor(2)};
    const weight_buffer<float> w = random_weights<float>(s);
    decoder<dynamic_arch, decltype(backend)> found(dynamic_arch(s), backend, w, 600);
    // Prompts shorter and longer than the window and than what goes through the layers at once.
    for (const std::size_t prompt : {0, 20, 100, 520, 600}) check_against(expected, found, tokens, prompt, 5e-5);
    // Prompts that follow each other are one prompt.
    found.clear();
    std::span<const float> logits;
    std::size_t at = 0;
    for (const std::size_t count : {30, 3, 1, 17, 129, 40, 60, 300, 20}) {
      logits = found.prefill(std::span(tokens).subspan(at, count));
      at += count;
      INFO("after " << at << " tokens");
      CHECK(distance(logits, expected[at - 1]) <= 5e-5);
    }
    CHECK(at == 600);
  }
}

TEST_CASE("bf16 products decode what bf16 products compute in a forward pass, but for their rounding", "[infer]") {
  if (!is_usable(instruction_set::avx512_bf16)) return;
  // A router's choice between equals would turn a rounding into another expert: every token visits all of them.
  spec s = small_looped;
  s.experts.active = s.experts.stored;
  const std::vector<std::int32_t> tokens = random_tokens(s, 90);
  oracle exact;
  const rows_of_logits expected = logits_of_forward(s, exact, random_weights<double>(s), tokens);
  cpu backend(threads_executor(2), compute_type::bf16);
  const weight_buffer<float> w = random_weights<float>(s);
  const rows_of_logits rounded = logits_of_forward(s, backend, w, tokens);
  decoder<dynamic_arch, decltype(backend)> found(dynamic_arch(s), backend, w, 90);
  for (const std::size_t prompt : {std::size_t{1}, std::size_t{50}}) {
    found.clear();
    static_cast<void>(found.prefill(std::span(tokens).first(prompt)));
    for (std::size_t t = prompt; t < tokens.size(); ++t) {
      INFO("position " << t);
      const std::span<const float> logits = found.decode(tokens[t]);
      const std::vector<float> of_forward(rounded[t].begin(), rounded[t].end());
      const double error = distance(std::span<const float>(of_forward), expected[t]);
      CHECK(distance(logits, expected[t]) <= 0.02 + 3 * error);
    }
  }
}

TEST_CASE("decoding gives the same bits for every number of threads", "[infer][threads]") {
  for (const test::cpu_variant& variant : test::usable_variants()) {
    const std::vector<std::int32_t> tokens = random_tokens(small_looped, 130);
    const weight_buffer<float> w = random_weights<float>(small_looped);
    std::vector<std::vector<float>> expected;
    for (const int threads : {1, 2, 3, 7}) {
      cpu backend(threads_executor(threads), variant.compute, variant.set);
      decoder<dynamic_arch, decltype(backend)> found(dynamic_arch(small_looped), backend, w, 130);
      std::size_t at = 0;
      const auto check = [&](std::span<const float> logits) {
        if (threads == 1) expected.emplace_back(logits.begin(), logits.end());
        INFO(variant.name() << ", " << threads << " threads, step " << at);
        CHECK(std::memcmp(logits.data(), expected[at].data(), logits.size_bytes()) == 0);
        ++at;
      };
      check(found.prefill(std::span(tokens).first(100)));
      check(found.prefill(std::span(tokens).subspan(100, 3)));
      for (std::size_t t = 103; t < tokens.size(); ++t) check(found.decode(tokens[t]));
    }
  }
}

TEST_CASE("an architecture that the compiler knows decodes as one that it does not", "[infer]") {
  struct known : arch<small_looped> {};
  const std::vector<std::int32_t> tokens = random_tokens(small_looped, 60);
  const weight_buffer<float> w = random_weights<float>(small_looped);
  cpu backend{serial_executor()};
  decoder one(known{}, backend, w, 60);
  decoder other(dynamic_arch(small_looped), backend, w, 60);
  static_cast<void>(one.prefill(std::span(tokens).first(40)));
  static_cast<void>(other.prefill(std::span(tokens).first(40)));
  for (std::size_t t = 40; t < tokens.size(); ++t) {
    const std::span<const float> a = one.decode(tokens[t]), b = other.decode(tokens[t]);
    CHECK(std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
  }
}

TEST_CASE("a sequence that begins anew finds nothing of the one before", "[infer]") {
  const std::vector<std::int32_t> tokens = random_tokens(small_looped, 120);
  const weight_buffer<float> w = random_weights<float>(small_looped);
  cpu backend{serial_executor()};
  decoder found(dynamic_arch(small_looped), backend, w, 120);
  const auto read = [&] {
    found.clear();
    static_cast<void>(found.prefill(std::span(tokens).first(50)));
    const std::span<const float> logits = found.decode(tokens[50]);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const std::vector<float> before = read();
  static_cast<void>(found.prefill(std::span(tokens).subspan(51)));
  CHECK(found.size() == 120);
  CHECK(read() == before);
}

TEST_CASE("keys and values take the bytes that the budget counts", "[infer][budget]") {
  oracle backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    const weight_buffer<double> w(s);
    for (const std::int64_t capacity : {1, 2, 3, 9, 16}) {
      INFO(name << ", capacity " << capacity);
      const decoder found(dynamic_arch(s), backend, w, capacity);
      CHECK(found.kv_bytes() == kv_cache(s, sizeof(double), capacity).bytes_at_context);
    }
  }
  const weight_buffer<double> w(small_looped);
  CHECK(decoder(dynamic_arch(small_looped), backend, w, 600).kv_bytes() ==
        kv_cache(small_looped, sizeof(double), 600).bytes_at_context);
}

TEST_CASE("decoding asks for no memory", "[infer]") {
  spec latent = small_looped;
  latent.loop.visits = visit_list{}.then({.compression = 3, .own_attention = true}).then({.stream = {1, 2}});
  for (const spec& s : {small_looped, latent}) {
    const std::vector<std::int32_t> tokens = random_tokens(s, 300);
    const weight_buffer<float> w = random_weights<float>(s);
    cpu backend{threads_executor(2)};
    decoder found(dynamic_arch(s), backend, w, 300);
    const std::int64_t before = tool::allocations();
    for (const std::int32_t token : tokens) static_cast<void>(found.decode(token));
    CHECK(tool::allocations() - before == 0);
  }
}

TEST_CASE("decoding runs no op that only training needs", "[infer]") {
  oracle inside;
  timed<oracle> backend(inside);
  const weight_buffer<double> w(small_looped);
  decoder found(dynamic_arch(small_looped), backend, w, 20);
  backend.reset();
  static_cast<void>(found.decode(1));
  const auto calls = [&](std::string_view op) {
    const auto times = backend.times();
    const auto at = std::ranges::find(times, op, &op_time::op);
    return at == times.end() ? 0 : at->calls;
  };
  CHECK(calls("attention_cached") == schedule(small_looped).size());
  CHECK(calls("attention") == 0);
  CHECK(calls("route_losses") == 0);
  CHECK(calls("cross_entropy") == 0);
}

TEST_CASE("what a decoder cannot read is refused by name, and nothing has changed", "[infer]") {
  oracle backend;
  const spec& s = smelt_test::tiny;  // vocabulary 11, context 16
  const weight_buffer<double> w = random_weights<double>(s);
  CHECK_THROWS_WITH(decoder(dynamic_arch(s), backend, w, 0),
                    ContainsSubstring("capacity must be from 1 to the context of 16 tokens, found 0"));
  CHECK_THROWS_WITH(decoder(dynamic_arch(s), backend, w, 17), ContainsSubstring("found 17"));
  CHECK_THROWS_WITH(decoder(dynamic_arch(s), backend, weight_buffer<double>(small_looped), 4),
                    ContainsSubstring("the architecture has weights of "));
  spec budget_only = s;
  budget_only.head_bias = true;
  CHECK_THROWS_WITH(decoder(dynamic_arch(budget_only), backend, w, 4), ContainsSubstring("head_bias"));

  decoder found(dynamic_arch(s), backend, w, 5);
  const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6};
  const std::span<const double> logits = found.prefill(std::span(tokens).first(3));
  const std::vector<double> kept(logits.begin(), logits.end());
  CHECK_THROWS_WITH(found.prefill({}), ContainsSubstring("at least 1 token, found none"));
  CHECK_THROWS_WITH(found.prefill(std::span(tokens).first(3)),
                    ContainsSubstring("at most 5 tokens and has 3, found 3 more"));
  CHECK_THROWS_WITH(found.decode(11), ContainsSubstring("tokens[0] is 11, needs 0 to 10"));
  CHECK_THROWS_WITH(found.decode(-1), ContainsSubstring("tokens[0] is -1, needs 0 to 10"));
  CHECK_THROWS_WITH(found.prefill(std::vector<std::int32_t>{4, 2147483647}),
                    ContainsSubstring("tokens[1] is 2147483647"));
  CHECK(found.size() == 3);
  CHECK(std::ranges::equal(logits, kept));
  static_cast<void>(found.prefill(std::span(tokens).subspan(3, 2)));
  CHECK_THROWS_WITH(found.decode(1), ContainsSubstring("at most 5 tokens and has 5, found 1 more"));
  found.clear();
  CHECK(std::ranges::equal(found.prefill(std::span(tokens).first(3)), kept));
}
