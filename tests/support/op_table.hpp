// Which ops are there, and on which shapes must each be right? One table: it drives the comparison of backends with the
// reference, the check of gradients against differences, and the benchmark.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <smelt/core/random.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/reference/group_by_expert.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt::test {

/// What the backward pass does with the gradient of an input.
enum class gradient { none, adds, overwrites };

/// An input of an op, in double: every backend gets it rounded to its own scalar. Its values are made when asked for,
/// so that a table of large shapes costs nothing.
struct op_input {
  std::string name;
  std::function<std::vector<double>()> values;
  gradient kind = gradient::overwrites;
};

/// An output of an op. A differentiable one gets a random gradient in the backward pass.
struct op_output {
  std::string name;
  std::int64_t size = 0;
  bool differentiable = true;
};

/// Arrays of an op's inputs, outputs or gradients, in their order.
template <class Scalar>
using arrays = std::vector<std::vector<Scalar>>;

/// What all ops of the table have. FLOPs count multiplies and adds of matrix products; 0 where there are none.
struct op_base {
  std::string op;
  std::string variant;
  std::vector<op_input> inputs;
  std::vector<op_output> outputs;
  double forward_flops = 0;
  double backward_flops = 0;
};

/// `size` standard normal numbers, the same for the same stream.
[[nodiscard]] inline std::vector<double> normal_numbers(std::int64_t size, std::uint64_t stream, double scale = 1) {
  const random_stream random(2024, stream);
  std::vector<double> numbers(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) numbers[i] = scale * random.normal(static_cast<std::uint64_t>(i));
  return numbers;
}

/// The same, made when asked for.
[[nodiscard]] inline std::function<std::vector<double>()> normal(std::int64_t size, std::uint64_t stream,
                                                                 double scale = 1) {
  return [=] { return normal_numbers(size, stream, scale); };
}

template <class Scalar>
[[nodiscard]] matrix_view<Scalar> as_matrix(std::vector<Scalar>& values, std::int64_t cols) {
  return {values.data(), cols == 0 ? 0 : static_cast<std::int64_t>(values.size()) / cols, cols};
}

// Part of a variant's name.
[[nodiscard]] inline std::string label(const char* name, std::int64_t value) {
  std::string text = name;
  text += std::to_string(value);
  return text;
}

/// Rows and columns of stored weights, of which an op uses the leading ones: of projections, or the hidden units and
/// the width of experts. Zeros: as many as are used.
struct weight_shape {
  int rows = 0;
  int cols = 0;

  [[nodiscard]] std::string label() const {
    return rows == 0 && cols == 0 ? "" : "_of" + std::to_string(rows) + "x" + std::to_string(cols);
  }
};

// ---- the ops --------------------------------------------------------------------------------------------------------

struct embed_case : op_base {
  std::vector<std::int32_t> ids;
  std::int64_t width;

  embed_case(std::int64_t tokens, std::int64_t vocab, std::int64_t width_) : width(width_) {
    op = "embed";
    variant = label("T", tokens) + label("_V", vocab) + label("_H", width);
    const random_stream random(7, 1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      ids.push_back(
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocab), static_cast<std::uint64_t>(t))));
    }
    inputs = {{"table", normal(vocab * width, 1), gradient::adds}};
    outputs = {{"out", tokens * width}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    b.embed(as_matrix(in[0], width), ids, as_matrix(out[0], width));
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>&, arrays<S>&, arrays<S>& dout, arrays<S>& din) const {
    b.embed_backward(as_matrix(dout[0], width), ids, as_matrix(din[0], width));
  }
};

struct rms_norm_case : op_base {
  norm_shape shape;

  rms_norm_case(std::int64_t rows, int width) : shape{.width = width} {
    op = "rms_norm";
    variant = label("T", rows) + label("_H", width);
    inputs = {{"x", normal(rows * width, 1), gradient::adds}, {"gain", normal(width, 2), gradient::adds}};
    outputs = {{"y", rows * width}, {"inv_rms", rows, false}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    b.rms_norm(shape, as_matrix(in[0], shape.width), in[1], as_matrix(out[0], shape.width), out[1]);
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>& out, arrays<S>& dout, arrays<S>& din) const {
    b.rms_norm_backward(shape, as_matrix(in[0], shape.width), in[1], out[1], as_matrix(dout[0], shape.width),
                        as_matrix(din[0], shape.width), din[1]);
  }
};

struct linear_case : op_base {
  linear_shape shape;
  bool accumulate;

  linear_case(std::int64_t rows, int in, int out, bool accumulate_ = true, weight_shape of = {})
      : shape{.in = in, .out = out, .stored_in = of.cols, .stored_out = of.rows}, accumulate(accumulate_) {
    op = "linear";
    variant = label("T", rows) + label("_in", in) + label("_out", out) + of.label();
    inputs = {{"x", normal(rows * in, 1), accumulate ? gradient::adds : gradient::overwrites},
              {"w", normal(std::int64_t{weight_rows(shape)} * weight_cols(shape), 2), gradient::adds}};
    outputs = {{"y", rows * out}};
    forward_flops = 2.0 * double(rows) * in * out;
    backward_flops = 2 * forward_flops;
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    b.linear(shape, as_matrix(in[0], shape.in), as_matrix(in[1], weight_cols(shape)), as_matrix(out[0], shape.out));
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>&, arrays<S>& dout, arrays<S>& din) const {
    b.linear_backward_input(shape, 1.0, as_matrix(dout[0], shape.out), as_matrix(in[1], weight_cols(shape)),
                            as_matrix(din[0], shape.in), accumulate);
    b.linear_backward_weight(shape, 1.0, as_matrix(in[0], shape.in), as_matrix(dout[0], shape.out),
                             as_matrix(din[1], weight_cols(shape)));
  }
};

/// y = residual + scale * x w^T, with the residual in y or elsewhere.
struct add_linear_case : op_base {
  static constexpr double scale = 0.375;
  linear_shape shape;
  bool in_place;

