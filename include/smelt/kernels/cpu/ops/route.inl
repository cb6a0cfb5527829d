// Which experts does a token visit, with which weights, and what do the router's own losses say about it?

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

[[nodiscard]] inline std::int64_t router_rows(std::int64_t experts) noexcept {
  return (std::max)(policy::row_elements / experts, std::int64_t{1});
}

// Tokens whose experts are selected together, because the latency of one's reductions hides that of the others'. Top 4
// of 32 for 2,048 tokens, with all of routing: 109 us on one Zen 5 core (222 by ranking every pair of experts); top 8
// of 512: 0.84 ms (2.5 by insertion).
inline constexpr std::int64_t selected_together = 4;

// Replaces what is no number by minus infinity, and fills the vector behind the experts with NaNs, which stand for
// experts that are not there.
inline void prepare_selection(std::int64_t experts, float* values) noexcept {
  const std::int64_t padded = (experts + lanes - 1) / lanes * lanes;
  for (std::int64_t e = 0; e < padded; e += lanes) {
    const floats value = load(values + e);
    const ints there = lane_numbers() < static_cast<std::int32_t>(experts - e);
    // Only a NaN differs from itself.
    // NOLINTNEXTLINE(misc-redundant-expression)
    const floats number = value == value ? value : broadcast(-std::numeric_limits<float>::infinity());
    store(values + e, there ? number : broadcast(std::numeric_limits<float>::quiet_NaN()));
  }
}

// ids[t][active] of the greatest values, in descending order, ties to the lower number, for each of `tokens` tokens
// whose prepared values are `stride` apart. A NaN stands for an expert that is taken.
template <std::int64_t Tokens>
void select_experts(std::int64_t experts, std::int64_t active, float* values, std::int64_t stride,
                    std::int32_t* ids) noexcept {
  constexpr float none = std::numeric_limits<float>::infinity();
  const floats numbers = __builtin_convertvector(lane_numbers(), floats);
  for (std::int64_t a = 0; a < active; ++a) {
    floats best[Tokens];
    floats where[Tokens];
    for (std::int64_t t = 0; t < Tokens; ++t) {
      best[t] = load(values + t * stride);
      where[t] = numbers;
    }
    for (std::int64_t e = lanes; e < experts; e += lanes) {
      for (std::int64_t t = 0; t < Tokens; ++t) {
        const floats value = load(values + t * stride + e);
        // NOLINTNEXTLINE(misc-redundant-expression): only a NaN differs from itself
        const ints better = (value > best[t]) | (best[t] != best[t]);
        best[t] = better ? value : best[t];
        where[t] = better ? numbers + static_cast<float>(e) : where[t];
      }
    }
    for (std::int64_t t = 0; t < Tokens; ++t) {
      // NOLINTNEXTLINE(misc-redundant-expression)
      const floats known = best[t] == best[t] ? best[t] : broadcast(-none);
      const float top = greatest_lane(known);
      const float first =
          fold_lanes(best[t] == top ? where[t] : broadcast(none), [](auto x, auto y) { return x < y ? x : y; });
      const auto id = static_cast<std::int32_t>(first);
      ids[t * active + a] = id;
      const std::int64_t at = id / lanes * lanes;
      const ints taken = lane_numbers() == static_cast<std::int32_t>(id - at);
      float* vector = values + t * stride + at;
      store(vector, taken ? broadcast(std::numeric_limits<float>::quiet_NaN()) : load(vector));
    }
  }
}

}  // namespace detail

