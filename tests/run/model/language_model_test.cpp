// Does the model compute what the formulas say, forward and backward, and refuse the rest?
#include <smelt/model/language_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <smelt/kernels/reference/backend.hpp>

#include "catch.hpp"
#include "support/model_fixture.hpp"
#include "support/small_specs.hpp"
#include "support/written_out_model.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;
using smelt_test::owned_batch;
using smelt_test::random_weights;

namespace {

using oracle = reference<double>;

double total_loss(language_model<dynamic_arch, oracle>& model, const weight_buffer<double>& w, const token_batch& batch,
                  const loss_scale& scale) {
  const forward_result r = model.forward(w, batch);
  return scale.cross_entropy * r.cross_entropy.nats + scale.balance * r.mean_balance() + scale.z * r.mean_z();
}

}  // namespace

TEST_CASE("the model computes what the formulas say, token by token", "[model]") {
  oracle backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const owned_batch batch(s.vocab, 2, 9);
    const weight_buffer<double> w = random_weights<double>(s);
    language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 2, 9);
    const forward_result found = model.forward(w, batch.view());
    smelt_test::written_out_model expected(s, w);
    expected.run(batch.view());

    double nats = 0;
    for (std::size_t t = 0; t < 18; ++t) {
      INFO("token " << t);
      CHECK(model.token_losses()[t] == Approx(expected.token_losses[t]).epsilon(1e-10).margin(1e-12));
      for (std::size_t h = 0; h < static_cast<std::size_t>(s.width); ++h)
        REQUIRE(model.hidden().row(static_cast<std::int64_t>(t))[h] ==
                Approx(expected.hidden[t][h]).epsilon(1e-9).margin(1e-11));
      nats += expected.token_losses[t];
    }
    CHECK(found.cross_entropy.nats == Approx(nats));
    CHECK(found.cross_entropy.targets ==
          std::count_if(batch.targets.begin(), batch.targets.end(), [](auto t) { return t >= 0; }));

    REQUIRE(found.evaluations.size() == expected.evaluations.size());
    double balance = 0;
    double z = 0;
    for (std::size_t i = 0; i < found.evaluations.size(); ++i) {
      INFO("router evaluation " << i);
      CHECK(found.evaluations[i].layer == expected.evaluations[i].layer);
      CHECK(found.evaluations[i].visit == expected.evaluations[i].visit);
      CHECK(found.evaluations[i].losses.balance == Approx(expected.evaluations[i].balance).epsilon(1e-10));
      CHECK(found.evaluations[i].losses.z == Approx(expected.evaluations[i].z).epsilon(1e-10));
      balance += expected.evaluations[i].balance / static_cast<double>(found.evaluations.size());
      z += expected.evaluations[i].z / static_cast<double>(found.evaluations.size());
    }
    CHECK(found.mean_balance() == Approx(balance).epsilon(1e-10));
    CHECK(found.mean_z() == Approx(z).epsilon(1e-10));
  }
}

TEST_CASE("whole-model gradients agree with central differences in float64", "[model]") {
  oracle backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const owned_batch batch(s.vocab, 2, 9);
    language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 2, 9);
    weight_buffer<double> w = random_weights<double>(s);
    weight_buffer<double> dw(s);
    const loss_scale scale{.cross_entropy = 0.1, .balance = 0.7, .z = 0.05};
    model.forward(w, batch.view());
    model.backward(w, batch.view(), scale, dw);

    w.layout().for_each([&](weight kind, int layer, const weight_place& p) {
      if (kind == weight::balance_bias) return;
      const random_stream pick(3, static_cast<std::uint64_t>(layer + 1) * 64 + static_cast<std::uint64_t>(kind));
      for (std::uint64_t sample = 0; sample < 6; ++sample) {
        const auto i = static_cast<std::size_t>(p.offset) + pick.below(static_cast<std::uint64_t>(p.size()), sample);
        const double kept = w.all()[i];
        const double h = 1e-5;
        w.all()[i] = kept + h;
        const double up = total_loss(model, w, batch.view(), scale);
        w.all()[i] = kept - h;
        const double down = total_loss(model, w, batch.view(), scale);
        w.all()[i] = kept;
        const double expected = (up - down) / (2 * h);
        INFO("weight " << static_cast<int>(kind) << " of layer " << layer << ", element " << i);
        CHECK(dw.all()[i] == Approx(expected).epsilon(2e-5).margin(2e-8));
      }
    });
  }
}

