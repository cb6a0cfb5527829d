// Are the experts that two visits share counted as a pencil counts them?
#include <smelt/probe/expert_overlap.hpp>

#include <cstdint>
#include <set>
#include <smelt/kernels/reference/backend.hpp>
#include <vector>

#include "catch.hpp"
#include "support/model_fixture.hpp"
#include "support/small_specs.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;
using smelt_test::owned_batch;

namespace {

using oracle = reference<double>;

spec looped(const visit_list& list) {
  spec s = smelt_test::tiny;
  s.layers = 4;
  s.loop = {.count = loop_spec::half, .visits = list};
  return s;
}

/// Chooses experts by a rule of the test: those that `choose` numbers, of row and executed layer.
struct scripted : oracle {
  int calls = 0;  ///< routers run so far
  void route(router_shape shape, const_matrix logits, const_vector bias, matrix scores, std::span<std::int32_t> ids,
             matrix weights, vector logsumexp) {
    oracle::route(shape, logits, bias, scores, ids, weights, logsumexp);
    for (std::int64_t row = 0; row < logits.rows; ++row)
      for (int i = 0; i < shape.active; ++i)
        ids[static_cast<std::size_t>(row * shape.active + i)] =
            static_cast<std::int32_t>((row * calls + i) % shape.experts);
    ++calls;
  }
};

}  // namespace

TEST_CASE("every layer of the span and every two visits in a row have an overlap", "[probe][overlap]") {
  const auto found = expert_overlaps(looped(visits(3))).found();
  REQUIRE(found.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(found[i].layer == 1 + static_cast<int>(i / 2));
    CHECK(found[i].visit == static_cast<int>(i % 2));
    CHECK(found[i].fewer == 2);
    CHECK(found[i].chance == 0.5);  // 2 of 4 experts, twice: one in common
    CHECK(found[i].share() == 0);
  }
  CHECK(expert_overlaps(smelt_test::tiny).found().empty());
  CHECK(expert_overlaps(looped(visits(1))).found().empty());
  spec half_dense = looped(visits(2));
  half_dense.dense_layers = 2;
  half_dense.dense_hidden = 7;
  CHECK(expert_overlaps(half_dense).found().size() == 1);
  // Visits that choose 1 and 3 of 4: at most one in common, and three times in four by chance.
  const auto uneven = expert_overlaps(looped(visit_list{}.then({.active = 1}).then({.active = 3}))).found();
  CHECK(uneven.front().fewer == 1);
  CHECK(uneven.front().chance == 0.75);
}

TEST_CASE("overlaps are those of the choices themselves", "[probe][overlap]") {
  const spec s = looped(visits(2));
  scripted backend;
  language_model<dynamic_arch, scripted> model(dynamic_arch(s), backend, 2, 6);
  const owned_batch batch(s.vocab, 2, 6);
  static_cast<void>(model.forward(smelt_test::random_weights<double>(s), batch.view()));
  expert_overlaps overlaps(s);
  overlaps.add(model, batch.view());
  // Six executed layers; layers 1 and 2 of the model are routers number 1 and 2, then 3 and 4. In visit 1 a row chooses
  // experts row * n and the next, n being the number of the router.
  for (const expert_overlap& o : overlaps.found()) {
    std::int64_t tokens = 0, shared = 0;
    for (std::int64_t t = 0; t < 12; ++t) {
      if (batch.targets[static_cast<std::size_t>(t)] < 0) continue;
      ++tokens;
      const std::int64_t n = o.layer, m = o.layer + 2;
      const std::set<std::int64_t> a{t * n % 4, (t * n + 1) % 4}, b{t * m % 4, (t * m + 1) % 4};
      for (const std::int64_t e : a) shared += static_cast<std::int64_t>(b.count(e));
    }
    CHECK(o.tokens == tokens);
    CHECK(tokens < 12);
    CHECK(o.shared == shared);
    CHECK(o.share() == Approx(double(shared) / double(2 * tokens)));
  }
  // Another batch adds to them.
  overlaps.add(model, batch.view());
  CHECK(overlaps.found().front().tokens == 20);
}

TEST_CASE("visits that route alike share all experts", "[probe][overlap]") {
  // Coefficient 0 leaves the stream as it was, so that the second visit sees what the first one saw.
  const spec s = looped(visits(2, {.residual = {0, 1}}));
  oracle backend;
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 2, 8);
  const owned_batch batch(s.vocab, 2, 8);
  static_cast<void>(model.forward(smelt_test::random_weights<double>(s), batch.view()));
  expert_overlaps overlaps(s);
  overlaps.add(model, batch.view());
  for (const expert_overlap& o : overlaps.found()) CHECK(o.share() == 1.0);
}

TEST_CASE("a token's experts in a compressed visit are its latent's", "[probe][overlap]") {
  const spec s = looped(visit_list{}.then({.compression = 3}).then(visit_plan{}));
  scripted backend;
  language_model<dynamic_arch, scripted> model(dynamic_arch(s), backend, 1, 8);
  owned_batch batch(s.vocab, 1, 8);
  batch.targets.assign(8, 1);
  const auto count = [&](std::int32_t document) {
    for (std::size_t t = 0; t < 8; ++t) batch.first[t] = static_cast<std::int32_t>(t) >= document ? document : 0;
    backend.calls = 0;
    static_cast<void>(model.forward(smelt_test::random_weights<double>(s), batch.view()));
    expert_overlaps overlaps(s);
    overlaps.add(model, batch.view());
    return overlaps.found().front();
  };
  // Two latents of three tokens each; the last two tokens have none.
  const expert_overlap one = count(0);
  CHECK(one.tokens == 6);
  std::int64_t shared = 0;
  for (std::int64_t t = 0; t < 6; ++t) {
    const std::int64_t j = t / 3;  // router 1 on latents, router 3 on tokens
    const std::set<std::int64_t> a{j % 4, (j + 1) % 4}, b{t * 3 % 4, (t * 3 + 1) % 4};
    for (const std::int64_t e : a) shared += static_cast<std::int64_t>(b.count(e));
  }
  CHECK(one.shared == shared);
  // A document that begins at token 4: token 3 does not enter its chunk's latent.
  CHECK(count(4).tokens == 5);
}

TEST_CASE("sequences shorter than a chunk have no overlap, and no wrong one", "[probe][overlap]") {
  const spec s = looped(visit_list{}.then({.compression = 4}).then(visit_plan{}));
  oracle backend;
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 3);
  const owned_batch batch(s.vocab, 1, 3);
  static_cast<void>(model.forward(smelt_test::random_weights<double>(s), batch.view()));
  expert_overlaps overlaps(s);
  overlaps.add(model, batch.view());
  CHECK(overlaps.found().front().tokens == 0);
  CHECK(overlaps.found().front().share() == 0);
}

TEST_CASE("a model that forgets its choices, or another one, is refused", "[probe][overlap]") {
  const spec s = looped(visits(2));
  oracle backend;
  const owned_batch batch(s.vocab, 1, 4);
  for (const saved_activations saved : {saved_activations::inputs, saved_activations::none}) {
    language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 4, saved);
    static_cast<void>(model.forward(smelt_test::random_weights<double>(s), batch.view()));
    expert_overlaps overlaps(s);
    CHECK_THROWS_WITH(overlaps.add(model, batch.view()), ContainsSubstring("saves all activations"));
    expert_overlaps other(looped(visits(3)));
    CHECK_THROWS_WITH(other.add(model, batch.view()), ContainsSubstring("of another"));
  }
}