/// scores[T,E] (softmax over all experts, or sigmoid) and logsumexp[T] of logits[T,E]; ids[T*k] in descending order of
/// score + selection_bias[E] (empty: none), ties to the lower index; weights[T,k] are the selected scores, divided by
/// their sum when the shape renormalises. Non-finite logits give non-finite scores, and ids that are still valid.
template <ShapeOf<router_shape> Shape>
void route(context& c, Shape shape, matrix_view<const float> logits, std::span<const float> selection_bias,
           matrix_view<float> scores, std::span<std::int32_t> ids, matrix_view<float> weights,
           std::span<float> logsumexp) {
  const router_shape s = shape;
  const std::int64_t experts = s.experts;
  const std::int64_t active = s.active;
  reference_ops::detail::check_route<float>(s, logits, selection_bias, scores, ids, weights, logsumexp);
  c.for_chunks(logits.rows, detail::router_rows(experts), [&](std::int64_t first, std::int64_t last) {
    constexpr std::int64_t together = detail::selected_together;
    const arena_loan memory = c.lend();
    const std::int64_t padded = (experts + lanes - 1) / lanes * lanes;
    const std::span<float> values = memory->take<float>(together * padded);
    for (std::int64_t begin = first; begin < last; begin += together) {
      const std::int64_t tokens = (std::min)(together, last - begin);
      for (std::int64_t i = 0; i < tokens; ++i) {
        const float* logit = logits.data + (begin + i) * experts;
        float* score = scores.data + (begin + i) * experts;
        float* value = values.data() + i * padded;
        const float top = greatest(logit, experts);
        for_vectors(experts, [&](auto get, auto put) { put(score, exp(get(logit) - top)); });
        const float total = sum(score, experts);
        logsumexp[begin + i] = top + std::log(total);
        if (s.score == score_function::softmax) {
          const float inverse = 1.0F / total;
          for_vectors(experts, [&](auto get, auto put) { put(score, get(score) * inverse); });
        } else {
          for_vectors(experts, [&](auto get, auto put) { put(score, sigmoid(get(logit))); });
        }
        for_vectors(experts, [&](auto get, auto put) {
          put(value, selection_bias.empty() ? get(score) : get(score) + get(selection_bias.data()));
        });
        detail::prepare_selection(experts, value);
      }
      std::int32_t* chosen = ids.data() + begin * active;
      if (tokens == together) {
        detail::select_experts<together>(experts, active, values.data(), padded, chosen);
      } else {
        for (std::int64_t i = 0; i < tokens; ++i) {
          detail::select_experts<1>(experts, active, values.data() + i * padded, padded, chosen + i * active);
        }
      }
      for (std::int64_t i = 0; i < tokens; ++i) {
        const float* score = scores.data + (begin + i) * experts;
        const std::int32_t* id = chosen + i * active;
        float* weight = weights.data + (begin + i) * active;
        auto selected = static_cast<float>(reference_ops::least_score_sum);
        for (std::int64_t a = 0; a < active; ++a) selected += score[id[a]];
        const float divisor = s.renormalise ? selected : 1.0F;
        for (std::int64_t a = 0; a < active; ++a) weight[a] = score[id[a]] / divisor;
      }
    }
  });
}

/// The router's losses over the tokens whose mask is not 0 (an empty mask is all of them), and load[E], the share of
/// selections. Sums run over the counted tokens in chunks of a fixed number of them, so tokens that do not count leave
/// no trace, not even in the rounding.
template <ShapeOf<router_shape> Shape>
[[nodiscard]] router_losses route_losses(context& c, Shape shape, matrix_view<const float> scores,
                                         std::span<const std::int32_t> ids, std::span<const float> logsumexp,
                                         std::span<const std::uint8_t> mask, std::span<float> load) {
  const router_shape s = shape;
  const std::int64_t tokens = scores.rows;
  const std::int64_t experts = s.experts;
  reference_ops::detail::check_route_losses<float>(s, scores, ids, logsumexp, mask, load);
  arena& shared = c.shared();
  const std::span<std::int32_t> counted = shared.take<std::int32_t>(tokens);
  std::int64_t real = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (reference_ops::detail::counts(mask, t)) counted[real++] = static_cast<std::int32_t>(t);
  }
  std::fill(load.begin(), load.end(), 0.0F);
  if (real == 0) return {};
  const std::int64_t rows = detail::router_rows(experts);
  const std::int64_t tasks = (real + rows - 1) / rows;
  // For each task: mean score and number of selections of every expert, and the sum of squared logsumexps.
  const std::span<double> partial = shared.take<double>(tasks * (2 * experts + 1));
  c.for_chunks(real, rows, [&](std::int64_t first, std::int64_t last) {
    double* probability = partial.data() + first / rows * (2 * experts + 1);
    double* selections = probability + experts;
    double& squares = selections[experts];
    std::fill_n(probability, 2 * experts + 1, 0.0);
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t t = counted[r];
      const float* score = scores.data + t * experts;
      for (std::int64_t a = 0; a < s.active; ++a) selections[ids[t * s.active + a]] += 1;
      double inverse = 1;
      if (s.score == score_function::sigmoid) {
        double total = reference_ops::least_score_sum;
        for (std::int64_t e = 0; e < experts; ++e) total += double(score[e]);
        inverse = 1 / total;
      }
      for (std::int64_t e = 0; e < experts; ++e) probability[e] += double(score[e]) * inverse;
      squares += double(logsumexp[t]) * double(logsumexp[t]);
    }
  });
  for (std::int64_t i = 1; i < tasks; ++i) {
    for (std::int64_t j = 0; j < 2 * experts + 1; ++j) partial[j] += partial[i * (2 * experts + 1) + j];
  }
  double balance = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const double share = partial[experts + e] / double(real * s.active);
    load[e] = static_cast<float>(share);
    balance += share * (partial[e] / double(real));
  }
  return {.balance = balance * double(experts), .z = partial[2 * experts] / double(real)};
}