  add_linear_case(std::int64_t rows, int in, int out, bool in_place_, weight_shape of = {})
      : shape{.in = in, .out = out, .stored_in = of.cols, .stored_out = of.rows}, in_place(in_place_) {
    op = "add_linear";
    variant = label("T", rows) + label("_in", in) + label("_out", out) + of.label() + (in_place ? "_in_place" : "");
    inputs = {{"x", normal(rows * in, 1), in_place ? gradient::overwrites : gradient::adds},
              {"w", normal(std::int64_t{weight_rows(shape)} * weight_cols(shape), 2), gradient::adds},
              {"residual", normal(rows * out, 3), gradient::none}};
    outputs = {{"y", rows * out}};
    forward_flops = 2.0 * double(rows) * in * out;
    backward_flops = 2 * forward_flops;
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    if (in_place) out[0] = in[2];
    b.add_linear(shape, scale, as_matrix(in_place ? out[0] : in[2], shape.out), as_matrix(in[0], shape.in),
                 as_matrix(in[1], weight_cols(shape)), as_matrix(out[0], shape.out));
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>&, arrays<S>& dout, arrays<S>& din) const {
    b.linear_backward_input(shape, scale, as_matrix(dout[0], shape.out), as_matrix(in[1], weight_cols(shape)),
                            as_matrix(din[0], shape.in), !in_place);
    b.linear_backward_weight(shape, scale, as_matrix(in[0], shape.in), as_matrix(dout[0], shape.out),
                             as_matrix(din[1], weight_cols(shape)));
  }
};

struct attention_input_case : op_base {
  attention_input_shape shape;
  std::vector<std::int32_t> positions;

  attention_input_case(std::int64_t tokens, int width, int heads, int kv_heads, int head_dim,
                       qk_norm norm = qk_norm::none, int stored_width = 0)
      : shape{.width = width,
              .heads = heads,
              .kv_heads = kv_heads,
              .head_dim = head_dim,
              .norm = norm,
              .stored_width = stored_width} {
    op = "attention_input";
    variant = label("T", tokens) + label("_H", width) + label("_h", heads) + "_" + std::to_string(kv_heads) +
              label("_d", head_dim) +
              (norm == qk_norm::none       ? ""
               : norm == qk_norm::per_head ? "_head_norm"
                                           : "_full_norm") +
              (stored_width > 0 ? label("_of", stored_width) : "");
    for (std::int64_t t = 0; t < tokens; ++t) positions.push_back(static_cast<std::int32_t>(t * 37 % 1000));
    const bool normed = norm != qk_norm::none;
    const std::int64_t queries = query_width(shape);
    const std::int64_t keys = kv_width(shape);
    const double scale = 1 / std::sqrt(double(width));
    const auto weight = [&](const char* name, std::int64_t size, std::uint64_t stream, double deviation) {
      inputs.push_back({name, normal(size, stream, deviation), gradient::adds});
    };
    weight("x", tokens * width, 1, 1);
    weight("norm", width, 2, 1);
    weight("w_query", queries * weight_width(shape), 3, scale);
    weight("w_key", keys * weight_width(shape), 4, scale);
    weight("w_value", keys * weight_width(shape), 5, scale);
    weight("query_norm", normed ? query_norm_width(shape) : 0, 6, 1);
    weight("key_norm", normed ? key_norm_width(shape) : 0, 7, 1);
    outputs = {{"query", tokens * queries},
               {"key", tokens * keys},
               {"value", tokens * keys},
               {"inv_rms", tokens, false},
               {"raw_query", normed ? tokens * queries : 0, false},
               {"raw_key", normed ? tokens * keys : 0, false},
               {"query_inv_rms", normed ? tokens * queries / query_norm_width(shape) : 0, false},
               {"key_inv_rms", normed ? tokens * keys / key_norm_width(shape) : 0, false}};
    forward_flops = 2.0 * double(tokens) * width * double(queries + 2 * keys);
    backward_flops = 2 * forward_flops;
  }

  // Of the weights or of their gradients.
  template <class T, class S>
  [[nodiscard]] attention_input_weights<T> weights(arrays<S>& a) const {
    const int cols = weight_width(shape);
    return {a[1], as_matrix(a[2], cols), as_matrix(a[3], cols), as_matrix(a[4], cols), a[5], a[6]};
  }
  template <class T, class S>
  [[nodiscard]] query_key_value<T> heads(arrays<S>& a) const {
    return {as_matrix(a[0], query_width(shape)), as_matrix(a[1], kv_width(shape)), as_matrix(a[2], kv_width(shape))};
  }
  template <class S>
  [[nodiscard]] attention_input_saved<S> saved(arrays<S>& out) const {
    return {out[3], as_matrix(out[4], query_width(shape)), as_matrix(out[5], kv_width(shape)), out[6], out[7]};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    b.attention_input(shape, as_matrix(in[0], shape.width), weights<const S>(in), positions, saved(out), heads<S>(out));
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>& out, arrays<S>& dout, arrays<S>& din) const {
    b.attention_input_backward(shape, as_matrix(in[0], shape.width), weights<const S>(in), positions, saved(out),
                               heads<const S>(dout), as_matrix(din[0], shape.width), weights<S>(din));
  }
};

/// Which keys a query sees: all before it, a window of them, or those of its own document.
enum class sight { causal, window, documents };

struct attention_case : op_base {
  attention_shape shape;
  std::int64_t length;
  std::vector<std::int32_t> first;

  attention_case(std::int64_t sequences, std::int64_t length_, int heads, int kv_heads, int head_dim,
                 sight seen = sight::causal, double score_scale = 1)
      : shape{.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim}, length(length_) {
    op = "attention";
    variant = std::to_string(sequences) + label("x", length) + label("_h", heads) + "_" + std::to_string(kv_heads) +
              label("_d", head_dim) +
              (seen == sight::causal   ? ""
               : seen == sight::window ? "_window"
                                       : "_documents");
    double pairs = 0;
    const random_stream random(7, 2);
    for (std::int64_t row = 0; row < sequences * length; ++row) {
      const std::int64_t t = row % length;
      std::int64_t start = row - t;
      if (seen == sight::window) start = (std::max)(start, row - (length / 3 + 1) + 1);
      // A document ends with a chance of one in nine.
      if (seen == sight::documents && t > 0) {
        start = random.below(9, static_cast<std::uint64_t>(row)) == 0 ? row : std::int64_t{first.back()};
      }
      first.push_back(static_cast<std::int32_t>(start));
      pairs += double(row - start + 1);
    }
    const std::int64_t rows = sequences * length;
    inputs = {{"q", normal(rows * heads * head_dim, 1, score_scale)},
              {"k", normal(rows * kv_heads * head_dim, 2)},
              {"v", normal(rows * kv_heads * head_dim, 3)}};
    outputs = {{"out", rows * heads * head_dim}, {"lse", rows * heads, false}};
    forward_flops = 4.0 * pairs * heads * head_dim;
    backward_flops = 2.5 * forward_flops;  // the scores are computed again
  }

