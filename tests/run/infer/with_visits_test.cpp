// Is a model that visits its loop another number of times the same weights, run more or less often?
#include <smelt/infer/with_visits.hpp>

#include <algorithm>
#include <smelt/kernels/reference/backend.hpp>
#include <vector>

#include "catch.hpp"
#include "support/model_fixture.hpp"
#include "support/small_specs.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

namespace {

spec looped(const visit_list& list) {
  spec s = smelt_test::tiny;
  s.layers = 4;
  s.loop = {.count = loop_spec::half, .visits = list};
  return s;
}

std::vector<double> hidden_of(const spec& s, const weight_buffer<double>& w) {
  reference<double> backend;
  language_model<dynamic_arch, reference<double>> model(dynamic_arch(s), backend, 1, 12);
  const smelt_test::owned_batch batch(s.vocab, 1, 12);
  model.forward(w, batch.view());
  return {model.hidden().data, model.hidden().data + model.hidden().size()};
}

}  // namespace

TEST_CASE("another number of visits keeps the plan, its coefficient and the weights", "[infer][visits]") {
  const spec trained = looped(visits(2));
  const weight_buffer<double> w = smelt_test::random_weights<double>(trained);
  CHECK(with_visits(trained, 2) == trained);
  std::vector<std::vector<double>> found;
  for (const int count : {1, 2, 3, 16}) {
    const spec s = with_visits(trained, count);
    CHECK(span_of(s).visits == count);
    CHECK(schedule(s).size() == 4 + 2 * (count - 1));
    for (int v = 0; v < count; ++v) CHECK(s.loop.visits[v].residual == ratio{1, 2});
    CHECK(weight_layout(s).size() == w.layout().size());
    found.push_back(hidden_of(s, w));
    CHECK(std::ranges::count(found, found.back()) == 1);
  }
  CHECK(found[1] == hidden_of(trained, w));

  // One visit is the unlooped model but for the coefficient; of coefficient 1 it is that model.
  const spec whole = looped(visits(2, {}));
  spec unlooped = whole;
  unlooped.loop = {};
  CHECK(hidden_of(with_visits(whole, 1), w) == hidden_of(unlooped, w));
}

TEST_CASE("visits without weights may be compressed, with fewer experts, or a share of them", "[infer][visits]") {
  for (const visit_plan& plan : {visit_plan{.compression = 2, .writeback = writeback_kind::direct},
                                 visit_plan{.active = 1}, visit_plan{.expert_hidden = {1, 2}}}) {
    const spec trained = looped(visits(2, plan));
    const spec other = with_visits(trained, 5);
    CHECK(other.loop.visits == visits(5, plan));
    CHECK(weight_layout(other).size() == weight_layout(trained).size());
  }
}

TEST_CASE("a model that cannot be visited another number of times says why", "[infer][visits]") {
  const auto refused = [](const visit_list& list, const char* why) {
    CHECK_THROWS_WITH(with_visits(looped(list), 3), ContainsSubstring(why));
  };
  refused(visit_list{}.then({.residual = {1, 4}}).then({}), "follow one plan, found 2 plans");
  refused(visits(2, {.learned = true}), "found a learned coefficient in each");
  refused(visits(2, {.own_attention = true}), "attention of its own");
  refused(visits(2, {.compression = 2}), "a learned writeback");
  refused(visits(2, {.compression = 2, .encoder = encoder_kind::conv, .writeback = writeback_kind::direct}),
          "a learned encoder");
  refused(visits(2, {.stream = {1, 2}}), "projections of the stream");
  CHECK_THROWS_WITH(with_visits(smelt_test::tiny, 2), ContainsSubstring("without a loop"));
  for (const int count : {-1, 0, 17})
    CHECK_THROWS_WITH(with_visits(looped(visits(2)), count),
                      ContainsSubstring("from 1 to 16 of them, found " + std::to_string(count)));
}
