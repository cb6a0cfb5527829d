// Do ops that run on leading parts of the stored weights do what they do on a copy of the parts, to the bit, whoever
// packed the weights before? And does the rest of the weights stay out of it?
#include "support/backends.hpp"
#include "support/op_table.hpp"

#include "catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/reference/backend.hpp>
#include <string>
#include <vector>

namespace {

using namespace smelt;
using test::arrays;

/// The leading rows and columns of each of `groups` matrices that are stored one under the other.
struct part {
  std::int64_t groups, rows, cols, stored_rows, stored_cols;

  /// Index of an element of the part in what is stored.
  [[nodiscard]] std::size_t at(std::int64_t group, std::int64_t row, std::int64_t col) const {
    return static_cast<std::size_t>((group * stored_rows + row) * stored_cols + col);
  }
  /// Calls f(index) for every element of the part, in its order.
  template <class F>
  void for_each(F f) const {
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) f(at(g, r, c));
  }
  [[nodiscard]] bool is_all() const { return rows == stored_rows && cols == stored_cols; }

  template <class S>
  [[nodiscard]] std::vector<S> of(const std::vector<S>& stored) const {
    if (is_all()) return stored;
    std::vector<S> copy;
    for_each([&](std::size_t i) { copy.push_back(stored[i]); });
    return copy;
  }
  /// The same with `value` for every element of the part.
  template <class S>
  [[nodiscard]] std::vector<S> without(std::vector<S> stored, S value) const {
    for_each([&](std::size_t i) { stored[i] = value; });
    return stored;
  }
  /// The same with NaN for every other element.
  template <class S>
  [[nodiscard]] std::vector<S> alone(const std::vector<S>& stored) const {
    if (is_all()) return stored;
    std::vector<S> changed(stored.size(), std::numeric_limits<S>::quiet_NaN());
    for_each([&](std::size_t i) { changed[i] = stored[i]; });
    return changed;
  }
};

/// Which part of input `i` an op uses; an empty one stands for all of it.
part part_of(const test::linear_case& c, std::size_t i) {
  const linear_shape& s = c.shape;
  return i == 1 ? part{1, s.out, s.in, weight_rows(s), weight_cols(s)} : part{};
}
part part_of(const test::attention_input_case& c, std::size_t i) {
  const attention_input_shape& s = c.shape;
  if (i < 2 || i > 4) return {};
  const int rows = i == 2 ? query_width(s) : kv_width(s);
  return {1, rows, s.width, rows, weight_width(s)};
}
part part_of(const test::experts_case& c, std::size_t i) {
  const experts_shape& s = c.shape;
  if (i < 1 || i > 3) return {};
  return i == 3 ? part{s.experts, s.width, s.hidden, weight_width(s), weight_hidden(s)}
                : part{s.experts, s.hidden, s.width, weight_hidden(s), weight_width(s)};
}

/// The same op on weights that are all used.
test::linear_case on_copies(test::linear_case c) {
  c.shape.stored_in = c.shape.stored_out = 0;
  return c;
}
test::attention_input_case on_copies(test::attention_input_case c) {
  c.shape.stored_width = 0;
  return c;
}
test::experts_case on_copies(test::experts_case c) {
  c.shape.stored_width = c.shape.stored_hidden = 0;
  return c;
}

/// An op that uses all of the same weights.
test::linear_case on_all(const test::linear_case& c) {
  return {4, weight_cols(c.shape), weight_rows(c.shape), c.accumulate};
}
test::attention_input_case on_all(const test::attention_input_case& c) {
  const attention_input_shape& s = c.shape;
  return {4, weight_width(s), s.heads, s.kv_heads, s.head_dim, s.norm};
}
test::experts_case on_all(const test::experts_case& c) {
  const experts_shape& s = c.shape;
  return {40, s.experts, s.active, weight_width(s), weight_hidden(s)};
}

template <class S>
bool same_bits(const std::vector<S>& a, const std::vector<S>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(S)) == 0);
}

template <class Case, class B, class S = typename B::scalar>
test::op_results<S> run(const Case& c, B& backend, arrays<S>& in, arrays<S> gradients) {
  test::op_results<S> results{test::empty_outputs<S>(c), std::move(gradients)};
  c.forward(backend, in, results.outputs);
  arrays<S> dout = test::rounded<S>(test::output_gradients(c));
  c.backward(backend, in, results.outputs, dout, results.gradients);
  return results;
}