TEST_CASE("both passes at once are the forward pass and the backward pass", "[model]") {
  oracle backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_buffer<double> w = random_weights<double>(s);
    language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 2, 9);
    owned_batch batch(s.vocab, 2, 9);
    batch.targets[4] = -1;
    const loss_scale scale{.cross_entropy = 0.1, .balance = 0.3, .z = 0.1};
    weight_buffer<double> expected(s);
    const forward_result apart = model.forward(w, batch.view());
    const std::vector<double> losses(model.token_losses().begin(), model.token_losses().end());
    const double balance = apart.mean_balance(), z = apart.mean_z();
    model.backward(w, batch.view(), scale, expected);

    weight_buffer<double> found(s);
    const forward_result at_once = model.forward_and_backward(w, batch.view(), scale, found);
    CHECK(at_once.cross_entropy.nats == apart.cross_entropy.nats);
    CHECK(at_once.cross_entropy.targets == apart.cross_entropy.targets);
    CHECK(at_once.mean_balance() == balance);
    CHECK(at_once.mean_z() == z);
    CHECK(std::equal(losses.begin(), losses.end(), model.token_losses().begin()));
    CHECK(std::equal(expected.all().begin(), expected.all().end(), found.all().begin()));
    // It leaves no forward pass for a backward one.
    CHECK_THROWS_WITH(model.backward(w, batch.view(), scale, found), ContainsSubstring("found none"));
  }
}

TEST_CASE("a model that computes layers again has the same gradients, to the bit, in less memory", "[model]") {
  oracle backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_buffer<double> w = random_weights<double>(s);
    const owned_batch batch(s.vocab, 2, 9);
    const loss_scale scale{.cross_entropy = 0.1, .balance = 0.3, .z = 0.1};
    language_model<dynamic_arch, oracle> keeps(dynamic_arch(s), backend, 2, 9);
    language_model<dynamic_arch, oracle> computes(dynamic_arch(s), backend, 2, 9, saved_activations::inputs);
    CHECK(computes.memory() < keeps.memory());
    weight_buffer<double> expected(s), found(s);
    for (int pass = 0; pass < 2; ++pass) {  // the second one finds what the first one left
      const forward_result a = keeps.forward(w, batch.view());
      const forward_result b = computes.forward(w, batch.view());
      CHECK(a.cross_entropy.nats == b.cross_entropy.nats);
      CHECK(a.mean_balance() == b.mean_balance());
      for (const executed_layer e : schedule(s))
        CHECK(std::ranges::equal(keeps.layer(e.index).routed.load, computes.layer(e.index).routed.load));
      keeps.backward(w, batch.view(), scale, expected);
      computes.backward(w, batch.view(), scale, found);
      CHECK(std::equal(expected.all().begin(), expected.all().end(), found.all().begin()));
    }
    keeps.forward_and_backward(w, batch.view(), scale, expected);
    computes.forward_and_backward(w, batch.view(), scale, found);
    CHECK(std::equal(expected.all().begin(), expected.all().end(), found.all().begin()));
  }
}

TEST_CASE("a model for evaluation alone has the losses of any other, and no backward pass", "[model]") {
  oracle backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_buffer<double> w = random_weights<double>(s);
    const owned_batch batch(s.vocab, 2, 9);
    language_model<dynamic_arch, oracle> trains(dynamic_arch(s), backend, 2, 9, saved_activations::inputs);
    language_model<dynamic_arch, oracle> predicts(dynamic_arch(s), backend, 2, 9, saved_activations::none);
    CHECK(predicts.memory() < trains.memory());
    const forward_result a = trains.forward(w, batch.view());
    const forward_result b = predicts.forward(w, batch.view());
    CHECK(a.cross_entropy.nats == b.cross_entropy.nats);
    CHECK(a.mean_z() == b.mean_z());
    CHECK(std::ranges::equal(trains.token_losses(), predicts.token_losses()));
    weight_buffer<double> dw(s);
    CHECK_THROWS_WITH(predicts.backward(w, batch.view(), {}, dw), ContainsSubstring("found none"));
    CHECK_THROWS_WITH(predicts.forward_and_backward(w, batch.view(), {}, dw), ContainsSubstring("found none"));
  }
}

