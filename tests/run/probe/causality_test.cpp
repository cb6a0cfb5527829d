// Does the probe find nothing where there is nothing, and every leak that there is?
#include <smelt/probe/causality.hpp>
#include <smelt/probe/probe_weights.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "support/backends.hpp"
#include "support/model_fixture.hpp"
#include "support/small_specs.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;
using smelt_test::named_spec;

namespace {

/// `tiny` with four layers, the middle two visited as `list` says, and room for every length of the probe.
spec looped(const visit_list& list) {
  spec s = smelt_test::tiny;
  s.context = 65;
  s.layers = 4;
  s.loop = {.count = loop_spec::half, .visits = list};
  return s;
}

spec compressed(int factor, encoder_kind encoder = {}, writeback_kind writeback = writeback_kind::scaled) {
  return looped(
      visit_list{}.then({.compression = factor, .encoder = encoder, .writeback = writeback}).then(visit_plan{}));
}

/// Every kind of visit, and every way to pool and to write back chunks of 2, 3 and 4 tokens.
std::vector<named_spec> probed_specs() {
  std::vector<named_spec> all;
  for (named_spec& one : smelt_test::visit_variants()) {
    one.value.context = 65;
    all.push_back(one);
  }
  for (const int factor : {2, 3, 4})
    for (const encoder_kind encoder : {encoder_kind::mean, encoder_kind::conv, encoder_kind::softmax})
      for (const writeback_kind writeback :
           {writeback_kind::direct, writeback_kind::scaled, writeback_kind::scalar, writeback_kind::normalised})
        all.push_back({"c = " + std::to_string(factor) + ", encoder " + std::to_string(static_cast<int>(encoder)) +
                           ", writeback " + std::to_string(static_cast<int>(writeback)),
                       compressed(factor, encoder, writeback)});
  return all;
}

std::string words(const causality_report& r) {
  if (!r.leak) return "no leak, " + std::to_string(r.changed) + " positions changed";
  const causality_leak& l = *r.leak;
  return std::string(name_of(l.what)) + " of position " + std::to_string(l.position) + " of sequence " +
         std::to_string(l.sequence) + ", length " + std::to_string(l.length) + ", prefix " + std::to_string(l.prefix) +
         ", document at " + std::to_string(l.document) + ", layer " + std::to_string(l.layer) + ", visit " +
         std::to_string(l.visit) + ", logits differ by " + std::to_string(l.logit_difference);
}

template <class B>
causality_report probe(B& backend, const spec& s, const std::vector<std::int64_t>& lengths = causality_lengths(65)) {
  return probe_causality(dynamic_arch(s), backend, smelt_test::random_weights<typename B::scalar>(s), lengths);
}

template <class B>
void require_causal(B& backend, const std::vector<std::int64_t>& lengths = causality_lengths(65)) {
  for (const auto& [name, s] : probed_specs()) {
    INFO(name);
    const causality_report r = probe(backend, s, lengths);
    INFO(words(r));
    REQUIRE(r.holds());
  }
}

// ---- backends that let the future in ----

using oracle = reference<double>;

/// Gives the increment of a latent to the tokens of its own chunk: one chunk early for all but one of them.
struct early_writeback : oracle {
  void write_back(write_back_shape shape, const_matrix h, const_matrix d, const_matrix, indices, std::int64_t,
                  std::int64_t length, matrix out) const {
    const std::int64_t chunks = length / shape.factor;
    for (std::int64_t row = 0; row < h.rows; ++row) {
      const std::int64_t sequence = row / length, chunk = row % length / shape.factor;
      for (std::int64_t i = 0; i < h.cols; ++i)
        out(row, i) = h(row, i) + (chunk < chunks ? d(sequence * chunks + chunk, i) : 0.0);
    }
  }
};

/// Makes every latent of the mean over its whole sequence.
struct sequence_pool : oracle {
  void pool(pool_shape shape, const_matrix x, const_matrix, indices, std::int64_t length, matrix z) const {
    const std::int64_t chunks = length / shape.factor;
    for (std::int64_t row = 0; row < z.rows; ++row)
      for (std::int64_t i = 0; i < z.cols; ++i) {
        z(row, i) = 0;
        for (std::int64_t t = 0; t < length; ++t) z(row, i) += x(row / chunks * length + t, i) / double(length);
      }
  }
};

/// Pools a chunk together with the first token of the next one.
struct wide_pool : oracle {
  void pool(pool_shape shape, const_matrix x, const_matrix, indices, std::int64_t length, matrix z) const {
    const std::int64_t chunks = length / shape.factor;
    for (std::int64_t row = 0; row < z.rows; ++row) {
      const std::int64_t begin = row % chunks * shape.factor;
      const std::int64_t end = (std::min)(begin + shape.factor + 1, length);
      for (std::int64_t i = 0; i < z.cols; ++i) {
        z(row, i) = 0;
        for (std::int64_t t = begin; t < end; ++t) z(row, i) += x(row / chunks * length + t, i) / double(end - begin);
      }
    }
  }
};

/// Routes by the mean of the logits over all that it is given.
struct batch_router : oracle {
  void route(router_shape shape, const_matrix logits, const_vector bias, matrix scores, std::span<std::int32_t> ids,
             matrix weights, vector logsumexp) const {
    std::vector<double> mixed(logits.data, logits.data + logits.size());
    for (std::int64_t e = 0; e < logits.cols; ++e) {
      double mean = 0;
      for (std::int64_t row = 0; row < logits.rows; ++row) mean += logits(row, e) / double(logits.rows);
      for (std::int64_t row = 0; row < logits.rows; ++row)
        mixed[static_cast<std::size_t>(row * logits.cols + e)] += mean;
    }
    oracle::route(shape, const_matrix(mixed.data(), logits.rows, logits.cols), bias, scores, ids, weights, logsumexp);
  }
};

/// Lets a token attend to the one behind it.
struct far_sighted : oracle {
  template <class Shape>
  void attention(Shape shape, const_matrix q, const_matrix k, const_matrix v, indices first, std::int64_t length,
                 matrix out, vector lse) const {
    std::vector<double> keys(k.data, k.data + k.size());
    for (std::int64_t row = 0; row + 1 < k.rows; ++row)
      if ((row + 1) % length != 0) keys[static_cast<std::size_t>(row * k.cols)] += 0.01 * k(row + 1, 0);
    oracle::attention(shape, q, const_matrix(keys.data(), k.rows, k.cols), v, first, length, out, lse);
  }
};

/// The same, in second documents alone.
struct far_sighted_later : oracle {
  template <class Shape>
  void attention(Shape shape, const_matrix q, const_matrix k, const_matrix v, indices first, std::int64_t length,
                 matrix out, vector lse) const {
    std::vector<double> keys(k.data, k.data + k.size());
    for (std::int64_t row = 0; row + 1 < k.rows; ++row)
      if ((row + 1) % length != 0 && first[static_cast<std::size_t>(row)] % length != 0)
        keys[static_cast<std::size_t>(row * k.cols)] += 0.01 * k(row + 1, 0);
    oracle::attention(shape, q, const_matrix(keys.data(), k.rows, k.cols), v, first, length, out, lse);
  }
};

/// Makes nothing of a chunk behind which a document begins.
struct border_pool : oracle {
  void pool(pool_shape shape, const_matrix x, const_matrix w, indices first, std::int64_t length, matrix z) const {
    oracle::pool(shape, x, w, first, length, z);
    const std::int64_t chunks = length / shape.factor;
    for (std::int64_t row = 0; row < z.rows; ++row) {
      const std::int64_t next = row / chunks * length + (row % chunks + 1) * shape.factor;
      if (next % length != 0 && first[static_cast<std::size_t>(next)] == next)
        for (std::int64_t i = 0; i < z.cols; ++i) z(row, i) = 0;
    }
  }
};

/// Adds to a token's logits what the next one's hidden state is.
struct far_sighted_head : oracle {
  template <ShapeOf<linear_shape> Shape>
  void linear(Shape shape, const_matrix x, const_matrix w, matrix y) const {
    oracle::linear(shape, x, w, y);
    if (y.cols != smelt_test::tiny.vocab) return;
    for (std::int64_t row = 0; row + 1 < y.rows; ++row) y(row, 0) += 0.01 * x(row + 1, 0);
  }
};

static_assert(Backend<far_sighted_later> && Backend<border_pool> && Backend<far_sighted_head>);
static_assert(Backend<early_writeback> && Backend<sequence_pool> && Backend<wide_pool> && Backend<batch_router> &&
              Backend<far_sighted>);

}  // namespace