  [[nodiscard]] std::int64_t width() const { return std::int64_t{shape.heads} * shape.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return std::int64_t{shape.kv_heads} * shape.head_dim; }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    b.attention(shape, as_matrix(in[0], width()), as_matrix(in[1], kv_width()), as_matrix(in[2], kv_width()), first,
                length, as_matrix(out[0], width()), out[1]);
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>& out, arrays<S>& dout, arrays<S>& din) const {
    b.attention_backward(shape, as_matrix(in[0], width()), as_matrix(in[1], kv_width()), as_matrix(in[2], kv_width()),
                         first, length, as_matrix(out[0], width()), out[1], as_matrix(dout[0], width()),
                         as_matrix(din[0], width()), as_matrix(din[1], kv_width()), as_matrix(din[2], kv_width()));
  }
};

/// `queries` tokens that go on with a sequence which has `keys` tokens after them.
struct attention_cached_case : op_base {
  attention_shape shape;
  std::int64_t window;

  attention_cached_case(std::int64_t queries, std::int64_t keys, int heads, int kv_heads, int head_dim,
                        std::int64_t window_ = 0, double score_scale = 1)
      : shape{.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim}, window(window_) {
    op = "attention_cached";
    variant = std::to_string(queries) + label("of", keys) + label("_h", heads) + "_" + std::to_string(kv_heads) +
              label("_d", head_dim) + (window > 0 ? label("_window", window) : "");
    inputs = {{"q", normal(queries * width(), 1, score_scale)},
              {"k", normal(keys * kv_width(), 2)},
              {"v", normal(keys * kv_width(), 3)}};
    outputs = {{"out", queries * width()}};
    double pairs = 0;
    for (std::int64_t t = 0; t < queries; ++t) {
      const std::int64_t seen = keys - queries + t + 1;
      pairs += double(window > 0 ? (std::min)(window, seen) : seen);
    }
    forward_flops = 4.0 * pairs * heads * head_dim;
  }

  [[nodiscard]] std::int64_t width() const { return std::int64_t{shape.heads} * shape.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return std::int64_t{shape.kv_heads} * shape.head_dim; }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    b.attention_cached(shape, as_matrix(in[0], width()), as_matrix(in[1], kv_width()), as_matrix(in[2], kv_width()),
                       window, as_matrix(out[0], width()));
  }
};

struct route_case : op_base {
  router_shape shape;
  bool biased;
  std::vector<std::uint8_t> mask;
  mutable std::vector<std::int32_t> ids;

  route_case(std::int64_t tokens, int experts, int active, score_function score, bool renormalise, bool biased_ = false,
             bool masked = false)
      : shape{.experts = experts, .active = active, .score = score, .renormalise = renormalise}, biased(biased_) {
    op = "route";
    variant = label("T", tokens) + label("_E", experts) + label("_k", active) +
              (score == score_function::softmax ? "_softmax" : "_sigmoid") + (renormalise ? "_renormalised" : "") +
              (biased ? "_biased" : "") + (masked ? "_masked" : "");
    // Logits a fixed step apart in a random order, so that no rounding can change which expert is chosen.
    std::vector<double> logits;
    const double step = 4.0 / experts;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const random_stream random(11, static_cast<std::uint64_t>(t));
      for (int e = 0; e < experts; ++e) {
        const std::uint64_t rank = permuted(static_cast<std::uint64_t>(e), static_cast<std::uint64_t>(experts), random);
        logits.push_back(step * (double(rank) - experts / 2.0 + 0.2 * random.uniform(1000 + rank)));
      }
    }
    // A bias that moves whole experts past every other, for the same reason.
    std::vector<double> bias;
    for (int e = 0; biased && e < experts; ++e) bias.push_back(e % 3 == 0 ? 2.0 : 0.0);
    for (std::int64_t t = 0; masked && t < tokens; ++t) mask.push_back(t % 5 == 1 ? std::uint8_t{0} : std::uint8_t{1});
    inputs = {{"logits", [logits] { return logits; }}, {"bias", [bias] { return bias; }, gradient::none}};
    outputs = {{"weights", tokens * active},
               {"balance", 1},
               {"z", 1},
               {"scores", tokens * experts, false},
               {"logsumexp", tokens, false},
               {"ids", tokens * active, false},
               {"load", experts, false}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    ids.assign(out[5].size(), -1);
    b.route(shape, as_matrix(in[0], shape.experts), in[1], as_matrix(out[3], shape.experts), ids,
            as_matrix(out[0], shape.active), out[4]);
    const router_losses losses = b.route_losses(shape, as_matrix(out[3], shape.experts), ids, out[4], mask, out[6]);
    out[1][0] = static_cast<S>(losses.balance);
    out[2][0] = static_cast<S>(losses.z);
    std::copy(ids.begin(), ids.end(), out[5].begin());
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>&, arrays<S>& out, arrays<S>& dout, arrays<S>& din) const {
    const router_loss_scale scale{.balance = double(dout[1][0]), .z = double(dout[2][0])};
    b.route_backward(shape, as_matrix(out[3], shape.experts), ids, as_matrix(out[0], shape.active), out[4], out[6],
                     mask, as_matrix(dout[0], shape.active), scale, as_matrix(din[0], shape.experts));
  }
};

/// Which experts the tokens visit: any, only the first two thirds of them, or all tokens the same ones.
enum class traffic { any, some_idle, collapsed };

struct experts_case : op_base {
  static constexpr double scale = 0.75;
  experts_shape shape;
  std::vector<std::int32_t> offsets;
  std::vector<std::int32_t> assignment;
  std::vector<std::int32_t> row;
  bool add;  // to the gradient of x

