// What must a backend be able to do? One concept: every op of a looped MoE step, forward and backward.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <smelt/core/view.hpp>
#include <smelt/kernels/attention_input.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>

namespace smelt {

/// Numbers of one AdamW update (decoupled weight decay).
struct adamw_step {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< multiplies every gradient first (clipping, averaging)
  std::int64_t step = 1;      ///< 1-based, for the bias correction
};

/// Numbers of one Muon update (orthogonalised momentum, decoupled weight decay).
struct muon_step {
  double learning_rate = 0;
  double momentum = 0.9;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< multiplies every gradient first (clipping, averaging)
};

/// A matrix [rows, cols] inside a buffer of parameters.
struct matrix_range {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  friend constexpr bool operator==(const matrix_range&, const matrix_range&) = default;
};

/// Some elements of a buffer of parameters, and whether AdamW decays them.
struct parameter_range {
  std::int64_t first = 0;
  std::int64_t size = 0;
  bool decayed = false;
  friend constexpr bool operator==(const parameter_range&, const parameter_range&) = default;
};

/// Coefficients with which a router's own losses enter the gradient.
struct router_loss_scale {
  double balance = 0;  ///< of the balance loss of this router evaluation
  double z = 0;        ///< of the z-loss of this router evaluation
};

/// Losses of one router evaluation over the real tokens (math: balance = E sum_e f_e P_e, uniform routing gives 1).
struct router_losses {
  double balance = 0;
  double z = 0;  ///< mean over tokens of logsumexp(logits)^2
};

/// Sum of the losses (nats) and number of the targets that counted.
struct loss_sum {
  double nats = 0;
  std::int64_t targets = 0;
};

/// A backend: an object with every op. T tokens, H width, V vocabulary, E experts, k active, f hidden width,
/// d head size. Matrices are row-major; weights are [out, in]. Gradients of weights are added to, gradients of
/// activations are added to where the comment says +=, and overwritten otherwise. The result of every op is bitwise the
/// same for every number of threads. Backward passes of an op take the forward op's inputs and saved outputs.
template <class B>
concept Backend =
    std::floating_point<typename B::scalar> &&
    requires(B& b, matrix_view<typename B::scalar> m, matrix_view<const typename B::scalar> c,
             std::span<typename B::scalar> s, std::span<const typename B::scalar> cs, std::span<const std::int32_t> ids,
             std::span<std::int32_t> out_ids, std::span<const std::uint8_t> mask, grouping_view<> group,
             grouping_view<std::int32_t> out_group, std::span<const parameter_range> ranges,
             std::span<const matrix_range> matrices, linear_shape linear, norm_shape norm,
             attention_input_shape attention_input, attention_shape attention, router_shape router,
             experts_shape experts, head_shape head, pool_shape pool, write_back_shape write_back) {
      // out[T,H] = table[ids[t]];  dtable[V,H] += rows of dout[T,H]
      b.embed(c, ids, m);           // (table, ids, out)
      b.embed_backward(c, ids, m);  // (dout, ids, dtable)

      // y[T,H] = x * inv_rms * gain, inv_rms[T] saved;  dx += , dgain +=
      b.rms_norm(norm, c, cs, m, s);                  // (shape, x, gain, y, inv_rms)
      b.rms_norm_backward(norm, c, cs, cs, c, m, s);  // (shape, x, gain, inv_rms, dy, dx +=, dgain +=)

      // y[T,out] = x[T,in] w[out,in]^T;  y = residual + scale x w^T (residual may be y)
      b.linear(linear, c, c, m);              // (shape, x, w, y)
      b.add_linear(linear, 1.0, c, c, c, m);  // (shape, scale, residual, x, w, y)
      // dx = scale dy w (added when accumulate);  dw += scale dy^T x
      b.linear_backward_input(linear, 1.0, c, c, m, true);  // (shape, scale, dy, w, dx, accumulate)
      b.linear_backward_weight(linear, 1.0, c, c, m);       // (shape, scale, x, dy, dw +=)

      // query, key and value of RMSNorm(x), x[T,H], normed as the shape says and turned by positions[T]
      b.attention_input(attention_input, c, attention_input_weights<const typename B::scalar>{}, ids,
                        attention_input_saved<typename B::scalar>{},
                        query_key_value<typename B::scalar>{});  // (shape, x, weights, positions, saved, out)
      b.attention_input_backward(attention_input, c, attention_input_weights<const typename B::scalar>{}, ids,
                                 attention_input_saved<const typename B::scalar>{},
                                 query_key_value<const typename B::scalar>{}, m,
                                 attention_input_weights<typename B::scalar>{});
      // (shape, x, weights, positions, saved, dout, dx +=, dweights +=)

      // rows are whole sequences of `length`; query row t attends to key rows first[t] .. t of the flattened batch
      // (first carries sequence starts, document masks and windows); lse[T * heads] is saved
      b.attention(attention, c, c, c, ids, std::int64_t{}, m, s);  // (shape, q, k, v, first, length, out, lse)
      b.attention_backward(attention, c, c, c, ids, std::int64_t{}, c, cs, c, m, m,
                           m);  // (shape, q, k, v, first, length, out, lse, dout, dq, dk, dv)

      // the same for T queries that go on with a sequence of N keys, the last T of which are their own: query row t
      // attends to key rows up to N - T + t, the last `window` of them or, where it is 0, all
      b.attention_cached(attention, c, c, c, std::int64_t{}, m);  // (shape, q, k, v, window, out)

      // scores[T,E] over all experts, ids[T*k] in descending order of score + bias (bias may be empty; selection
      // only), weights[T,k]; logsumexp[T] of the logits is saved
      b.route(router, c, cs, m, out_ids, m, s);  // (shape, logits, selection_bias, scores, ids, weights, logsumexp)
      // losses over tokens with mask != 0 (an empty mask is all), and the share load[E] of selections (sums to 1)
      {
        b.route_losses(router, c, ids, cs, mask, s)
      } -> std::same_as<router_losses>;  // (shape, scores, ids, logsumexp, mask, load)
      // dlogits[T,E] from dweights[T,k] and from the two losses
      b.route_backward(router, c, ids, c, cs, cs, mask, c, router_loss_scale{},
                       m);  // (shape, scores, ids, weights, logsumexp, load, mask, dweights, scale, dlogits)
      b.group_by_expert(router, ids, out_group);  // (shape, ids[T*k], grouping)

      // y[T,H] = residual + scale * sum over slots of weight * down(silu(gate x) * (up x)), where residual and y may be
      // the same array; gate, up [T*k, f] are saved by grouped row; weights of all experts stacked: gate, up [E*f, H],
      // down [E*H, f]
      b.experts(experts, 1.0, c, c, c, c, c, group, c, m, m, m);
      // (shape, scale, residual, x, w_gate, w_up, w_down, grouping, weights, gate, up, y)
      b.experts_backward(experts, 1.0, c, c, c, c, group, c, c, c, c, m, true, m, m, m, m);
      // (shape, scale, x, w_gate, w_up, w_down, grouping, weights, gate, up, dy, dx, add to dx?, dw_gate +=, dw_up +=,
      // dw_down +=, dweights)

      // cross-entropy of softmax(x table^T) against targets[T] (-1 is no loss), chunked over the vocabulary so that no
      // [T, V] matrix exists for large V; losses[T] in nats and logsumexp[T] are saved
      {
        b.cross_entropy(head, c, c, ids, s, s)
      } -> std::same_as<loss_sum>;  // (shape, x, table, targets, losses, logsumexp)
      b.cross_entropy_backward(head, c, c, ids, cs, 1.0, m,
                               m);  // (shape, x, table, targets, logsumexp, scale, dx, dtable +=)
      // both at once, which computes the logits once
      {
        b.cross_entropy_with_gradient(head, c, c, ids, 1.0, s, m, m)
      } -> std::same_as<loss_sum>;  // (shape, x, table, targets, scale, losses, dx, dtable +=)

      // z[S * (length / c), H], one row for every whole chunk of c = factor rows of each of S sequences of `length`,
      // from x[S * length, H]. A row enters if the chunk's last one sees it, which is the row first[last] or later (an
      // empty `first`: all of them do). mean: their mean, w is empty; conv: their sum, each times its row of w[c,H];
      // softmax: their mean weighted by the softmax of their products with w[1,H]. The backward pass computes these
      // weights again; the forward pass saves nothing.
      b.pool(pool, c, c, ids, std::int64_t{}, m);                 // (shape, x, w, first, length, z)
      b.pool_backward(pool, c, c, ids, std::int64_t{}, c, m, m);  // (shape, x, w, first, length, dz, dx +=, dw +=)

      // out = h[S * length, H] plus what the rows receive (h may be out). With rows counted from 0 in their sequence,
      // row c (j + 1) - 1 + i (0 <= i < c) receives d[j], which stands for rows cj to c (j + 1) - 1, times coefficient
      // i. It receives nothing if it does not see the last row that d[j] stands for, because first[row] lies behind
      // it. direct: 1, w is empty; scaled: w[i] of w[c,H]; scalar: w[i] of w[1,c]; normalised: w[i] of w[c,H] divided
      // by sqrt(mean(w[i]^2) + 1e-12). The first row of every sequence given has position `begin` in the whole
      // sequence, from whose start d counts: d[S * ((begin + length) / c), H]. `first` is empty where begin > 0.
      b.write_back(write_back, c, c, c, ids, std::int64_t{}, std::int64_t{},
                   m);  // (shape, h, d, w, first, begin, length, out)
      // begin = 0; the gradient of h is dout itself
      b.write_back_backward(write_back, c, c, ids, std::int64_t{}, c, m,
                            m);  // (shape, d, w, first, length, dout, dd, dw +=)

      // out = a - b, where out may be a or b
      b.difference(c, c, m);  // (a, b, out)
      // the sum of the products a[i] b[i]
      { b.dot(cs, cs) } -> std::same_as<double>;

      // while the result lives, no weight (w, w_gate, w_up, w_down, table) changes, and a backend may keep copies
      b.hold_weights();

      // Euclidean norm that does not overflow; a non-finite element gives a non-finite norm
      { b.norm(cs) } -> std::same_as<double>;
      // one update of the elements in the ranges, which ascend; their gradients are 0 afterwards
      b.adamw(adamw_step{}, ranges, s, s, s, s);  // (numbers, ranges, gradient, weight, first moment, second moment)
      // The same, of which a backend may leave any part for later. Every op finds the arrays that it is given as if
      // all had been done; who reads or writes them in another way, or frees them or the ranges, settles them first.
      b.adamw_deferred(adamw_step{}, ranges, s, s, s, s);
      // what was left of the updates of this array, and of the arrays that move with it, is done now
      b.settle(cs);
      // one update of matrices, which ascend; their gradients are 0 afterwards
      b.muon(muon_step{}, matrices, s, s, s);  // (numbers, matrices, gradient, weight, momentum)
    };

/// Holds the weights of a backend for passes that use them `repeatedly`, which then share packed copies. Weights that
/// are used once are better packed into scratch memory, which stays in the caches: kept copies of all go to memory and
/// back.
template <Backend B>
[[nodiscard]] auto hold_weights_if(bool repeatedly, B& backend) {
  std::optional<decltype(backend.hold_weights())> hold;
  if (repeatedly) hold.emplace(backend.hold_weights());
  return hold;
}

}  // namespace smelt