TEST_CASE("the probe's lengths and prefixes are those where something ends", "[probe][causality]") {
  CHECK(causality_lengths(65) == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 63, 64, 65});
  CHECK(causality_lengths(32) == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32});
  CHECK(causality_lengths(3) == std::vector<std::int64_t>{1, 2, 3});
  CHECK(causality_prefixes(1) == std::vector<std::int64_t>{0, 1});
  CHECK(causality_prefixes(5) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(causality_prefixes(64) == std::vector<std::int64_t>{1, 2, 3, 4, 6, 7, 8, 14, 15, 16, 30, 31, 32, 33, 62, 63});
}

TEST_CASE("no plan lets the future in, at a few lengths", "[probe][causality]") {
  oracle plain;
  require_causal(plain, {1, 4, 7});
  test::cpu_backend packed = test::make_backend<test::cpu_backend>();
  require_causal(packed, {5, 8, 33});
}

TEST_CASE("no plan lets the future in: reference in float64", "[probe][causality][full]") {
  oracle backend;
  require_causal(backend);
}

TEST_CASE("no plan lets the future in: reference in float32", "[probe][causality][full]") {
  reference<float> backend;
  require_causal(backend);
}

TEST_CASE("no plan lets the future in: the CPU backend, with every instruction set", "[probe][causality][full]") {
  for (const test::cpu_variant& variant : test::usable_variants()) {
    INFO(variant.name());
    test::cpu_backend backend(threads_executor(2), variant.compute, variant.set);
    require_causal(backend);
  }
}