TEST_CASE("a learned coefficient that has come to 0 still has a gradient, and keeps its sign", "[model][visits]") {
  oracle backend;
  for (const visit_plan& plan : {visit_plan{.learned = true}, visit_plan{.learned = true, .compression = 2}}) {
    spec s = smelt_test::tiny;
    s.layers = 4;
    s.loop = {.count = loop_spec::half, .visits = visit_list{}.then(plan).then({})};
    const owned_batch batch(s.vocab, 2, 9);
    language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 2, 9);
    const loss_scale scale{.cross_entropy = 0.1, .balance = 0.7, .z = 0.05};
    weight_buffer<double> w = random_weights<double>(s);
    const auto with = [&](double coefficient) -> const weight_buffer<double>& {
      w.vector(weight::coefficient, 0)[0] = coefficient;
      return w;
    };
    const double h = 1e-5;
    const double slope =
        (total_loss(model, with(h), batch.view(), scale) - total_loss(model, with(-h), batch.view(), scale)) / (2 * h);
    REQUIRE(std::fabs(slope) > 1e-3);
    const auto hidden_at = [&](double coefficient) {
      model.forward(with(coefficient), batch.view());
      return std::vector<double>(model.hidden().data, model.hidden().data + model.hidden().size());
    };
    // Nearer to 0 than 2^-40 is 2^-40, on its own side.
    const double least = 0x1p-40;
    CHECK(hidden_at(0) == hidden_at(least));
    CHECK(hidden_at(least / 8) == hidden_at(least));
    CHECK(hidden_at(-least / 8) == hidden_at(-least));
    CHECK(hidden_at(-least) != hidden_at(least));
    CHECK(hidden_at(2 * least) != hidden_at(least));
    for (const double coefficient : {0.0, least / 8, -least / 8}) {
      weight_buffer<double> dw(s);
      model.forward(with(coefficient), batch.view());
      model.backward(w, batch.view(), scale, dw);
      CHECK(dw.vector(weight::coefficient, 0)[0] == Approx(slope).epsilon(1e-4));
    }
  }
}

namespace {

/// Four layers, the middle two visited by each kind of plan that runs layers of other sizes, and by one that does not.
constexpr spec visited_by(const visit_plan& plan) {
  spec s = smelt_test::tiny;
  s.layers = 4;
  s.loop = {.count = loop_spec::half, .visits = visit_list{}.then(plan).then({})};
  return s;
}
template <visit_plan Plan>
struct known : arch<visited_by(Plan)> {};

template <class Known>
void computes_what_any_other_does() {
  oracle backend;
  const spec s = Known::value;
  const weight_buffer<double> w = random_weights<double>(s);
  const owned_batch batch(s.vocab, 2, 9);
  const loss_scale scale{.cross_entropy = 0.1, .balance = 0.3, .z = 0.1};
  language_model<Known, oracle> a({}, backend, 2, 9);
  language_model<dynamic_arch, oracle> b(dynamic_arch(s), backend, 2, 9);
  weight_buffer<double> da(s), db(s);
  CHECK(a.forward_and_backward(w, batch.view(), scale, da).cross_entropy.nats ==
        b.forward_and_backward(w, batch.view(), scale, db).cross_entropy.nats);
  CHECK(std::ranges::equal(a.token_losses(), b.token_losses()));
  CHECK(std::ranges::equal(da.all(), db.all()));
}

}  // namespace

TEST_CASE("an architecture that the compiler knows computes as one that it does not, whatever its visits run",
          "[model][visits]") {
  computes_what_any_other_does<known<visit_plan{.residual = {1, 2}}>>();
  computes_what_any_other_does<known<visit_plan{.active = 1}>>();
  computes_what_any_other_does<known<visit_plan{.expert_hidden = {1, 2}}>>();
  computes_what_any_other_does<known<visit_plan{.compression = 2, .stream = {1, 2}}>>();
}