  experts_case(std::int64_t tokens, int experts, int active, int width, int hidden, traffic visits = traffic::any,
               bool add_ = true, weight_shape of = {})
      : shape{.experts = experts,
              .active = active,
              .width = width,
              .hidden = hidden,
              .stored_width = of.cols,
              .stored_hidden = of.rows},
        add(add_) {
    op = "experts";
    variant = label("T", tokens) + label("_E", experts) + label("_k", active) + "_H" + std::to_string(width) +
              label("_f", hidden) +
              (visits == traffic::any         ? ""
               : visits == traffic::some_idle ? "_idle"
                                              : "_collapsed") +
              of.label() + (add ? "" : "_overwrite");
    const int used = visits == traffic::some_idle ? (std::max)(active, 2 * experts / 3) : experts;
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const random_stream random(13, visits == traffic::collapsed ? 0 : static_cast<std::uint64_t>(t));
      for (int a = 0; a < active; ++a) {
        ids.push_back(static_cast<std::int32_t>(
            permuted(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(used), random)));
      }
    }
    offsets.resize(static_cast<std::size_t>(experts) + 1);
    assignment.resize(ids.size());
    row.resize(ids.size());
    reference_ops::group_by_expert(router_shape{.experts = experts, .active = active}, ids,
                                   grouping_view<std::int32_t>(offsets, assignment, row));
    const std::int64_t matrix = std::int64_t{experts} * weight_width(shape) * weight_hidden(shape);
    const double size = 1 / std::sqrt(double(width));
    inputs = {{"x", normal(tokens * width, 1), add ? gradient::adds : gradient::overwrites},
              {"w_gate", normal(matrix, 2, size), gradient::adds},
              {"w_up", normal(matrix, 3, size), gradient::adds},
              {"w_down", normal(matrix, 4, 1 / std::sqrt(double(hidden))), gradient::adds},
              {"weights", normal(tokens * active, 5)},
              {"residual", normal(tokens * width, 6), gradient::none}};
    outputs = {
        {"y", tokens * width}, {"gate", tokens * active * hidden, false}, {"up", tokens * active * hidden, false}};
    forward_flops = 6.0 * double(tokens) * active * width * hidden;
    backward_flops = 2 * forward_flops;
  }

  [[nodiscard]] grouping_view<> grouping() const { return {offsets, assignment, row}; }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    b.experts(shape, scale, as_matrix(in[5], shape.width), as_matrix(in[0], shape.width),
              as_matrix(in[1], weight_width(shape)), as_matrix(in[2], weight_width(shape)),
              as_matrix(in[3], weight_hidden(shape)), grouping(), as_matrix(in[4], shape.active),
              as_matrix(out[1], shape.hidden), as_matrix(out[2], shape.hidden), as_matrix(out[0], shape.width));
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>& out, arrays<S>& dout, arrays<S>& din) const {
    b.experts_backward(shape, scale, as_matrix(in[0], shape.width), as_matrix(in[1], weight_width(shape)),
                       as_matrix(in[2], weight_width(shape)), as_matrix(in[3], weight_hidden(shape)), grouping(),
                       as_matrix(in[4], shape.active), as_matrix(out[1], shape.hidden), as_matrix(out[2], shape.hidden),
                       as_matrix(dout[0], shape.width), as_matrix(din[0], shape.width), add,
                       as_matrix(din[1], weight_width(shape)), as_matrix(din[2], weight_width(shape)),
                       as_matrix(din[3], weight_hidden(shape)), as_matrix(din[4], shape.active));
  }
};

struct cross_entropy_case : op_base {
  head_shape shape;
  std::vector<std::int32_t> targets;

  cross_entropy_case(std::int64_t tokens, int width, int vocab, int padding = 0, bool ignored = false)
      : shape{.width = width, .vocab = vocab} {
    op = "cross_entropy";
    variant = label("T", tokens) + label("_H", width) + label("_V", vocab) + (padding > 0 ? "_padded" : "") +
              (ignored ? "_ignored" : "");
    const random_stream random(7, 3);
    for (std::int64_t t = 0; t < tokens; ++t) {
      targets.push_back(ignored && t % 4 == 2 ? -1
                                              : static_cast<std::int32_t>(random.below(
                                                    static_cast<std::uint64_t>(vocab), static_cast<std::uint64_t>(t))));
    }
    inputs = {
        {"x", normal(tokens * width, 1)},
        {"table", normal(std::int64_t{vocab + padding} * width, 2, 1 / std::sqrt(double(width))), gradient::adds}};
    outputs = {{"nats", 1}, {"losses", tokens, false}, {"logsumexp", tokens, false}, {"targets", 1, false}};
    forward_flops = 2.0 * double(tokens) * width * vocab;
    backward_flops = 3 * forward_flops;  // the logits are computed again
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    const loss_sum sum =
        b.cross_entropy(shape, as_matrix(in[0], shape.width), as_matrix(in[1], shape.width), targets, out[1], out[2]);
    out[0][0] = static_cast<S>(sum.nats);
    out[3][0] = static_cast<S>(sum.targets);
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>& out, arrays<S>& dout, arrays<S>& din) const {
    b.cross_entropy_backward(shape, as_matrix(in[0], shape.width), as_matrix(in[1], shape.width), targets, out[2],
                             double(dout[0][0]), as_matrix(din[0], shape.width), as_matrix(din[1], shape.width));
  }
};

/// The loss and its gradient at once. dtable starts as numbers that it is added to.
struct cross_entropy_with_gradient_case : op_base {
  cross_entropy_case apart;

  cross_entropy_with_gradient_case(std::int64_t tokens, int width, int vocab, int padding = 0, bool ignored = false)
      : apart(tokens, width, vocab, padding, ignored) {
    const std::int64_t table = std::int64_t{vocab + padding} * width;
    op = "cross_entropy_with_gradient";
    variant = apart.variant;
    inputs = {{apart.inputs[0].name, apart.inputs[0].values, gradient::none},
              {apart.inputs[1].name, apart.inputs[1].values, gradient::none},
              {"dtable before", normal(table, 3), gradient::none}};
    outputs = {{"nats", 1, false},
               {"losses", tokens, false},
               {"targets", 1, false},
               {"dx", tokens * width, false},
               {"dtable", table, false}};
    forward_flops = 3 * apart.forward_flops;
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    const int width = apart.shape.width;
    out[4] = in[2];
    const loss_sum sum =
        b.cross_entropy_with_gradient(apart.shape, as_matrix(in[0], width), as_matrix(in[1], width), apart.targets,
                                      0.75, out[1], as_matrix(out[3], width), as_matrix(out[4], width));
    out[0][0] = static_cast<S>(sum.nats);
    out[2][0] = static_cast<S>(sum.targets);
  }
};