TEST_CASE("a size at which experts are packed and tiles are full is causal as well", "[probe][causality]") {
  spec s = compressed(2, encoder_kind::conv);
  s.vocab = 70;
  s.width = 48;
  s.attention = {.heads = 3, .kv_heads = 1, .head_dim = 16};
  s.experts = {.stored = 24, .active = 4, .hidden = 40, .renormalise = true};
  // Whole panels and vectors: tiles of every height, in which the same sums must come out.
  spec even = s;
  even.width = 64;
  even.attention = {.heads = 4, .kv_heads = 2, .head_dim = 16};
  even.experts = {.stored = 8, .active = 2, .hidden = 32, .renormalise = true};
  for (const spec& one : {s, even}) {
    for (const test::cpu_variant& variant : test::usable_variants()) {
      INFO(variant.name() << ", width " << one.width);
      test::cpu_backend backend(threads_executor(2), variant.compute, variant.set);
      const causality_report r = probe(backend, one);
      INFO(words(r));
      CHECK(r.holds());
    }
  }
}

TEST_CASE("an increment written back a chunk early is a leak that the probe finds", "[probe][causality]") {
  early_writeback backend;
  for (const int factor : {2, 3, 4}) {
    const spec s = compressed(factor);
    const causality_report r = probe(backend, s);
    INFO(words(r));
    REQUIRE(r.leak);
    CHECK_FALSE(r.holds());
    // The first chunk there is, cut before its last token: its first token knows the last one.
    CHECK(r.leak->length == factor);
    CHECK(r.leak->position == 0);
    CHECK(r.leak->logit_difference > 1e-6);
    // At the lengths and prefixes of long sequences alone.
    for (const std::int64_t length : {31, 32, 33, 63, 64, 65}) CHECK(probe(backend, s, {length}).leak);
  }
  // Of one token there is no chunk, so nothing to find; and nothing in a model without chunks.
  CHECK(probe(backend, compressed(2), {1}).holds());
  CHECK(probe(backend, looped(visits(2))).holds());
}

TEST_CASE("latents that know more than their chunk are a leak that the probe finds", "[probe][causality]") {
  sequence_pool by_sequence;
  wide_pool by_one;
  for (const int factor : {2, 3, 4}) {
    const spec s = compressed(factor);
    const causality_report all = probe(by_sequence, s);
    INFO(words(all));
    REQUIRE(all.leak);
    CHECK(all.leak->length == factor + 1);
    const causality_report one = probe(by_one, s);
    INFO(words(one));
    REQUIRE(one.leak);
    // Its router is the first to know, at the chunk's last token.
    CHECK(one.leak->what == leaked::routing);
    CHECK(one.leak->position == factor - 1);
    CHECK(one.leak->layer == 1);
    CHECK(one.leak->visit == 0);
  }
}

