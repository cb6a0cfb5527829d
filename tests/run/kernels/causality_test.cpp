// On what do a token's bits depend? On the shape of the batch and on the tokens before it: not on what other tokens
// are, nor on how many of them chose which expert.
#include "support/backends.hpp"

#include "catch.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <smelt/core/random.hpp>
#include <smelt/kernels/attention_input.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/shapes.hpp>
#include <string>
#include <utility>
#include <vector>

namespace {

using floats = std::vector<float>;

/// What the tokens behind the cut are in the second of two batches.
enum class suffix { other, same_for_all, not_finite };

/// One of two batches of sequences of `length` tokens, whose first `cut` tokens are the same in both.
struct batch {
  std::int64_t sequences;
  std::int64_t length;
  std::int64_t cut;
  bool second = false;
  suffix behind = suffix::other;

  [[nodiscard]] std::int64_t rows() const { return sequences * length; }
  [[nodiscard]] bool changed(std::int64_t row) const { return second && row % length >= cut; }

  [[nodiscard]] floats numbers(std::int64_t width, std::uint64_t stream) const {
    floats values;
    for (std::int64_t row = 0; row < rows(); ++row) {
      const bool other = changed(row);
      const bool same = other && behind == suffix::same_for_all;
      const smelt::random_stream random(31 + stream,
                                        same ? 1'000'000U : static_cast<std::uint64_t>(row + other * 5'000));
      for (std::int64_t i = 0; i < width; ++i) {
        float value = static_cast<float>(2 * random.uniform(static_cast<std::uint64_t>(i)) - 1);
        if (other && behind == suffix::not_finite) {
          value = i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
        }
        values.push_back(value);
      }
    }
    return values;
  }

  /// Documents that end anywhere, behind the cut elsewhere than in the other batch.
  [[nodiscard]] std::vector<std::int32_t> first() const {
    std::vector<std::int32_t> rows_seen;
    for (std::int64_t row = 0; row < rows(); ++row) {
      const smelt::random_stream random(41, static_cast<std::uint64_t>(row + changed(row) * 5'000));
      const bool begins = row % length == 0 || random.below(4, 0) == 0;
      rows_seen.push_back(begins ? static_cast<std::int32_t>(row) : rows_seen.back());
    }
    return rows_seen;
  }
};

/// The same for both batches.
floats weight(std::int64_t size, std::uint64_t stream, float scale = 1) {
  const smelt::random_stream random(51, stream);
  floats values;
  for (std::int64_t i = 0; i < size; ++i)
    values.push_back(scale * static_cast<float>(2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
  return values;
}

smelt::matrix_view<float> view(floats& values, std::int64_t cols) {
  return {values.data(), cols == 0 ? 0 : static_cast<std::int64_t>(values.size()) / cols, cols};
}

floats room(std::int64_t size) {
  return floats(static_cast<std::size_t>(size), std::numeric_limits<float>::quiet_NaN());
}

// ---- the ops: each gives arrays with a row for every token
// -----------------------------------------------------------

template <class B>
std::vector<floats> norms(B& backend, const batch& of) {
  const int width = 37;
  floats x = of.numbers(width, 1), gain = weight(width, 1), y = room(of.rows() * width), inverse = room(of.rows());
  backend.rms_norm(smelt::norm_shape{.width = width}, view(x, width), gain, view(y, width), inverse);
  return {y, inverse};
}

template <class B>
std::vector<floats> projections(B& backend, const batch& of) {
  const smelt::linear_shape shape{.in = 37, .out = 45};
  floats x = of.numbers(shape.in, 1), w = weight(shape.in * shape.out, 1), h = of.numbers(shape.out, 2);
  floats y = room(of.rows() * shape.out), sum = y;
  backend.linear(shape, view(x, shape.in), view(w, shape.in), view(y, shape.out));
  backend.add_linear(shape, 0.5, view(h, shape.out), view(x, shape.in), view(w, shape.in), view(sum, shape.out));
  return {y, sum};
}

template <class B>
std::vector<floats> attention(B& backend, const batch& of, bool documents) {
  const smelt::attention_input_shape input{
      .width = 40, .heads = 4, .kv_heads = 2, .head_dim = 12, .norm = smelt::qk_norm::per_head};
  const smelt::attention_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 12};
  const std::int64_t rows = of.rows();
  const int queries = smelt::query_width(input), keys = smelt::kv_width(input);
  floats x = of.numbers(input.width, 1), norm = weight(input.width, 1), query_norm = weight(12, 2),
         key_norm = weight(12, 3);
  floats w_query = weight(queries * input.width, 4, 0.2F), w_key = weight(keys * input.width, 5, 0.2F),
         w_value = weight(keys * input.width, 6, 0.2F);
  floats q = room(rows * queries), k = room(rows * keys), v = k, raw_query = q, raw_key = k;
  floats inverse = room(rows), query_inverse = room(rows * 4), key_inverse = room(rows * 2);
  std::vector<std::int32_t> positions, first = of.first();
  for (std::int64_t t = 0; t < rows; ++t) {
    positions.push_back(static_cast<std::int32_t>(t % of.length));
    if (!documents) first[t] = static_cast<std::int32_t>(t - t % of.length);
  }
  backend.attention_input(
      input, view(x, input.width),
      smelt::attention_input_weights<const float>{norm, view(w_query, input.width), view(w_key, input.width),
                                                  view(w_value, input.width), query_norm, key_norm},
      positions,
      smelt::attention_input_saved<float>{inverse, view(raw_query, queries), view(raw_key, keys), query_inverse,
                                          key_inverse},
      smelt::query_key_value<float>{view(q, queries), view(k, keys), view(v, keys)});
  floats out = room(rows * queries), lse = room(rows * 4);
  backend.attention(shape, view(q, queries), view(k, keys), view(v, keys), first, of.length, view(out, queries), lse);
  return {q, k, v, out, lse};
}

/// The tokens of one sequence at a time go on with it.
template <class B>
std::vector<floats> cached_attention(B& backend, const batch& of, std::int64_t window) {
  const smelt::attention_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 12};
  const std::int64_t before = 9, keys = before + of.length;
  const int width = 48, kv_width = 24;
  floats q = of.numbers(width, 1), k = of.numbers(kv_width, 2), v = of.numbers(kv_width, 3);
  floats out = room(of.rows() * width);
  for (std::int64_t s = 0; s < of.sequences; ++s) {
    floats kept_keys = weight(before * kv_width, 1), kept_values = weight(before * kv_width, 2);
    const std::int64_t at = s * of.length * kv_width, size = of.length * kv_width;
    kept_keys.insert(kept_keys.end(), k.begin() + at, k.begin() + at + size);
    kept_values.insert(kept_values.end(), v.begin() + at, v.begin() + at + size);
    const std::int64_t row = s * of.length * width;
    backend.attention_cached(shape, smelt::matrix_view<const float>(q.data() + row, of.length, width),
                             smelt::matrix_view<const float>(kept_keys.data(), keys, kv_width),
                             smelt::matrix_view<const float>(kept_values.data(), keys, kv_width), window,
                             smelt::matrix_view<float>(out.data() + row, of.length, width));
  }
  return {out};
}

/// From logits to what the experts give.
template <class B>
std::vector<floats> experts(B& backend, const batch& of, int stored, int active) {
  const smelt::router_shape router{.experts = stored, .active = active, .renormalise = true};
  const smelt::experts_shape shape{.experts = stored, .active = active, .width = 19, .hidden = 21};
  const std::int64_t rows = of.rows(), matrix = std::int64_t{stored} * shape.width * shape.hidden;
  floats x = of.numbers(shape.width, 1), residual = of.numbers(shape.width, 2), logits = of.numbers(stored, 3);
  floats w_gate = weight(matrix, 1, 0.2F), w_up = weight(matrix, 2, 0.2F), w_down = weight(matrix, 3, 0.2F);
  floats scores = room(rows * stored), weights = room(rows * active), logsumexp = room(rows);
  floats gate = room(rows * active * shape.hidden), up = gate, y = room(rows * shape.width);
  const auto assignments = static_cast<std::size_t>(rows * active);
  std::vector<std::int32_t> ids(assignments), offsets(static_cast<std::size_t>(stored) + 1), assignment(assignments),
      row(assignments);
  backend.route(router, view(logits, stored), {}, view(scores, stored), ids, view(weights, active), logsumexp);
  backend.group_by_expert(router, ids, smelt::grouping_view<std::int32_t>(offsets, assignment, row));
  backend.experts(shape, 0.5, view(residual, shape.width), view(x, shape.width), view(w_gate, shape.width),
                  view(w_up, shape.width), view(w_down, shape.hidden), smelt::grouping_view<>(offsets, assignment, row),
                  view(weights, active), view(gate, shape.hidden), view(up, shape.hidden), view(y, shape.width));
  return {scores, weights, logsumexp, y};
}

/// Chunks to latents, what a norm does to these, and back to the tokens.
template <class B>
std::vector<floats> compressed(B& backend, const batch& of, const smelt::pool_shape& pool,
                               smelt::writeback_kind writeback, bool documents) {
  const std::int64_t latents = of.sequences * (of.length / pool.factor);
  const int width = pool.width;
  const bool conv = pool.encoder == smelt::encoder_kind::conv, softmax = pool.encoder == smelt::encoder_kind::softmax;
  const bool numbers = writeback == smelt::writeback_kind::scalar;
  floats h = of.numbers(width, 1), gain = weight(width, 3), inverse = room(latents);
  floats encoder = weight(conv ? pool.factor * width : softmax ? width : 0, 1);
  floats decoder = weight(writeback == smelt::writeback_kind::direct ? 0
                          : numbers                                  ? pool.factor
                                                                     : pool.factor * width,
                          2);
  floats z = room(latents * width), done = z, increment = z;
  const std::vector<std::int32_t> first = documents ? of.first() : std::vector<std::int32_t>();
  backend.pool(pool, view(h, width), view(encoder, width), first, of.length, view(z, width));
  backend.rms_norm(smelt::norm_shape{.width = width}, view(z, width), gain, view(done, width), inverse);
  backend.difference(view(done, width), view(z, width), view(increment, width));
  backend.write_back(smelt::write_back_shape{.width = width, .factor = pool.factor, .writeback = writeback},
                     view(h, width), view(increment, width), view(decoder, numbers ? pool.factor : width), first, 0,
                     of.length, view(h, width));
  return {h};
}

template <class B>
std::vector<floats> losses(B& backend, const batch& of) {
  const smelt::head_shape shape{.width = 37, .vocab = 70};
  floats x = of.numbers(shape.width, 1), table = weight(shape.vocab * shape.width, 1, 0.2F);
  floats nats = room(of.rows()), logsumexp = nats;
  std::vector<std::int32_t> targets;
  for (std::int64_t t = 0; t < of.rows(); ++t) targets.push_back(static_cast<std::int32_t>((t + of.changed(t)) % 70));
  static_cast<void>(
      backend.cross_entropy(shape, view(x, shape.width), view(table, shape.width), targets, nats, logsumexp));
  return {nats, logsumexp};
}

/// The first array and row before the cut where the two differ; empty where none does.
std::string first_difference(const batch& of, const std::vector<floats>& a, const std::vector<floats>& b) {
  for (std::size_t n = 0; n < a.size(); ++n) {
    const std::size_t width = a[n].size() / static_cast<std::size_t>(of.rows());
    for (std::int64_t row = 0; row < of.rows(); ++row) {
      if (row % of.length >= of.cut) continue;
      const std::size_t at = static_cast<std::size_t>(row) * width;
      if (std::memcmp(a[n].data() + at, b[n].data() + at, width * sizeof(float)) != 0) {
        return "array " + std::to_string(n) + ", row " + std::to_string(row);
      }
    }
  }
  return "";
}

template <class Each>
void for_each_op(Each each, std::int64_t length) {
  each("rms_norm", [](auto& b, const batch& of) { return norms(b, of); });
  each("linear", [](auto& b, const batch& of) { return projections(b, of); });
  each("attention", [](auto& b, const batch& of) { return attention(b, of, false); });
  each("attention with documents", [](auto& b, const batch& of) { return attention(b, of, true); });
  each("attention_cached", [](auto& b, const batch& of) { return cached_attention(b, of, 0); });
  each("attention_cached with a window", [](auto& b, const batch& of) { return cached_attention(b, of, 7); });
  // Of few experts a task takes blocks of tokens, of many the tokens of one; of some only a few have tokens.
  for (const auto& counts : {std::pair(3, 2), std::pair(24, 2), std::pair(100, 1), std::pair(1, 1)}) {
    each("experts of " + std::to_string(counts.first),
         [counts](auto& b, const batch& of) { return experts(b, of, counts.first, counts.second); });
  }
  for (const auto encoder : {smelt::encoder_kind::mean, smelt::encoder_kind::conv, smelt::encoder_kind::softmax}) {
    for (const auto writeback : {smelt::writeback_kind::direct, smelt::writeback_kind::scaled,
                                 smelt::writeback_kind::scalar, smelt::writeback_kind::normalised}) {
      const smelt::pool_shape pool{.width = 37, .factor = static_cast<int>(length % 4) + 1, .encoder = encoder};
      const bool documents = length / 4 % 2 == 1;
      each("pool " + std::to_string(static_cast<int>(encoder)) + " write_back " +
               std::to_string(static_cast<int>(writeback)),
           [=](auto& b, const batch& of) { return compressed(b, of, pool, writeback, documents); });
    }
  }
  each("cross_entropy", [](auto& b, const batch& of) { return losses(b, of); });
}

void compare_prefixes(suffix behind, std::int64_t step) {
  for (const smelt::test::cpu_variant& variant : smelt::test::usable_variants()) {
    smelt::cpu one{smelt::threads_executor(2), variant.compute, variant.set};
    smelt::cpu other{smelt::threads_executor(2), variant.compute, variant.set};
    for (std::int64_t length = 1; length <= 65; length += step) {
      const smelt::random_stream random(61, static_cast<std::uint64_t>(length));
      const batch a{
          .sequences = 2,
          .length = length,
          .cut = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(length), 0)) + (length > 1)};
      batch b = a;
      b.second = true;
      b.behind = behind;
      for_each_op(
          [&](const std::string& name, auto run) {
            // Who holds the weights makes no difference either.
            const auto held = other.hold_weights();
            const std::string found = first_difference(a, run(one, a), run(other, b));
            INFO(variant.name() << " " << name << ", length " << length << ", cut at " << a.cut);
            CHECK(found == "");
          },
          length);
    }
  }
}

}  // namespace

TEST_CASE("a token's bits depend on the tokens before it and on the shape of the batch alone", "[causality]") {
  compare_prefixes(suffix::other, 1);
}

TEST_CASE("a token's bits do not depend on how many tokens behind it choose an expert", "[causality]") {
  compare_prefixes(suffix::same_for_all, 4);
}

TEST_CASE("a token's bits do not depend on whether the tokens behind it are finite", "[causality]") {
  compare_prefixes(suffix::not_finite, 4);
}
