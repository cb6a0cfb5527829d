// Has every weight its own place and name, and the start that was promised?
#include <smelt/model/weight_layout.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <smelt/budget/parameters.hpp>
#include <smelt/model/tensor_names.hpp>
#include <smelt/model/weights.hpp>
#include <vector>

#include "catch.hpp"
#include "support/small_specs.hpp"

using namespace smelt;

TEST_CASE("every weight has its own aligned place and all of them are the counted parameters", "[model]") {
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_layout layout(s);
    std::int64_t end = 0;
    layout.for_each([&](weight w, int layer, const weight_place& p) {
      CHECK(p.offset >= end);
      CHECK(p.offset - end < 16);
      CHECK(p.offset % 16 == 0);
      CHECK(layout(w, layer < 0 ? 0 : layer) == p);
      end = p.offset + p.size();
    });
    CHECK(layout.size() >= end);
    CHECK(layout.parameters() == parameters(s).total);
  }
}

TEST_CASE("files have as many tensors as the ecosystem's", "[model]") {
  const spec olmoe{.vocab = 50'304,
                   .context = 4'096,
                   .width = 2'048,
                   .layers = 16,
                   .attention = {.heads = 16, .kv_heads = 16, .head_dim = 128, .norm = qk_norm::full_width},
                   .experts = {.stored = 64, .active = 8, .hidden = 1'024}};
  const spec mixtral{.vocab = 32'000,
                     .context = 4'096,
                     .width = 4'096,
                     .layers = 32,
                     .attention = {.heads = 32, .kv_heads = 8, .head_dim = 128},
                     .experts = {.stored = 8, .active = 2, .hidden = 14'336}};
  CHECK(named_tensors(weight_layout(olmoe), olmoe).size() == 3'219);
  CHECK(named_tensors(weight_layout(mixtral), mixtral).size() == 995);
}

TEST_CASE("tensor names are unique and cover every parameter once", "[model]") {
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_layout layout(s);
    std::set<std::string> names;
    std::int64_t sum = 0;
    std::int64_t end = 0;
    for (const named_tensor& t : named_tensors(layout, s)) {
      CHECK(names.insert(t.name).second);
      CHECK(t.offset >= end);
      std::int64_t elements = 1;
      for (const std::int64_t d : t.shape) elements *= d;
      CHECK(elements == t.size);
      end = t.offset + t.size;
      sum += t.size;
    }
    CHECK(sum == layout.parameters());
  }
}

TEST_CASE("initial weights depend on the seed and their place alone", "[model]") {
  const spec s = smelt_test::tiny;
  weight_buffer<float> a(s), b(s), c(s);
  initialise(a, s, 1);
  initialise(b, s, 1);
  initialise(c, s, 2);
  CHECK(std::equal(a.all().begin(), a.all().end(), b.all().begin()));
  CHECK_FALSE(std::equal(a.all().begin(), a.all().end(), c.all().begin()));
  for (const float gain : a.vector(weight::ffn_norm, 1)) CHECK(gain == 1.0F);
}

TEST_CASE("the first weights have the deviations that were promised, streams of their own, and nothing in the gaps",
          "[model]") {
  spec s = smelt_test::tiny;
  s.vocab = 500;
  s.width = 50;
  s.layers = 4;
  s.dense_layers = 1;
  s.dense_hidden = 60;
  s.experts = {.stored = 6, .active = 2, .hidden = 20, .shared_hidden = 40, .balance_bias = true};
  s.loop = middle_twice;  // 6 executed layers
  weight_buffer<float> w(s);
  initialise(w, s, 9);
  const double matrix = std::sqrt(2.0 / (5 * 50));
  std::vector<float> rest(w.all().begin(), w.all().end());
  std::set<std::vector<float>> seen;
  w.layout().for_each([&](weight kind, int layer, const weight_place& p) {
    INFO("weight " << static_cast<int>(kind) << " of layer " << layer);
    const std::vector<float> values(w.all().begin() + p.offset, w.all().begin() + p.offset + p.size());
    std::fill_n(rest.begin() + p.offset, p.size(), 0.0F);
    double squares = 0;
    for (const float x : values) squares += double(x) * double(x);
    const double deviation = std::sqrt(squares / double(values.size()));
    double expected = matrix;
    switch (kind) {
      case weight::attention_norm:
      case weight::ffn_norm:
      case weight::final_norm:
        CHECK(std::all_of(values.begin(), values.end(), [](float x) { return x == 1; }));
        return;
      case weight::balance_bias:
        CHECK(std::all_of(values.begin(), values.end(), [](float x) { return x == 0; }));
        return;
      case weight::embedding:
      case weight::head:
        expected = 0.02;
        break;
      case weight::output:
      case weight::expert_down:
      case weight::shared_down:
      case weight::dense_down:
        expected = matrix / std::sqrt(12.0);
        break;
      default:
        break;
    }
    // The deviation of a sample of n has one of about 1 / sqrt(2 n) of its own.
    CHECK(deviation == Approx(expected).epsilon(4 / std::sqrt(2.0 * double(values.size()))));
    CHECK(seen.insert(std::vector<float>(values.begin(), values.begin() + 8)).second);
  });
  CHECK(std::all_of(rest.begin(), rest.end(), [](float x) { return x == 0; }));
}

TEST_CASE("matrices decay, gains and biases do not", "[model]") {
  spec s = smelt_test::tiny;
  s.attention.norm = qk_norm::per_head;
  s.dense_layers = 1;
  s.dense_hidden = 7;
  s.experts.shared_hidden = 5;
  s.experts.balance_bias = true;
  weight_layout(s).for_each([](weight w, int, const weight_place& p) {
    INFO("weight " << static_cast<int>(w));
    CHECK(is_decayed(w) == (p.rows > 1));
  });
}

TEST_CASE("a visit starts as its plan says", "[model][visits]") {
  spec s = smelt_test::tiny;
  s.width = 50;
  s.layers = 4;
  s.loop = {.count = 2,
            .visits = visit_list{}
                          .then({.residual = {1, 4}, .learned = true, .compression = 3, .encoder = encoder_kind::conv})
                          .then({.residual = {-3, 2},
                                 .learned = true,
                                 .compression = 4,
                                 .encoder = encoder_kind::softmax,
                                 .writeback = writeback_kind::scalar})
                          .then({.compression = 2, .writeback = writeback_kind::normalised, .stream = {1, 2}})};
  weight_buffer<float> w(s);
  initialise(w, s, 9);
  const auto all_are = [&](weight kind, int visit, std::size_t size, float value) {
    const auto values = w.vector(kind, visit);
    return values.size() == size && std::ranges::all_of(values, [&](float x) { return x == value; });
  };
  CHECK(all_are(weight::coefficient, 0, 1, 0.25F));
  CHECK(all_are(weight::coefficient, 1, 1, -1.5F));
  CHECK(all_are(weight::coefficient, 2, 0, 0));
  CHECK(all_are(weight::encoder, 0, 3 * 50, 1.0F / 3));
  CHECK(all_are(weight::encoder, 1, 50, 0));
  CHECK(all_are(weight::encoder, 2, 0, 0));
  CHECK(all_are(weight::writeback, 0, 3 * 50, 1));
  CHECK(all_are(weight::writeback, 1, 4, 1));
  CHECK(all_are(weight::writeback, 2, 2 * 50, 1));
  const auto deviation = [&](weight kind) {
    double squares = 0;
    const auto values = w.vector(kind, 2);
    for (const float x : values) squares += double(x) * double(x);
    return std::sqrt(squares / double(values.size()));
  };
  // Up writes into the residual stream, down does not; 8 layers are executed.
  const double matrix = std::sqrt(2.0 / (5 * 50));
  const double off = 4 / std::sqrt(2.0 * 25 * 50);
  CHECK(deviation(weight::stream_down) == Approx(matrix).epsilon(off));
  CHECK(deviation(weight::stream_up) == Approx(matrix / std::sqrt(16.0)).epsilon(off));
}

TEST_CASE("of what a visit keeps, only matrices decay", "[model][visits]") {
  for (const weight w : {weight::coefficient, weight::encoder, weight::writeback}) CHECK_FALSE(is_decayed(w));
  for (const weight w : {weight::stream_down, weight::stream_up}) CHECK(is_decayed(w));
  for (const weight w : {weight::attention_norm, weight::query_norm, weight::key_norm, weight::ffn_norm,
                         weight::final_norm, weight::balance_bias})
    CHECK_FALSE(is_decayed(w));
  for (const weight w : {weight::embedding, weight::query, weight::key, weight::value, weight::output, weight::router,
                         weight::expert_gate, weight::expert_down, weight::shared_up, weight::dense_down, weight::head})
    CHECK(is_decayed(w));
}