TEST_CASE("a looped model equals the unrolled one with copied weights", "[model]") {
  spec looped = smelt_test::tiny;
  looped.loop = {.first = 1, .count = 1, .visits = visits(2, {})};
  spec unrolled = smelt_test::tiny;
  unrolled.layers = 3;
  oracle backend;
  const owned_batch batch(looped.vocab, 2, 9);
  const weight_buffer<double> w = random_weights<double>(looped);
  weight_buffer<double> copied(unrolled);
  copied.layout().for_each([&](weight kind, int layer, const weight_place&) {
    const auto from = w(kind, std::min(std::max(layer, 0), 1));
    std::copy_n(from.data, from.size(), copied(kind, std::max(layer, 0)).data);
  });

  language_model<dynamic_arch, oracle> a(dynamic_arch(looped), backend, 2, 9);
  language_model<dynamic_arch, oracle> b(dynamic_arch(unrolled), backend, 2, 9);
  const forward_result ra = a.forward(w, batch.view());
  const forward_result rb = b.forward(copied, batch.view());
  CHECK(ra.cross_entropy.nats == rb.cross_entropy.nats);
  REQUIRE(ra.evaluations.size() == 3);
  CHECK(ra.mean_balance() == rb.mean_balance());
  for (std::int64_t i = 0; i < a.hidden().size(); ++i) REQUIRE(a.hidden().data[i] == b.hidden().data[i]);

  const loss_scale scale{.cross_entropy = 0.1, .balance = 0.3, .z = 0.1};
  weight_buffer<double> da(looped);
  weight_buffer<double> db(unrolled);
  a.backward(w, batch.view(), scale, da);
  b.backward(copied, batch.view(), scale, db);
  da.layout().for_each([&](weight kind, int layer, const weight_place& p) {
    const auto got = da(kind, std::max(layer, 0));
    const auto first = db(kind, std::max(layer, 0));
    for (std::int64_t i = 0; i < p.size(); ++i) {
      const double expected = first.data[i] + (layer == 1 ? db(kind, 2).data[i] : 0.0);
      REQUIRE(got.data[i] == Approx(expected).epsilon(1e-12).margin(1e-14));
    }
  });
}

TEST_CASE("a visit whose chunks are longer than the text is no visit, and its routers do not run", "[model]") {
  oracle backend;
  for (const int c : {2, 3, 4}) {
    spec with = smelt_test::tiny;
    with.layers = 4;
    with.loop = {.count = 2, .visits = visit_list{}.then({.compression = c}).then({.residual = {1, 2}})};
    spec without = with;
    without.loop.visits = visits(1, {.residual = {1, 2}});
    const weight_buffer<double> w = random_weights<double>(with);
    weight_buffer<double> copied(without);
    copied.layout().for_each([&](weight kind, int layer, const weight_place& p) {
      const auto from = w(kind, std::max(layer, 0));
      std::copy_n(from.data, p.size(), copied(kind, std::max(layer, 0)).data);
    });
    for (std::int64_t length = 1; length <= c; ++length) {
      INFO("chunks of " << c << ", sequences of " << length);
      const owned_batch batch(with.vocab, 2, length);
      language_model<dynamic_arch, oracle> a(dynamic_arch(with), backend, 2, length);
      language_model<dynamic_arch, oracle> b(dynamic_arch(without), backend, 2, length);
      weight_buffer<double> da(with), db(without);
      const loss_scale scale{.cross_entropy = 0.1, .balance = 0.3, .z = 0.1};
      const forward_result ra = a.forward_and_backward(w, batch.view(), scale, da);
      const forward_result rb = b.forward_and_backward(copied, batch.view(), scale, db);
      CHECK((ra.cross_entropy.nats == rb.cross_entropy.nats) == (length < c));
      CHECK(ra.evaluations.size() == rb.evaluations.size() + (length < c ? 0U : 2U));
      if (length == c) continue;
      CHECK(ra.mean_balance() == rb.mean_balance());
      db.layout().for_each([&](weight kind, int layer, const weight_place& p) {
        const auto found = da(kind, std::max(layer, 0));
        CHECK(std::equal(found.data, found.data + p.size(), db(kind, std::max(layer, 0)).data));
      });
      const auto unused = da.vector(weight::writeback, 0);
      CHECK(std::all_of(unused.begin(), unused.end(), [](double x) { return x == 0; }));
    }
  }
}