/// First rows that tokens see: `documents` ends one with a chance of one in three, so that some end inside of chunks;
/// nothing otherwise.
[[nodiscard]] inline std::vector<std::int32_t> first_rows(std::int64_t sequences, std::int64_t length, bool documents) {
  std::vector<std::int32_t> first;
  const random_stream random(7, 4);
  for (std::int64_t row = 0; documents && row < sequences * length; ++row) {
    const bool begins = row % length == 0 || random.below(3, static_cast<std::uint64_t>(row)) == 0;
    first.push_back(begins ? static_cast<std::int32_t>(row) : first.back());
  }
  return first;
}

struct pool_case : op_base {
  pool_shape shape;
  std::int64_t length;
  std::vector<std::int32_t> first;

  pool_case(std::int64_t sequences, std::int64_t length_, int width, int factor, encoder_kind encoder,
            bool documents = false)
      : shape{.width = width, .factor = factor, .encoder = encoder},
        length(length_),
        first(first_rows(sequences, length, documents)) {
    const bool conv = encoder == encoder_kind::conv;
    const bool softmax = encoder == encoder_kind::softmax;
    op = "pool";
    variant = std::to_string(sequences) + label("x", length) + label("_H", width) + label("_c", factor) +
              (conv      ? "_conv"
               : softmax ? "_softmax"
                         : "_mean") +
              (documents ? "_documents" : "");
    const std::int64_t weights = conv ? std::int64_t{factor} * width : softmax ? width : 0;
    inputs = {{"x", normal(sequences * length * width, 1), gradient::adds},
              {"w", normal(weights, 2, 1 / std::sqrt(double(width))), gradient::adds}};
    outputs = {{"z", sequences * (length / factor) * width}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    b.pool(shape, as_matrix(in[0], shape.width), as_matrix(in[1], shape.width), first, length,
           as_matrix(out[0], shape.width));
  }
  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>&, arrays<S>& dout, arrays<S>& din) const {
    b.pool_backward(shape, as_matrix(in[0], shape.width), as_matrix(in[1], shape.width), first, length,
                    as_matrix(dout[0], shape.width), as_matrix(din[0], shape.width), as_matrix(din[1], shape.width));
  }
};

/// What write_back is given, whole sequences or what goes on with them.
struct write_back_base : op_base {
  write_back_shape shape;
  std::int64_t length;
  std::int64_t begin;
  std::vector<std::int32_t> first;
  bool in_place;

  write_back_base(std::int64_t sequences, std::int64_t begin_, std::int64_t length_, const write_back_shape& shape_,
                  bool documents, bool in_place_)
      : shape(shape_),
        length(length_),
        begin(begin_),
        first(first_rows(sequences, length, documents)),
        in_place(in_place_) {
    static constexpr const char* kinds[] = {"_direct", "_scaled", "_scalar", "_normalised"};
    const std::int64_t width = shape.width;
    op = "write_back";
    variant = std::to_string(sequences) + label("x", length) + label("_H", width) + label("_c", shape.factor) +
              kinds[static_cast<int>(shape.writeback)] + (begin > 0 ? label("_from", begin) : "") +
              (documents ? "_documents" : "") + (in_place ? "_in_place" : "");
    const std::int64_t weights = shape.writeback == writeback_kind::direct   ? 0
                                 : shape.writeback == writeback_kind::scalar ? shape.factor
                                                                             : shape.factor * width;
    inputs = {{"h", normal(sequences * length * width, 1), gradient::none},
              {"d", normal(sequences * ((begin + length) / shape.factor) * width, 2)},
              {"w", normal(weights, 3), gradient::adds}};
    outputs = {{"out", sequences * length * width}};
  }

  // Of the weights or of their gradient.
  template <class S>
  [[nodiscard]] matrix_view<S> weights(std::vector<S>& w) const {
    return as_matrix(w, shape.writeback == writeback_kind::scalar ? shape.factor : shape.width);
  }
  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    if (in_place) out[0] = in[0];
    b.write_back(shape, as_matrix(in_place ? out[0] : in[0], shape.width), as_matrix(in[1], shape.width),
                 weights(in[2]), first, begin, length, as_matrix(out[0], shape.width));
  }
};

struct write_back_case : write_back_base {
  write_back_case(std::int64_t sequences, std::int64_t length_, int width, int factor, writeback_kind kind,
                  bool documents = false, bool in_place_ = false)
      : write_back_base(sequences, 0, length_, {.width = width, .factor = factor, .writeback = kind}, documents,
                        in_place_) {}

  template <class B, class S = typename B::scalar>
  void backward(B& b, arrays<S>& in, arrays<S>&, arrays<S>& dout, arrays<S>& din) const {
    b.write_back_backward(shape, as_matrix(in[1], shape.width), weights(in[2]), first, length,
                          as_matrix(dout[0], shape.width), as_matrix(din[1], shape.width), weights(din[2]));
  }
};

/// Rows that go on with sequences, which decoding does and training does not.
struct write_back_from_case : write_back_base {
  write_back_from_case(std::int64_t sequences, std::int64_t begin_, std::int64_t length_, int width, int factor,
                       writeback_kind kind)
      : write_back_base(sequences, begin_, length_, {.width = width, .factor = factor, .writeback = kind}, false,
                        false) {}
};

/// a - b in an array of its own or in one of the two.
struct difference_case : op_base {
  std::int64_t width;
  int target;  // 0: its own, 1: a, 2: b