TEST_CASE("a router that looks at the whole batch is a leak that the probe finds", "[probe][causality]") {
  batch_router backend;
  for (const visit_list& list : {visits(2), visit_list{}.then({.compression = 2}).then(visit_plan{})}) {
    const causality_report r = probe(backend, looped(list));
    INFO(words(r));
    REQUIRE(r.leak);
    CHECK(r.leak->what == leaked::routing);
  }
}

TEST_CASE("keys that know the next token are a leak that the probe finds", "[probe][causality]") {
  far_sighted backend;
  const causality_report r = probe(backend, looped(visits(2)));
  INFO(words(r));
  REQUIRE(r.leak);
  CHECK(r.leak->length > 1);
  CHECK(r.leak->position == r.leak->prefix - 1);
}

TEST_CASE("what leaks in second documents alone, or of where a document begins, is found as well",
          "[probe][causality]") {
  far_sighted_later by_document;
  const causality_report later = probe(by_document, looped(visits(2)));
  INFO(words(later));
  REQUIRE(later.leak);
  CHECK(later.leak->document > 0);
  border_pool by_border;
  for (const int factor : {2, 3, 4}) {
    const causality_report r = probe(by_border, compressed(factor));
    INFO(words(r));
    REQUIRE(r.leak);
    CHECK(r.leak->document == factor);
    CHECK(r.leak->position == factor - 1);
  }
}

TEST_CASE("logits that know the next token are a leak that the probe finds", "[probe][causality]") {
  far_sighted_head backend;
  const causality_report r = probe(backend, looped(visits(2)));
  INFO(words(r));
  REQUIRE(r.leak);
  CHECK(r.leak->what == leaked::logits);
  CHECK(r.leak->hidden_difference == 0);
  CHECK(r.leak->logit_difference > 0);
}

TEST_CASE("a probe counts what it compared, and one that sees nothing change does not hold", "[probe][causality]") {
  oracle backend;
  const spec s = compressed(2);
  const causality_report r = probe(backend, s, {2});
  // Prefixes 0, 1, 2 of the first sequence and 2, 1, 0 of the second; 1 with a document that begins there as well.
  CHECK(r.comparisons == 4);
  CHECK(r.positions == 8);
  CHECK(r.changed == 6);
  CHECK(r.routed > 0);
  weight_buffer<double> blind = smelt_test::random_weights<double>(s);
  std::ranges::fill(blind.vector(weight::embedding), 0.25);
  const std::vector<std::int64_t> lengths{4};
  const causality_report nothing = probe_causality(dynamic_arch(s), backend, blind, lengths);
  CHECK_FALSE(nothing.leak);
  CHECK(nothing.changed == 0);
  CHECK_FALSE(nothing.holds());
}

TEST_CASE("what a probe cannot probe is refused by name", "[probe][causality]") {
  oracle backend;
  const spec s = compressed(2);
  CHECK_THROWS_WITH(probe(backend, s, {}), ContainsSubstring("at least 1 length"));
  CHECK_THROWS_WITH(probe(backend, s, {66}), ContainsSubstring("context of 65"));
  spec one = s;
  one.vocab = 1;
  CHECK_THROWS_WITH(probe(backend, one, {4}), ContainsSubstring("at least 2 tokens, found 1"));
}

TEST_CASE("probe weights leave nothing at a constant", "[probe]") {
  const spec s = compressed(2, encoder_kind::softmax);
  const weight_buffer<float> w = probe_weights<float>(s, 3);
  const weight_buffer<float> same = probe_weights<float>(s, 3);
  const weight_buffer<float> other = probe_weights<float>(s, 4);
  CHECK(std::ranges::equal(w.all(), same.all()));
  w.layout().for_each([&](weight kind, int index, const weight_place& p) {
    const auto values = w.all().subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.size()));
    const auto others = other.all().subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.size()));
    INFO(static_cast<int>(kind) << " " << index);
    CHECK_FALSE(std::ranges::equal(values, others));
    CHECK(std::ranges::count(values, values.front()) == 1);
  });
}