TEST_CASE("the first tokens of a compressed visit receive nothing, and every other token something", "[model]") {
  // The looped layer is all there is: a token that receives nothing is what it is when the layer writes nothing.
  oracle backend;
  for (const int c : {2, 3, 4}) {
    spec s = smelt_test::tiny;
    s.layers = 1;
    s.loop = {.first = 0, .count = 1, .visits = visits(1, {.compression = c, .writeback = writeback_kind::direct})};
    const weight_buffer<double> w = random_weights<double>(s);
    owned_batch batch(s.vocab, 1, 16);
    std::fill(batch.first.begin(), batch.first.end(), 0);
    language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 16);
    model.forward(w, batch.view());
    weight_buffer<double> silent = random_weights<double>(s);
    for (const weight kind : {weight::output, weight::expert_down}) {
      const auto m = silent(kind, 0);
      std::fill_n(m.data, m.size(), 0.0);
    }
    language_model<dynamic_arch, oracle> quiet(dynamic_arch(s), backend, 1, 16);
    quiet.forward(silent, batch.view());
    for (std::int64_t t = 0; t < 16; ++t) {
      INFO("chunks of " << c << ", token " << t);
      CHECK(std::ranges::equal(model.hidden().row(t), quiet.hidden().row(t)) == (t < c - 1));
    }
  }
}

TEST_CASE("a change behind a token leaves what came before bitwise as it was", "[model]") {
  oracle backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_buffer<double> w = random_weights<double>(s);
    language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 16);
    owned_batch batch(s.vocab, 1, 16);
    std::fill(batch.first.begin(), batch.first.end(), 0);
    model.forward(w, batch.view());
    const std::vector<double> before(model.hidden().data, model.hidden().data + model.hidden().size());
    for (const int prefix : {1, 3, 7, 15}) {
      owned_batch changed = batch;
      for (std::size_t t = static_cast<std::size_t>(prefix); t < 16; ++t)
        changed.inputs[t] = (changed.inputs[t] + 1) % s.vocab;
      model.forward(w, changed.view());
      CHECK(std::memcmp(before.data(), model.hidden().data,
                        sizeof(double) * static_cast<std::size_t>(prefix * s.width)) == 0);
      CHECK(std::memcmp(before.data(), model.hidden().data, sizeof(double) * before.size()) != 0);
    }
  }
}

TEST_CASE("documents and windows bound what a token sees", "[model]") {
  oracle backend;
  spec s = smelt_test::tiny;
  const weight_buffer<double> w = random_weights<double>(s);
  language_model<dynamic_arch, oracle> packed(dynamic_arch(s), backend, 1, 12);
  language_model<dynamic_arch, oracle> alone(dynamic_arch(s), backend, 1, 8);
  const owned_batch both(s.vocab, 1, 12);  // a document begins at position 4
  owned_batch second(s.vocab, 1, 8);
  std::copy(both.inputs.begin() + 4, both.inputs.end(), second.inputs.begin());
  std::fill(second.first.begin(), second.first.end(), 0);
  packed.forward(w, both.view());
  alone.forward(w, second.view());
  // Rotary attention sees differences of positions only, so that the document's place does not matter but for rounding.
  for (std::int64_t i = 0; i < alone.hidden().size(); ++i)
    REQUIRE(packed.hidden().data[4 * s.width + i] == Approx(alone.hidden().data[i]).epsilon(1e-10).margin(1e-12));
}

TEST_CASE("accumulated batches have the gradient of the big batch", "[model]") {
  oracle backend;
  const spec s = smelt_test::tiny;
  const weight_buffer<double> w = random_weights<double>(s);
  // 2 sequences, the first with 3 targets and the second with 9: each target must weigh 1 / 12.
  owned_batch big(s.vocab, 2, 9);
  for (std::size_t t = 0; t < 18; ++t) big.targets[t] = t < 9 && t % 3 != 0 ? -1 : static_cast<std::int32_t>(t % 11);
  const auto targets = std::count_if(big.targets.begin(), big.targets.end(), [](auto t) { return t >= 0; });
  REQUIRE(targets == 12);
  const loss_scale scale{.cross_entropy = 1.0 / 12};

  weight_buffer<double> whole(s);
  language_model<dynamic_arch, oracle> both(dynamic_arch(s), backend, 2, 9);
  both.forward(w, big.view());
  both.backward(w, big.view(), scale, whole);

  weight_buffer<double> parts(s);
  language_model<dynamic_arch, oracle> one(dynamic_arch(s), backend, 1, 9);
  for (std::size_t i = 0; i < 2; ++i) {
    const token_batch half{std::span(big.inputs).subspan(9 * i, 9), std::span(big.targets).subspan(9 * i, 9),
                           std::span(big.first).subspan(9 * i, 9), 1, 9};
    one.forward(w, half);
    one.backward(w, half, scale, parts);
  }
  for (std::size_t i = 0; i < parts.all().size(); ++i)
    REQUIRE(parts.all()[i] == Approx(whole.all()[i]).epsilon(1e-10).margin(1e-13));
}