  difference_case(std::int64_t rows, std::int64_t width_, int target_ = 0) : width(width_), target(target_) {
    op = "difference";
    variant = label("T", rows) + label("_H", width) + (target == 0 ? "" : target == 1 ? "_in_a" : "_in_b");
    inputs = {{"a", normal(rows * width, 1), gradient::none}, {"b", normal(rows * width, 2), gradient::none}};
    outputs = {{"out", rows * width, false}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    if (target > 0) out[0] = in[static_cast<std::size_t>(target) - 1];
    b.difference(as_matrix(target == 1 ? out[0] : in[0], width), as_matrix(target == 2 ? out[0] : in[1], width),
                 as_matrix(out[0], width));
  }
};

struct dot_case : op_base {
  explicit dot_case(std::int64_t size) {
    op = "dot";
    variant = label("n", size);
    inputs = {{"a", normal(size, 1), gradient::none}, {"b", normal(size, 2), gradient::none}};
    outputs = {{"sum", 1, false}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    out[0][0] = static_cast<S>(b.dot(in[0], in[1]));
  }
};

struct norm_case : op_base {
  explicit norm_case(std::int64_t size) {
    op = "norm";
    variant = label("n", size);
    inputs = {{"x", normal(size, 1), gradient::none}};
    outputs = {{"norm", 1, false}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    out[0][0] = static_cast<S>(b.norm(in[0]));
  }
};

struct adamw_case : op_base {
  adamw_step numbers;
  std::vector<parameter_range> ranges;

  adamw_case(std::int64_t size, const adamw_step& numbers_) : numbers(numbers_) {
    op = "adamw";
    variant = label("n", size) + label("_step", numbers.step);
    const auto second = [size] {
      std::vector<double> squares = normal_numbers(size, 4, 0.01);
      for (double& v : squares) v *= v;
      return squares;
    };
    inputs = {{"gradient", normal(size, 1, 0.01), gradient::none},
              {"weight", normal(size, 2), gradient::none},
              {"first", normal(size, 3, 0.01), gradient::none},
              {"second", second, gradient::none}};
    outputs = {{"gradient", size, false}, {"weight", size, false}, {"first", size, false}, {"second", size, false}};
    // A gap before, one in the middle, and an empty range: what lies there stays.
    const std::int64_t third = size / 3;
    ranges = {{size > 1, third, true}, {size > 1 ? third + 1 : 0, 0, true}, {size / 2, size - size / 2, false}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    out = in;
    b.adamw(numbers, ranges, out[0], out[1], out[2], out[3]);
  }
};

struct muon_case : op_base {
  muon_step numbers;
  std::vector<matrix_range> matrices;

  /// `count` matrices of the same shape with a gap before each; the gradients are `deviation` from 0.
  muon_case(std::int64_t count, std::int64_t rows, std::int64_t cols, double deviation = 0.01)
      : numbers{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1, .gradient_scale = 0.5} {
    op = "muon";
    variant = label("n", count) + label("_rows", rows) + label("_cols", cols) + (deviation < 1e-10 ? "_faint" : "");
    const std::int64_t size = count * (rows * cols + 3);
    for (std::int64_t i = 0; i < count; ++i) matrices.push_back({i * (rows * cols + 3) + 3, rows, cols});
    // Three polynomials, each the square of the smaller side, its square, and the product with it.
    const auto less = static_cast<double>((std::min)(rows, cols));
    const auto more = static_cast<double>((std::max)(rows, cols));
    forward_flops =
        static_cast<double>(count) * 3 * (2 * less * less * more + 2 * std::pow(less, 3) + 2 * less * less * more);
    inputs = {{"gradient", normal(size, 1, deviation), gradient::none},
              {"weight", normal(size, 2), gradient::none},
              {"momentum", normal(size, 3, deviation), gradient::none}};
    outputs = {{"gradient", size, false}, {"weight", size, false}, {"momentum", size, false}};
  }

