// Does an evaluation count every target once, in its category?
#include <smelt/train/evaluation.hpp>

#include <cstdint>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>

#include "catch.hpp"
#include "support/model_fixture.hpp"
#include "support/small_specs.hpp"
#include "support/synthetic_text.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

namespace {

using serial = cpu<serial_executor>;

dataset text() {
  dataset_builder builder(0.3);
  for (const document& d : smelt_test::synthetic_documents(3, 40)) builder.add(d);
  return std::move(builder).finish();
}

spec byte_model() {
  spec s = smelt_test::tiny;
  s.vocab = 257;
  s.context = 32;
  return s;
}

evaluation evaluated(const dataset& data, std::int64_t sequences, std::int64_t most = 0, std::int64_t patience = -1,
                     std::size_t categories = 3) {
  serial backend{serial_executor(1)};
  const spec s = byte_model();
  language_model<dynamic_arch, serial> model(dynamic_arch(s), backend, sequences, 32);
  return evaluate(model, smelt_test::random_weights<float>(s), data.validation, categories,
                  {.context = 32, .sequences = sequences}, most, [&] { return patience-- != 0; });
}

/// Targets of the first `windows` windows of the validation split, one category's or (-1) all.
std::int64_t counted(const dataset& data, std::int64_t windows, std::int32_t category) {
  std::int64_t n = 0;
  batch b;
  for (std::int64_t i = 0; i < windows; ++i) {
    fill_validation_batch(data.validation, {.context = 32, .sequences = 1}, i, b);
    for (std::size_t t = 0; t < b.targets.size(); ++t)
      n += b.targets[t] >= 0 && (category < 0 || b.categories[t] == category);
  }
  return n;
}

}  // namespace

TEST_CASE("an evaluation reads every target once, however the windows fall into batches", "[train]") {
  const dataset data = text();
  REQUIRE(data.categories.size() == 3);
  const std::int64_t windows = usable_windows(static_cast<std::int64_t>(data.validation.tokens.size()), 32);
  const evaluation one = evaluated(data, 1);
  CHECK(one.total.targets == counted(data, windows, -1));
  for (const std::int64_t sequences : {std::int64_t{2}, std::int64_t{7}, windows - 1, windows + 5}) {
    INFO(sequences << " sequences a batch, " << windows << " windows");
    const evaluation found = evaluated(data, sequences);
    CHECK(found.total.targets == one.total.targets);
    CHECK(found.total.nats == Approx(one.total.nats).epsilon(1e-6));
    CHECK(found.loss() == Approx(found.total.nats / static_cast<double>(found.total.targets)));
    double nats = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      CHECK(found.by_category[c].targets == counted(data, windows, static_cast<std::int32_t>(c)));
      CHECK(found.by_category[c].nats == Approx(one.by_category[c].nats).epsilon(1e-6));
      nats += found.by_category[c].nats;
    }
    CHECK(nats == Approx(found.total.nats).epsilon(1e-6));
  }
}

TEST_CASE("an evaluation stops at its limit and when it is told to", "[train]") {
  const dataset data = text();
  CHECK(evaluated(data, 2, 3).total.targets == counted(data, 6, -1));
  CHECK(evaluated(data, 2, 0, 2).total.targets == counted(data, 4, -1));
  CHECK(evaluated(data, 2, 1'000'000).total.targets == evaluated(data, 2).total.targets);
  const evaluation nothing = evaluated(data, 2, 0, 0);
  CHECK(nothing.total.targets == 0);
  CHECK(nothing.loss() == 0);
}

TEST_CASE("an evaluation refuses a category it has no place for", "[train]") {
  CHECK_THROWS_WITH(evaluated(text(), 2, 0, -1, 1), ContainsSubstring("category"));
}