TEST_CASE("router losses are means over the evaluations that ran", "[model]") {
  spec s = smelt_test::tiny;
  s.layers = 12;
  s.loop = middle_twice;
  oracle backend;
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 5);
  const forward_result r = model.forward(random_weights<double>(s), owned_batch(s.vocab, 1, 5).view());
  REQUIRE(r.evaluations.size() == 18);
  double sum = 0;
  for (const router_evaluation& e : r.evaluations) sum += e.losses.balance;
  CHECK(r.mean_balance() == Approx(sum / 18));
}

TEST_CASE("the model refuses what it cannot run, naming every field", "[model]") {
  spec s = smelt_test::tiny;
  s.attention.sinks = true;
  s.head_bias = true;
  s.norms_per_layer = 4;
  oracle backend;
  using model = language_model<dynamic_arch, oracle>;
  CHECK_THROWS_WITH(model(dynamic_arch(s), backend, 1, 4), ContainsSubstring("attention.sinks") &&
                                                               ContainsSubstring("head_bias") &&
                                                               ContainsSubstring("norms_per_layer"));
  const dynamic_arch good(smelt_test::tiny);
  CHECK_THROWS_WITH(model(good, backend, 0, 4), ContainsSubstring("found 0"));
  CHECK_THROWS_WITH(model(good, backend, 1, 17), ContainsSubstring("found 17") && ContainsSubstring("16"));
  model m(good, backend, 1, 4);
  const weight_buffer<double> w = random_weights<double>(smelt_test::tiny);
  CHECK_THROWS_WITH(m.forward(w, owned_batch(11, 2, 4).view()),
                    ContainsSubstring("1 x 4") && ContainsSubstring("2 x 4"));
  owned_batch bad(11, 1, 4);
  bad.inputs[2] = 11;
  CHECK_THROWS_WITH(m.forward(w, bad.view()), ContainsSubstring("11"));
  bad.inputs[2] = -1;
  CHECK_THROWS_WITH(m.forward(w, bad.view()), ContainsSubstring("inputs[2] is -1, needs 0 to 10"));
}

TEST_CASE("rows behind the vocabulary are nobody's token", "[model]") {
  spec s = smelt_test::tiny;
  s.padded_vocab = 16;
  oracle backend;
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 4);
  const weight_buffer<double> w = random_weights<double>(s);
  owned_batch batch(s.vocab, 1, 4);
  batch.inputs[1] = 11;
  CHECK_THROWS_WITH(model.forward(w, batch.view()), ContainsSubstring("inputs[1] is 11, needs 0 to 10"));
  batch.inputs[1] = 0;
  batch.targets[2] = 11;
  CHECK_THROWS_WITH(model.forward(w, batch.view()), ContainsSubstring("targets[2] is 11, needs -1 to 10"));
}

TEST_CASE("a refused batch changes nothing: the backward pass of the batch before it is as it would have been",
          "[model]") {
  oracle backend;
  spec s = smelt_test::tiny;
  s.attention.window = 3;
  const weight_buffer<double> w = random_weights<double>(s);
  const owned_batch batch(s.vocab, 2, 9);
  const loss_scale scale{.cross_entropy = 0.1, .balance = 0.3, .z = 0.1};
  language_model<dynamic_arch, oracle> undisturbed(dynamic_arch(s), backend, 2, 9);
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 2, 9);
  weight_buffer<double> expected(s), found(s);
  undisturbed.forward(w, batch.view());
  undisturbed.backward(w, batch.view(), scale, expected);

  model.forward(w, batch.view());
  owned_batch cut = batch;
  cut.first.pop_back();
  CHECK_THROWS_WITH(model.forward(w, cut.view()), ContainsSubstring("18, 18 and 17"));
  for (const auto spoil : {+[](owned_batch& b) { b.inputs[17] = 11; }, +[](owned_batch& b) { b.targets[17] = 11; },
                           +[](owned_batch& b) { b.targets[17] = -2; }, +[](owned_batch& b) { b.first[17] = 9; },
                           +[](owned_batch& b) { b.first[17] = -1; }}) {
    owned_batch bad = batch;
    std::fill(bad.first.begin(), bad.first.end(), 0);
    spoil(bad);
    CHECK_THROWS_AS(model.forward(w, bad.view()), error);
    CHECK_THROWS_AS(model.backward(w, bad.view(), scale, found), error);
  }
  model.backward(w, batch.view(), scale, found);
  CHECK(std::equal(found.all().begin(), found.all().end(), expected.all().begin()));
}