  template <class B, class S = typename B::scalar>
  void forward(B& b, arrays<S>& in, arrays<S>& out) const {
    out = in;
    b.muon(numbers, matrices, out[0], out[1], out[2]);
  }
};

// ---- the shapes -----------------------------------------------------------------------------------------------------

/// Calls f with every op on every shape at which it must be right: ragged and odd sizes, one of everything, idle
/// experts, more experts than tokens, all experts active, masks, windows and padding.
template <class F>
void for_each_case(F&& f) {
  f(embed_case(1, 1, 1));
  f(embed_case(37, 11, 24));
  f(embed_case(200, 257, 129));

  f(rms_norm_case(1, 1));
  f(rms_norm_case(5, 3));
  f(rms_norm_case(300, 128));
  f(rms_norm_case(77, 100));
  f(rms_norm_case(2000, 16));

  f(linear_case(1, 1, 1));
  f(linear_case(1, 33, 17));
  f(linear_case(7, 16, 5, false));
  f(linear_case(13, 1, 40));
  f(linear_case(40, 56, 1));
  f(linear_case(29, 56, 444));
  f(linear_case(250, 100, 64, false));
  f(linear_case(600, 48, 33));
  f(linear_case(530, 64, 70));
  f(linear_case(9, 1024, 1024, false));
  f(add_linear_case(1, 33, 17, false));
  f(add_linear_case(5, 64, 48, true));
  f(add_linear_case(29, 56, 44, true));
  f(add_linear_case(250, 40, 100, false));
  // Leading parts of the weights: whole panels and words of every set, and ragged ones.
  f(linear_case(40, 32, 64, false, {.rows = 128, .cols = 96}));
  f(linear_case(530, 21, 33, true, {.rows = 34, .cols = 23}));
  f(linear_case(3, 64, 50, true, {.rows = 50, .cols = 128}));
  f(add_linear_case(29, 48, 32, true, {.rows = 64, .cols = 48}));
  f(add_linear_case(210, 17, 5, false, {.rows = 8, .cols = 17}));

  f(attention_input_case(1, 1, 1, 1, 2));
  f(attention_input_case(5, 7, 3, 1, 6, qk_norm::per_head));
  f(attention_input_case(97, 40, 4, 2, 24));
  f(attention_input_case(130, 33, 6, 3, 10, qk_norm::full_width));
  f(attention_input_case(300, 64, 4, 1, 16, qk_norm::per_head));
  f(attention_input_case(201, 100, 2, 2, 44, qk_norm::full_width));
  f(attention_input_case(64, 48, 1, 1, 128));
  f(attention_input_case(140, 64, 4, 2, 24, qk_norm::none, 128));
  f(attention_input_case(9, 32, 4, 1, 16, qk_norm::per_head, 48));
  f(attention_input_case(97, 21, 2, 1, 10, qk_norm::full_width, 29));

  f(attention_case(1, 1, 1, 1, 2));
  f(attention_case(1, 5, 2, 1, 4));
  f(attention_case(3, 33, 4, 2, 16));
  f(attention_case(2, 70, 6, 2, 44));
  f(attention_case(1, 130, 3, 3, 32, sight::window));
  f(attention_case(2, 100, 8, 1, 10, sight::documents));
  f(attention_case(1, 40, 2, 2, 128));
  f(attention_case(2, 64, 4, 4, 64, sight::documents));
  f(attention_case(2, 48, 2, 1, 7, sight::window, 12.0));
  f(attention_case(1, 301, 4, 1, 24));
  f(attention_case(1, 300, 2, 1, 24, sight::window));
  f(attention_case(9, 150, 5, 1, 20, sight::documents));

  f(attention_cached_case(1, 1, 1, 1, 2));
  f(attention_cached_case(1, 19, 4, 2, 6));
  f(attention_cached_case(1, 300, 8, 2, 32));
  f(attention_cached_case(1, 1000, 5, 1, 128, 0, 6.0));
  f(attention_cached_case(1, 70, 3, 3, 44, 33));
  f(attention_cached_case(3, 67, 6, 2, 24));
  f(attention_cached_case(3, 67, 6, 2, 24, 5));
  f(attention_cached_case(40, 40, 8, 2, 32));
  f(attention_cached_case(33, 150, 4, 1, 16));
  f(attention_cached_case(50, 301, 8, 4, 10, 77));
  f(attention_cached_case(140, 400, 2, 2, 64, 130, 6.0));

  const auto softmax = score_function::softmax;
  const auto sigmoid = score_function::sigmoid;
  f(route_case(1, 1, 1, softmax, true));
  f(route_case(9, 5, 2, softmax, false));
  f(route_case(9, 5, 2, softmax, true));
  f(route_case(64, 32, 4, softmax, true, true, true));
  f(route_case(4, 512, 8, softmax, false));
  f(route_case(30, 6, 6, softmax, true, false, true));
  f(route_case(17, 24, 3, sigmoid, false));
  f(route_case(17, 24, 3, sigmoid, true, true, true));
  f(route_case(33, 512, 8, sigmoid, true));
  f(route_case(1500, 33, 5, softmax, true, true));

  f(experts_case(1, 1, 1, 1, 1));
  f(experts_case(6, 3, 2, 5, 7));
  f(experts_case(4, 512, 2, 12, 6));
  f(experts_case(130, 8, 2, 40, 24, traffic::some_idle));
  f(experts_case(90, 4, 4, 33, 17));
  f(experts_case(300, 6, 2, 48, 20, traffic::collapsed));
  f(experts_case(520, 1, 1, 32, 64));
  f(experts_case(150, 16, 3, 110, 130));
  f(experts_case(64, 4, 2, 16, 16, traffic::any, false));
  f(experts_case(1030, 1, 1, 24, 40, traffic::any, false));
  f(experts_case(150, 6, 2, 64, 32, traffic::any, true, {.rows = 64, .cols = 64}));
  f(experts_case(150, 6, 2, 32, 64, traffic::some_idle, false, {.rows = 64, .cols = 64}));
  f(experts_case(90, 4, 2, 33, 16, traffic::any, true, {.rows = 48, .cols = 40}));
  f(experts_case(90, 4, 2, 21, 19, traffic::any, true, {.rows = 23, .cols = 22}));
  f(experts_case(3000, 3, 1, 8, 16, traffic::collapsed, true, {.rows = 24, .cols = 16}));

  f(cross_entropy_case(1, 1, 1));
  f(cross_entropy_case(3, 5, 2));
  f(cross_entropy_case(50, 33, 257));
  f(cross_entropy_case(100, 48, 257, 7, true));
  f(cross_entropy_case(130, 16, 1100, 0, true));
  // Two blocks of tokens and more, tasks that are cut anywhere, an odd number of tokens.
  f(cross_entropy_case(340, 4, 18'000, 0, true));
  f(cross_entropy_with_gradient_case(1, 1, 1));
  f(cross_entropy_with_gradient_case(50, 33, 257));
  f(cross_entropy_with_gradient_case(101, 48, 257, 7, true));
  f(cross_entropy_with_gradient_case(130, 100, 1100, 3, true));
  f(cross_entropy_with_gradient_case(251, 4, 18'000));

  // Chunks with nothing behind them and with a rest, sequences without a whole chunk, one task and several.
  constexpr encoder_kind encoders[] = {encoder_kind::mean, encoder_kind::conv, encoder_kind::softmax};
  constexpr writeback_kind writebacks[] = {writeback_kind::direct, writeback_kind::scaled, writeback_kind::scalar,
                                           writeback_kind::normalised};
  for (const int factor : {1, 2, 3, 4}) {
    for (const encoder_kind encoder : encoders) {
      for (const int length : {1, 3, 8}) f(pool_case(2, length, 5, factor, encoder));
      f(pool_case(3, 9, 17, factor, encoder, true));
      f(pool_case(2, 30 + factor % 4, 33, factor, encoder, true));
      f(pool_case(1, 62 + factor % 4, 100, factor, encoder));
    }
    for (const writeback_kind kind : writebacks) {
      for (const int length : {1, 3, 8}) f(write_back_case(2, length, 5, factor, kind, false, length == 3));
      f(write_back_case(3, 9, 17, factor, kind, true));
      f(write_back_case(2, 30 + factor % 4, 33, factor, kind, true, true));
      f(write_back_case(1, 62 + factor % 4, 100, factor, kind));
      f(write_back_from_case(1, 7, 1, 24, factor, kind));
      f(write_back_from_case(3, 2, 5, 33, factor, kind));
    }
  }
  for (const encoder_kind encoder : encoders) f(pool_case(3, 200, 120, 7, encoder, true));
  for (const writeback_kind kind : writebacks) f(write_back_case(3, 200, 120, 7, kind, true));

  f(difference_case(1, 1));
  f(difference_case(37, 25, 1));
  f(difference_case(700, 129, 2));

  f(dot_case(1));
  f(dot_case(1003));
  f(dot_case(140'000));

  f(norm_case(1));
  f(norm_case(1003));
  f(norm_case(140'000));

  f(adamw_case(1, {.learning_rate = 1e-3}));
  f(adamw_case(1003, {.learning_rate = 1e-3, .weight_decay = 0.1, .gradient_scale = 0.5, .step = 1}));
  f(adamw_case(70'000, {.learning_rate = 3e-4, .weight_decay = 0.01, .step = 1000}));

  f(muon_case(1, 1, 1));
  f(muon_case(2, 1, 37));
  f(muon_case(2, 20, 1));
  f(muon_case(5, 32, 96));
  f(muon_case(3, 96, 32, 1e-25));
  f(muon_case(2, 17, 45));
  f(muon_case(2, 70, 33));
}

/// Calls f with every op on the shapes of small models that train on a CPU: 4,096 tokens a step.
template <class F>
void for_each_bench_case(F&& f) {
  f(embed_case(4096, 257, 256));
  for (const int width : {128, 512}) f(rms_norm_case(4096, width));
  f(rms_norm_case(4096 * 8, 32));
  f(linear_case(4096, 128, 128));
  f(linear_case(4096, 256, 256));
  f(linear_case(4096, 512, 512));
  f(linear_case(4096, 512, 64));
  f(linear_case(1, 512, 512));
  f(attention_input_case(4096, 128, 4, 1, 24));
  f(attention_input_case(4096, 256, 8, 2, 32));
  f(attention_input_case(4096, 256, 8, 2, 32, qk_norm::per_head));
  f(attention_case(8, 256, 4, 1, 24));
  f(attention_case(16, 256, 4, 2, 32));
  f(attention_case(16, 256, 8, 2, 16));
  f(attention_case(4, 1024, 8, 2, 64));
  f(attention_case(16, 256, 4, 2, 32, sight::documents));
  f(attention_cached_case(1, 512, 8, 2, 32));
  f(attention_cached_case(512, 512, 8, 2, 32));
  f(route_case(4096, 32, 4, score_function::softmax, true));
  f(route_case(4096, 64, 8, score_function::sigmoid, true));
  f(experts_case(4096, 16, 4, 128, 32));
  f(experts_case(4096, 32, 4, 128, 48));
  f(experts_case(4096, 32, 4, 256, 64));
  f(experts_case(4096, 64, 8, 512, 128));
  f(experts_case(4096, 1, 1, 256, 704));
  f(cross_entropy_case(4096, 128, 257));
  f(cross_entropy_case(4096, 512, 257));
  f(cross_entropy_with_gradient_case(4096, 128, 257));
  f(cross_entropy_with_gradient_case(4096, 512, 257));
  f(cross_entropy_with_gradient_case(4096, 256, 4096));
  for (const encoder_kind encoder : {encoder_kind::mean, encoder_kind::conv, encoder_kind::softmax})
    f(pool_case(16, 256, 256, 2, encoder));
  for (const writeback_kind kind : {writeback_kind::direct, writeback_kind::scaled, writeback_kind::normalised})
    f(write_back_case(16, 256, 256, 2, kind));
  f(difference_case(2048, 256));
  f(dot_case(4'000'000));
  f(norm_case(4'000'000));
  f(adamw_case(4'000'000, {.learning_rate = 3e-4, .weight_decay = 0.01, .step = 1000}));
  f(muon_case(96, 32, 128));
  f(muon_case(96, 128, 32));
  f(muon_case(8, 128, 128));
  f(muon_case(24, 128, 256));
}

// ---- running one ----------------------------------------------------------------------------------------------------

/// Can the op go backward?
template <class Case, class B>
concept has_backward = requires(const Case& c, B& b, arrays<typename B::scalar>& a) { c.backward(b, a, a, a, a); };

/// All that an op computes.
template <class Scalar>
struct op_results {
  arrays<Scalar> outputs;
  arrays<Scalar> gradients;
};

template <class Scalar>
[[nodiscard]] arrays<Scalar> rounded_inputs(const op_base& c) {
  arrays<Scalar> in;
  for (const op_input& input : c.inputs) {
    const std::vector<double> values = input.values();
    in.emplace_back(values.begin(), values.end());
  }
  return in;
}

/// Outputs, filled with NaN: what the op does not write stays visible.
template <class Scalar>
[[nodiscard]] arrays<Scalar> empty_outputs(const op_base& c) {
  arrays<Scalar> out;
  for (const op_output& output : c.outputs) {
    out.emplace_back(static_cast<std::size_t>(output.size), static_cast<Scalar>(std::nan("")));
  }
  return out;
}

/// The gradient of every output, in double.
[[nodiscard]] inline arrays<double> output_gradients(const op_base& c) {
  arrays<double> dout;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    dout.push_back(normal_numbers(c.outputs[i].differentiable ? c.outputs[i].size : 0, 100 + i));
  }
  return dout;
}

/// What the gradient arrays hold before the backward pass: numbers where it adds, NaN where it overwrites.
[[nodiscard]] inline arrays<double> gradients_before(const op_base& c) {
  arrays<double> din;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const auto size = static_cast<std::int64_t>(c.inputs[i].values().size());
    if (c.inputs[i].kind == gradient::adds) {
      din.push_back(normal_numbers(size, 200 + i));
    } else {
      din.emplace_back(static_cast<std::size_t>(size), std::nan(""));
    }
  }
  return din;
}

template <class Scalar>
[[nodiscard]] arrays<Scalar> rounded(const arrays<double>& from) {
  arrays<Scalar> to;
  for (const std::vector<double>& a : from) to.emplace_back(a.begin(), a.end());
  return to;
}

/// Runs an op forward and, where it can, backward.
template <class Case, class B>
[[nodiscard]] op_results<typename B::scalar> run_case(const Case& c, B& backend) {
  using scalar = typename B::scalar;
  arrays<scalar> in = rounded_inputs<scalar>(c);
  op_results<scalar> results{empty_outputs<scalar>(c), {}};
  c.forward(backend, in, results.outputs);
  if constexpr (has_backward<Case, B>) {
    arrays<scalar> dout = rounded<scalar>(output_gradients(c));
    results.gradients = rounded<scalar>(gradients_before(c));
    c.backward(backend, in, results.outputs, dout, results.gradients);
  }
  return results;
}

}  // namespace smelt::test