/// dlogits[T,E] (overwritten) from dweights[T,k] and, on the counted tokens, from scale.balance * balance and
/// scale.z * z. The load is a count and has no gradient.
template <ShapeOf<router_shape> Shape>
void route_backward(context& c, Shape shape, matrix_view<const float> scores, std::span<const std::int32_t> ids,
                    matrix_view<const float> weights, std::span<const float> logsumexp, std::span<const float> load,
                    std::span<const std::uint8_t> mask, matrix_view<const float> dweights, router_loss_scale scale,
                    matrix_view<float> dlogits) {
  const router_shape s = shape;
  const std::int64_t experts = s.experts;
  const std::int64_t active = s.active;
  reference_ops::detail::check_route_backward<float>(s, scores, ids, weights, logsumexp, load, mask, dweights, dlogits);
  const bool softmax = s.score == score_function::softmax;
  const auto real = double((std::max)(reference_ops::detail::counted(mask, scores.rows), std::int64_t{1}));
  const auto balance = static_cast<float>(scale.balance * double(experts) / real);
  const auto z = static_cast<float>(2 * scale.z / real);
  constexpr auto least_sum = static_cast<float>(reference_ops::least_score_sum);
  c.for_chunks(scores.rows, detail::router_rows(experts), [&](std::int64_t first, std::int64_t last) {
    const arena_loan memory = c.lend();
    const std::span<float> gradient = memory->take<float>(experts);
    const std::span<float> odds = memory->take<float>(experts);
    float* dscore = gradient.data();
    for (std::int64_t t = first; t < last; ++t) {
      const float* score = scores.data + t * experts;
      const float* dweight = dweights.data + t * active;
      const std::int32_t* chosen = ids.data() + t * active;
      const bool counts = reference_ops::detail::counts(mask, t);

      // Balance, through the mean probability.
      if (!counts || balance == 0.0F) {
        std::fill_n(dscore, experts, 0.0F);
      } else if (softmax) {
        for_vectors(experts, [&](auto get, auto put) { put(dscore, balance * get(load.data())); });
      } else {
        const float inverse = 1.0F / (least_sum + sum(score, experts));
        const float mean = dot(load.data(), score, experts) * inverse;
        for_vectors(experts, [&](auto get, auto put) { put(dscore, balance * inverse * (get(load.data()) - mean)); });
      }

      // The weights, through their renormalisation.
      float selected = least_sum;
      float pull = 0;
      for (std::int64_t a = 0; a < active; ++a) {
        selected += score[chosen[a]];
        pull += dweight[a] * weights.data[t * active + a];
      }
      for (std::int64_t a = 0; a < active; ++a) {
        dscore[chosen[a]] += s.renormalise ? (dweight[a] - pull) / selected : dweight[a];
      }

      // The scores, through softmax or sigmoid; and the z-loss, whose gradient needs the softmax of the logits. Sigmoid
      // scores give it through their odds s / (1 - s) = exp(logit), kept finite where s rounds to 1.
      const float z_pull = counts ? z * logsumexp[t] : 0.0F;
      float* dlogit = dlogits.data + t * experts;
      if (softmax) {
        const float projection = dot(dscore, score, experts);
        for_vectors(experts,
                    [&](auto get, auto put) { put(dlogit, get(score) * (get(dscore) - projection + z_pull)); });
      } else {
        for_vectors(experts, [&](auto get, auto put) {
          const floats p = get(score);
          put(dlogit, p * (1.0F - p) * get(dscore));
        });
        if (z_pull != 0.0F) {
          for_vectors(experts, [&](auto get, auto put) {
            constexpr float least = std::numeric_limits<float>::epsilon() / 4;
            const floats rest = 1.0F - get(score);
            put(odds.data(), get(score) / (rest > least ? rest : broadcast(least)));
          });
          const float factor = z_pull / (sum(odds.data(), experts) + (std::numeric_limits<float>::min)());
          for_vectors(experts, [&](auto get, auto put) { put(dlogit, get(dlogit) + factor * get(odds.data())); });
        }
      }
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