TEST_CASE("a backward pass needs a forward pass of its own", "[model]") {
  oracle backend;
  const spec s = smelt_test::tiny;
  const weight_buffer<double> w = random_weights<double>(s);
  const owned_batch batch(s.vocab, 1, 4);
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 4);
  weight_buffer<double> dw(s);
  CHECK_THROWS_WITH(model.backward(w, batch.view(), {}, dw), ContainsSubstring("forward pass"));
  model.forward(w, batch.view());
  model.backward(w, batch.view(), {}, dw);
  const std::vector<double> once(dw.all().begin(), dw.all().end());
  CHECK_THROWS_WITH(model.backward(w, batch.view(), {}, dw), ContainsSubstring("forward pass"));
  CHECK(std::equal(once.begin(), once.end(), dw.all().begin()));
}

TEST_CASE("sizes that no machine can hold are refused, not wrapped around", "[model]") {
  oracle backend;
  using model = language_model<dynamic_arch, oracle>;
  spec s = smelt_test::tiny;
  CHECK_THROWS_WITH(model(dynamic_arch(s), backend, std::int64_t{1} << 62, 16),
                    ContainsSubstring("at most 67108863") && ContainsSubstring("4611686018427387904"));
  s.attention = {.heads = 65'536, .kv_heads = 1, .head_dim = 65'536};
  CHECK_THROWS_WITH(model(dynamic_arch(s), backend, 1, 1), ContainsSubstring("65536 x 65536"));
  s = smelt_test::tiny;
  s.experts.stored = s.experts.hidden = s.width = 2'000'000'000;
  CHECK_THROWS_WITH(model(dynamic_arch(s), backend, 1, 1), ContainsSubstring("2^56"));
}

TEST_CASE("assignments that 32 bits cannot number are refused, those of a visit to more experts too", "[model]") {
  oracle backend;
  using model = language_model<dynamic_arch, oracle>;
  spec s = smelt_test::tiny;
  s.layers = 4;
  s.loop = {.count = loop_spec::half, .visits = visit_list{}.then({.active = 3}).then({})};
  const std::int64_t sequences = (std::int64_t{1} << 31) / 3 / s.context + 1;
  CHECK_THROWS_WITH(model(dynamic_arch(s), backend, sequences, s.context), ContainsSubstring("3 experts each"));
}

TEST_CASE("one of everything is a model, and so is one whose targets all count for nothing", "[model]") {
  oracle backend;
  const spec s{.vocab = 1,
               .context = 1,
               .width = 1,
               .layers = 1,
               .attention = {.heads = 1, .kv_heads = 1, .head_dim = 2},
               .experts = {.stored = 1, .active = 1, .hidden = 1}};
  const weight_buffer<double> w = random_weights<double>(s);
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 1);
  const std::vector<std::int32_t> zero{0}, none{-1};
  weight_buffer<double> dw(s);
  const forward_result sure = model.forward(w, {zero, zero, zero, 1, 1});
  CHECK(sure.cross_entropy.nats == 0);
  CHECK(sure.cross_entropy.targets == 1);
  CHECK(sure.mean_balance() == Approx(1));
  model.backward(w, {zero, zero, zero, 1, 1}, {}, dw);
  const forward_result nothing = model.forward(w, {zero, none, zero, 1, 1});
  CHECK(nothing.cross_entropy.targets == 0);
  model.backward(w, {zero, none, zero, 1, 1}, {}, dw);
  for (const double g : dw.all()) CHECK(g == 0);
}

TEST_CASE("an all-dense model does not look at the fields of experts it does not have", "[model]") {
  oracle backend;
  spec s = smelt_test::tiny;
  s.dense_layers = 2;
  s.dense_hidden = 7;
  s.experts = {.stored = -5, .active = -1, .balance_bias = true};
  language_model<dynamic_arch, oracle> model(dynamic_arch(s), backend, 1, 4);
  const weight_buffer<double> w = random_weights<double>(s);
  weight_buffer<double> dw(s);
  const owned_batch batch(s.vocab, 1, 4);
  CHECK(std::isfinite(model.forward(w, batch.view()).cross_entropy.nats));
  model.backward(w, batch.view(), {}, dw);
}