template <class Case, class B>
void check_parts(const Case& c, B& backend) {
  using scalar = typename B::scalar;
  INFO(c.op << " " << c.variant);
  arrays<scalar> in = test::rounded_inputs<scalar>(c);
  const arrays<scalar> before = test::rounded<scalar>(test::gradients_before(c));
  arrays<scalar> copies, gradients_of_copies;
  for (std::size_t i = 0; i < in.size(); ++i) {
    copies.push_back(part_of(c, i).of(in[i]));
    gradients_of_copies.push_back(part_of(c, i).of(before[i]));
  }
  const auto expected = run(on_copies(c), backend, copies, gradients_of_copies);

  const auto check = [&](arrays<scalar>& inputs, const char* when) {
    INFO(when);
    const auto found = run(c, backend, inputs, before);
    for (std::size_t o = 0; o < expected.outputs.size(); ++o) {
      INFO(c.outputs[o].name);
      CHECK(same_bits(found.outputs[o], expected.outputs[o]));
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (c.inputs[i].kind == test::gradient::none) continue;
      INFO("gradient of " << c.inputs[i].name);
      const part p = part_of(c, i);
      CHECK(same_bits(p.of(found.gradients[i]), expected.gradients[i]));
      // What is stored beside the part has the gradient that it had.
      if (!p.is_all()) CHECK(same_bits(p.without(found.gradients[i], scalar(0)), p.without(before[i], scalar(0))));
    }
  };
  check(in, "nobody holds the weights");
  {
    const auto hold = backend.hold_weights();
    check(in, "held weights");
    check(in, "held weights again");
  }
  {
    // An op on all of the weights packs them first, and then finds its own again.
    const auto hold = backend.hold_weights();
    const Case whole = on_all(c);
    arrays<scalar> all = test::rounded_inputs<scalar>(whole);
    const arrays<scalar> zeros = test::rounded<scalar>(test::gradients_before(whole));
    const auto swap_weights = [&] {  // they have one address
      for (std::size_t i = 0; i < in.size(); ++i)
        if (!part_of(c, i).is_all()) std::swap(all[i], in[i]);
    };
    swap_weights();
    const auto first = run(whole, backend, all, zeros);
    swap_weights();
    check(in, "behind an op on all of the weights");
    swap_weights();
    const auto second = run(whole, backend, all, zeros);
    swap_weights();
    for (std::size_t o = 0; o < first.outputs.size(); ++o) CHECK(same_bits(first.outputs[o], second.outputs[o]));
    for (std::size_t i = 0; i < in.size(); ++i)
      if (whole.inputs[i].kind != test::gradient::none) CHECK(same_bits(first.gradients[i], second.gradients[i]));
  }
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = part_of(c, i).alone(in[i]);
  check(in, "what is not used is no number");
  const auto hold = backend.hold_weights();
  check(in, "what is not used is no number, held");
}

/// Parts that end with whole panels and words of every instruction set, of some, and of none.
template <class B>
void check_all(B& backend) {
  struct extents {
    int used, stored;
  };
  constexpr extents some[] = {{32, 64}, {64, 64}, {16, 48}, {24, 40}, {20, 24}, {21, 24}, {5, 7}, {1, 96}};
  for (const extents in : some) {
    for (const extents out : some) {
      if (in.used == in.stored && out.used == out.stored) continue;
      const test::weight_shape of{.rows = out.stored, .cols = in.stored};
      check_parts(test::linear_case(37, in.used, out.used, true, of), backend);
      check_parts(test::experts_case(30, 3, 2, in.used, out.used, test::traffic::any, true, of), backend);
    }
    if (in.used == in.stored) continue;
    check_parts(test::attention_input_case(37, in.used, 3, 1, 6, qk_norm::none, in.stored), backend);
    check_parts(test::attention_input_case(6, in.used, 2, 2, 8, qk_norm::per_head, in.stored), backend);
  }
  // Experts cut into pieces, and by blocks of tokens.
  check_parts(test::experts_case(1100, 3, 1, 8, 16, test::traffic::collapsed, true, {.rows = 24, .cols = 16}), backend);
  check_parts(test::experts_case(400, 4, 2, 32, 16, test::traffic::any, false, {.rows = 32, .cols = 64}), backend);
  check_parts(test::linear_case(600, 33, 40, true, {.rows = 80, .cols = 50}), backend);
}

}  // namespace

TEST_CASE("the reference runs on parts of weights as on copies of them", "[parts]") {
  reference<double> backend;
  check_all(backend);
}

TEST_CASE("every instruction set runs on parts of weights as on copies of them, to the bit", "[parts]") {
  for (const test::cpu_variant& variant : test::usable_variants()) {
    INFO(variant.name());
    cpu backend{threads_executor(2), variant.compute, variant.set};
    check_all(backend);
  }
}

TEST_CASE("stored weights that are smaller than what is used of them are refused", "[parts][check]") {
  reference<float> plain;
  cpu fast{threads_executor(1)};
  const auto refused = [&](const auto& c, const std::string& words) {
    arrays<float> in = test::rounded_inputs<float>(c);
    arrays<float> out = test::empty_outputs<float>(c);
    CHECK_THROWS_WITH(c.forward(plain, in, out), words);
    CHECK_THROWS_WITH(c.forward(fast, in, out), words);
  };
  refused(test::linear_case(2, 5, 4, true, {.rows = 4, .cols = 3}), "linear: stored_in is 3, needs at least 5");
  refused(test::linear_case(2, 5, 4, true, {.rows = 2, .cols = 5}), "linear: stored_out is 2, needs at least 4");
  refused(test::attention_input_case(2, 5, 1, 1, 2, qk_norm::none, 4),
          "attention_input: stored_width is 4, needs at least 5");
  refused(test::experts_case(2, 1, 1, 5, 4, test::traffic::any, true, {.rows = 3, .cols = 5}),
          "experts: stored_hidden is 3, needs at least 4");
  refused(test::experts_case(2, 1, 1, 5, 4, test::traffic::any, true, {.rows = 4, .cols = 4}),
          "experts: stored_width is 4, needs at least 5");
  // Weights of another size than is stored: as many elements as are used.
  test::linear_case c(2, 5, 4);
  c.shape.stored_in = 6;
  refused(c, "linear: w is [3, 6], needs [4, 6]");
}
