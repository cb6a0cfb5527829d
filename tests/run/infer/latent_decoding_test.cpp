// Does a compressed visit go on where a sequence was cut, inside a chunk or between two?
#include <smelt/infer/decoder.hpp>

#include <algorithm>
#include <cstdint>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/kernels/reference/backend.hpp>
#include <span>
#include <vector>

#include "catch.hpp"
#include "support/model_fixture.hpp"
#include "support/small_specs.hpp"

using namespace smelt;
using smelt_test::random_weights;

namespace {

using oracle = reference<double>;

spec compressed(int factor, latent_position position = {}) {
  spec s = smelt_test::tiny;
  s.layers = 4;
  s.loop = {
      .count = loop_spec::half,
      .visits =
          visit_list{}.then({.compression = factor, .encoder = encoder_kind::softmax, .position = position}).then({})};
  return s;
}

std::vector<std::int32_t> some_tokens(const spec& s, std::size_t count) {
  const random_stream random(17, 3);
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(s.vocab), i)));
  return tokens;
}

/// The logits behind the last token, by the forward pass that training has.
std::vector<double> logits_of_forward(const spec& s, const weight_buffer<double>& w,
                                      std::span<const std::int32_t> tokens) {
  oracle backend;
  const auto length = static_cast<std::int64_t>(tokens.size());
  const std::vector<std::int32_t> targets(tokens.size(), -1), first(tokens.size(), 0);
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, length, saved_activations::none);
  static_cast<void>(model.forward(w, {tokens, targets, first, 1, length}));
  std::vector<double> logits(static_cast<std::size_t>(s.vocab));
  for (std::int64_t v = 0; v < s.vocab; ++v)
    for (std::int64_t h = 0; h < s.width; ++h)
      logits[static_cast<std::size_t>(v)] += model.hidden()(length - 1, h) * w.head()(v, h);
  return logits;
}

/// Remembers the rotary positions of every layer that is run.
struct remembering : oracle {
  std::vector<std::vector<std::int32_t>>* positions;

  template <ShapeOf<attention_input_shape> Shape>
  void attention_input(Shape shape, const_matrix x, const attention_input_weights<const double>& weights,
                       indices position, const attention_input_saved<double>& saved,
                       const query_key_value<double>& out) const {
    positions->emplace_back(position.begin(), position.end());
    oracle::attention_input(shape, x, weights, position, saved, out);
  }
};

void check_equal(std::span<const double> found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(found[i] == Approx(expected[i]).epsilon(1e-10).margin(1e-12));
}

}  // namespace

TEST_CASE("every short sequence, however it is cut into prompts, has the logits of the forward pass",
          "[infer][visits]") {
  for (const int factor : {2, 3, 4})
    for (const latent_position position : {latent_position::last_token, latent_position::chunk}) {
      const spec s = compressed(factor, position);
      const weight_buffer<double> w = random_weights<double>(s);
      const std::vector<std::int32_t> tokens = some_tokens(s, 9);
      oracle backend;
      decoder<dynamic_arch, oracle> found(dynamic_arch(s), backend, w, 9);
      for (std::size_t length = 1; length <= 9; ++length) {
        const std::span<const std::int32_t> text = std::span(tokens).first(length);
        const std::vector<double> expected = logits_of_forward(s, w, text);
        // In three prompts of any lengths; those of 0 tokens are none.
        for (std::size_t a = 0; a <= length; ++a)
          for (std::size_t b = a; b <= length; ++b) {
            INFO("chunks of " << factor << ", " << length << " tokens, cut at " << a << " and " << b);
            found.clear();
            std::span<const double> logits;
            for (const auto& [begin, end] : {std::pair{std::size_t{0}, a}, {a, b}, {b, length}})
              if (end > begin) logits = found.prefill(text.subspan(begin, end - begin));
            check_equal(logits, expected);
          }
      }
    }
}

TEST_CASE("a visit on pairs of tokens has a latent for every second token, in its schedule and its cache",
          "[infer][visits]") {
  const spec s = compressed(2);
  const std::vector<std::int64_t> latents{0, 1, 1, 2, 2, 3, 3, 4, 4};
  std::int64_t before = 0;
  for (std::int64_t length = 1; length <= 9; ++length) {
    std::int64_t rows = 0;
    for (const executed_layer e : schedule(s)) {
      const std::int64_t of_layer = executed_positions(e, length);
      CHECK(of_layer == (e.plan.compression == 2 ? latents[static_cast<std::size_t>(length - 1)] : length));
      rows += of_layer;
    }
    // Four executed layers keep every token, two every second one.
    CHECK(rows - before == (length % 2 == 0 ? 6 : 4));
    before = rows;
    const std::int64_t row_bytes = 2 * 2 * 4 * 4;  // keys and values of 2 heads of 4 floats
    CHECK(kv_cache(s, 4, length).bytes_at_context == rows * row_bytes);
  }
}

TEST_CASE("two positions of latents are two models", "[infer][visits]") {
  const spec last = compressed(3), chunk = compressed(3, latent_position::chunk);
  const weight_buffer<double> w = random_weights<double>(last);
  const std::vector<std::int32_t> tokens = some_tokens(last, 9);
  // With one latent there is nothing to turn against; with two there is.
  check_equal(logits_of_forward(last, w, std::span(tokens).first(5)),
              logits_of_forward(chunk, w, std::span(tokens).first(5)));
  CHECK(logits_of_forward(last, w, tokens) != logits_of_forward(chunk, w, tokens));
}

TEST_CASE("a latent stands where its plan says, in a model and in a decoder", "[infer][visits]") {
  for (const int factor : {2, 3, 4})
    for (const latent_position position : {latent_position::last_token, latent_position::chunk}) {
      const spec s = compressed(factor, position);
      const weight_buffer<double> w = random_weights<double>(s);
      const std::vector<std::int32_t> tokens = some_tokens(s, 9), targets(9, -1), first(9, 0);
      std::vector<std::int32_t> all, latents;
      for (int t = 0; t < 9; ++t) all.push_back(t);
      for (int j = 1; j * factor <= 9; ++j)
        latents.push_back(position == latent_position::chunk ? j - 1 : j * factor - 1);
      std::vector<std::vector<std::int32_t>> positions;
      remembering backend{{}, &positions};
      // A layer of tokens, two of latents, the same two of tokens, one of tokens.
      language_model<dynamic_arch, remembering> model(dynamic_arch(s), backend, 1, 9, saved_activations::none);
      model.forward(w, {tokens, targets, first, 1, 9});
      const std::vector<std::vector<std::int32_t>> expected{all, latents, latents, all, all, all};
      CHECK(positions == expected);
      decoder<dynamic_arch, remembering> found(dynamic_arch(s), backend, w, 9);
      positions.clear();
      static_cast<void>(found.prefill(tokens));
      CHECK(positions == expected);
      found.clear();
      for (std::int32_t t = 0; t < 9; ++t) {
        INFO("chunks of " << factor << ", token " << t);
        positions.clear();
        static_cast<void>(found.decode(tokens[static_cast<std::size_t>(t)]));
        const std::vector<std::int32_t> here{t};
        if ((t + 1) % factor != 0) {
          CHECK(positions == std::vector(4, here));
          continue;
        }
        const std::vector<std::int32_t> latent{latents[static_cast<std::size_t>((t + 1) / factor - 1)]};
        CHECK(positions == std::vector{here, latent, latent, here, here, here});
      }
    }
}
