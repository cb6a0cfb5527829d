// How surprised is the model by the next token? The cross-entropy of a softmax over the vocabulary. A task computes all
// logits of a few tokens, and while they are in its core's cache their softmax, their gradient and that of the inputs.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// The tokens whose targets count, in order.
[[nodiscard]] inline std::span<const std::int32_t> counted_targets(arena& memory,
                                                                   std::span<const std::int32_t> targets) {
  const std::span<std::int32_t> rows = memory.take<std::int32_t>(static_cast<std::int64_t>(targets.size()));
  std::size_t count = 0;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] >= 0) rows[count++] = static_cast<std::int32_t>(t);
  }
  return rows.first(count);
}

// Do these tokens follow each other?
[[nodiscard]] inline bool adjacent(std::span<const std::int32_t> tokens) noexcept {
  return tokens.back() - tokens.front() + 1 == static_cast<std::int32_t>(tokens.size());
}

// The logits of some tokens, in rows of whole vectors: those behind the vocabulary are -infinity.
struct logit_rows {
  float* data = nullptr;
  std::int64_t stride = 0;

  [[nodiscard]] float* operator[](std::int64_t r) const noexcept { return data + r * stride; }
};

[[nodiscard]] constexpr std::int64_t whole_vectors(std::int64_t size) noexcept {
  return (size + lanes - 1) / lanes * lanes;
}

template <class Element>
[[nodiscard]] logit_rows head_logits(arena& memory, matrix_view<const float> x, std::span<const std::int32_t> tokens,
                                     const Element* columns, std::int64_t vocab) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t width = x.cols;
  const float* from = x.data + tokens.front() * width;
  if (!adjacent(tokens)) {
    const std::span<float> copy = memory.take<float>(count * width);
    for (std::int64_t r = 0; r < count; ++r) {
      std::copy_n(x.data + tokens[r] * width, width, copy.data() + r * width);
    }
    from = copy.data();
  }
  const std::int64_t padded = whole_vectors(vocab);
  const std::int64_t stride = padded + policy::row_padding;
  const logit_rows logits{memory.take<float>(count * stride).data(), stride};
  multiply(rows_of<Element>(memory, from, width, count, width), packed_operand<Element>{columns, width}, count, width,
           padded, overwrite(logits.data, stride));
  for (std::int64_t r = 0; r < count; ++r) std::fill(logits[r] + vocab, logits[r] + padded, -__builtin_inff());
  return logits;
}

// Replaces logits by e^(logit - top) and returns their sum.
[[nodiscard]] inline float exponentiate(float* row, std::int64_t padded, float top) noexcept {
  floats sums = {};
  for (std::int64_t v = 0; v < padded; v += lanes) {
    const floats e = exp(load(row + v) - top);
    store(row + v, e);
    sums += e;
  }
  return sum_lanes(sums);
}

// Losses of some tokens, with the greatest logit and the sum of e^(logit - greatest) of each; the rows hold those
// powers afterwards. All rows take one part after the other, so that they hide each other's latencies.
inline void loss_rows(logit_rows rows, std::int64_t padded, std::span<const std::int32_t> tokens,
                      std::span<const std::int32_t> targets, std::span<float> losses, float* tops,
                      float* sums) noexcept {
  const auto count = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t r = 0; r < count; ++r) {
    tops[r] = greatest(rows[r], padded);
    losses[tokens[r]] = tops[r] - rows[r][targets[tokens[r]]];
  }
  for (std::int64_t r = 0; r < count; ++r) sums[r] = exponentiate(rows[r], padded, tops[r]);
  for (std::int64_t r = 0; r < count; ++r) losses[tokens[r]] += std::log(sums[r]);
}

[[nodiscard]] inline loss_sum sum_of(std::span<const float> losses, std::int64_t targets) noexcept {
  loss_sum result{.nats = 0, .targets = targets};
  for (const float loss : losses) result.nats += double(loss);
  return result;
}

// Scales the rows by a number each, which makes them the left operand of the gradient of the inputs, in place or in
// `memory`. `columns` receives the left operand of the table's gradient, whose rows are vocabulary entries: word k
// holds tokens k * word_depth on.
template <class Element>
[[nodiscard]] row_operand<Element> scale_rows(arena& memory, logit_rows rows, std::int64_t count, std::int64_t padded,
                                              const float* scales, Element* columns, std::int64_t column_stride) {
#if SMELT_BF16
  if constexpr (std::is_same_v<Element, bf16>) {
    const std::int64_t row_words = whole_vectors(words<bf16>(padded)) + policy::row_padding;
    bf16* const to = memory.take<bf16>((count + 1) * row_words * word_depth<bf16>).data();
    for (std::int64_t r = 0; r < count; r += 2) {
      const auto get = [&](std::int64_t row, std::int64_t v) {
        return v < padded && row < count ? load(rows[row] + v) * scales[row] : floats{};
      };
      const auto put_row = [&](std::int64_t row, std::int64_t v, floats low, floats high) {
        put_words(to, row * row_words + v / 2, (floats)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
      };
      for (std::int64_t v = 0; v < padded; v += 2 * lanes) {
        const floats low = get(r, v);
        const floats high = get(r, v + lanes);
        const floats next_low = get(r + 1, v);
        const floats next_high = get(r + 1, v + lanes);
        put_row(r, v, low, high);
        put_row(r + 1, v, next_low, next_high);
        put_words(columns, r / 2 * column_stride + v, make_words<bf16>(low, next_low));
        put_words(columns, r / 2 * column_stride + v + lanes, make_words<bf16>(high, next_high));
      }
    }
    return {to, row_words};
  } else
#endif
  {
    static_assert(std::is_same_v<Element, float>);
    static_cast<void>(memory);
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t v = 0; v < padded; v += lanes) {
        const floats value = load(rows[r] + v) * scales[r];
        store(rows[r] + v, value);
        store(columns + r * column_stride + v, value);
      }
    }
    return {rows.data, rows.stride};
  }
}

// dx and dtable += of the gradients of the logits. The rows of a task's tokens go through dlogits(tokens, rows,
// scales): it leaves there the gradients of the logits but for a factor for each row.
template <class Element, class Dlogits>
void head_gradient(context& c, arena& shared, matrix_view<const float> x, matrix_view<const float> table,
                   std::span<const std::int32_t> targets, std::span<const std::int32_t> counted, std::int64_t vocab,
                   matrix_view<float> dx, matrix_view<float> dtable, Dlogits dlogits) {
  const std::int64_t width = x.cols;
  const auto tokens = static_cast<std::int64_t>(counted.size());
  const std::int64_t padded = whole_vectors(vocab);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    if (targets[t] < 0) std::fill_n(dx.data + t * width, width, 0.0F);
  }
  if (tokens == 0) return;
  const matrix_view<const float> entries(table.data, vocab, width);
  const Element* columns = transposed_panels<Element>(c, shared, entries.cols, entries.rows, entries).data;
  const Element* rows = stored_panels<Element>(c, shared, entries.cols, entries.rows, entries).data;
  const std::int64_t block = (std::min)(policy::head_block(vocab), tokens);
  const std::int64_t task_rows = policy::head_rows(vocab);
  const std::span<Element> inputs = shared.take<Element>(packed_size<Element>(block, width));
  const std::int64_t left_stride = whole_vectors((padded + 1) / 2) * 2 + policy::row_padding;  // pairs of vectors
  const std::span<Element> left = shared.take<Element>(words<Element>(block) * left_stride * word_depth<Element>);
  const std::int64_t panels = panel_count(width);
  for (std::int64_t begin = 0; begin < tokens; begin += block) {
    const std::span<const std::int32_t> mine = counted.subspan(begin, (std::min)(block, tokens - begin));
    const auto depth = static_cast<std::int64_t>(mine.size());
    c.for_each(panels + (depth + task_rows - 1) / task_rows, [&](std::int64_t task) {
      if (task < panels) {
        pack_rows([&](std::int64_t r) { return x.data + mine[r] * width; }, depth, width, task, task + 1,
                  inputs.data());
        return;
      }
      const std::int64_t first = (task - panels) * task_rows;
      const std::int64_t count = (std::min)(task_rows, depth - first);
      const std::span<const std::int32_t> task_tokens = mine.subspan(first, count);
      const arena_loan memory = c.lend();
      const logit_rows logits = head_logits(*memory, x, task_tokens, columns, vocab);
      float scales[policy::most_head_rows];
      dlogits(task_tokens, logits, scales);
      const row_operand<Element> gradients =
          scale_rows(*memory, logits, count, padded, scales,
                     left.data() + first / word_depth<Element> * left_stride * word_depth<Element>, left_stride);
      const auto gradient = [&](float* to) {
        multiply(gradients, packed_operand<Element>{rows, vocab}, count, vocab, width, overwrite(to, width));
      };
      if (adjacent(task_tokens)) {
        gradient(dx.data + task_tokens.front() * width);
      } else {
        const std::span<float> gathered = memory->take<float>(count * width);
        gradient(gathered.data());
        for (std::int64_t r = 0; r < count; ++r) {
          std::copy_n(gathered.data() + r * width, width, dx.data + task_tokens[r] * width);
        }
      }
    });
    constexpr std::int64_t block_rows = policy::head_gradient_rows;
    constexpr std::int64_t block_cols = policy::head_gradient_cols;
    static_assert(block_cols % panel_width == 0);
    const std::int64_t across = (width + block_cols - 1) / block_cols;
    c.for_each((vocab + block_rows - 1) / block_rows * across, [&](std::int64_t task) {
      const std::int64_t row = task / across * block_rows;
      const std::int64_t col = task % across * block_cols;
      for (std::int64_t k = 0; k < depth; k += policy::head_gradient_depth) {
        const std::int64_t step = (std::min)(policy::head_gradient_depth, depth - k);
        const Element* from = left.data() + (k / word_depth<Element> * left_stride + row) * word_depth<Element>;
        multiply(column_operand<Element>{from, left_stride},
                 packed_operand<Element>{inputs.data() + col * words<Element>(depth) * word_depth<Element>, depth, k},
                 (std::min)(block_rows, vocab - row), step, (std::min)(block_cols, width - col),
                 accumulate(dtable.data + row * width + col, width));
      }
    });
  }
}

}  // namespace detail

/// losses[T] (nats) and logsumexp[T] of the logits x[T,H] table[V,H]^T against targets[T], and the sum over the
/// targets that count. A target of -1 is no loss: both its entries are 0. Throws invalid_argument, before anything is
/// computed, for a target outside -1 .. vocab - 1.
template <class Element, ShapeOf<head_shape> Shape>
[[nodiscard]] loss_sum cross_entropy(context& c, Shape shape, matrix_view<const float> x,
                                     matrix_view<const float> table, std::span<const std::int32_t> targets,
                                     std::span<float> losses, std::span<float> logsumexp) {
  const head_shape s = shape;
  const std::int64_t vocab = s.vocab;
  const std::int64_t width = s.width;
  reference_ops::detail::check_head<float, const float>("cross_entropy", s, x, table, targets);
  check_size("cross_entropy", "losses", losses, x.rows);
  check_size("cross_entropy", "logsumexp", logsumexp, x.rows);
  std::fill(losses.begin(), losses.end(), 0.0F);
  std::fill(logsumexp.begin(), logsumexp.end(), 0.0F);
  arena& shared = c.shared();
  const std::span<const std::int32_t> counted = detail::counted_targets(shared, targets);
  const auto tokens = static_cast<std::int64_t>(counted.size());
  const matrix_view<const float> entries(table.data, vocab, width);
  const Element* columns = detail::transposed_panels<Element>(c, shared, width, vocab, entries).data;
  c.for_chunks(tokens, policy::head_rows(vocab), [&](std::int64_t first, std::int64_t last) {
    const arena_loan memory = c.lend();
    const std::span<const std::int32_t> task_tokens = counted.subspan(first, last - first);
    const detail::logit_rows logits = detail::head_logits(*memory, x, task_tokens, columns, vocab);
    float tops[policy::most_head_rows];
    float sums[policy::most_head_rows];
    detail::loss_rows(logits, detail::whole_vectors(vocab), task_tokens, targets, losses, tops, sums);
    for (std::int64_t r = 0; r < last - first; ++r) logsumexp[task_tokens[r]] = tops[r] + std::log(sums[r]);
  });
  return detail::sum_of(losses, tokens);
}

/// dx[T,H] (overwritten; exactly 0 where the target is -1) and dtable[V,H] += of scale * the sum of the losses.
template <class Element, ShapeOf<head_shape> Shape>
void cross_entropy_backward(context& c, Shape shape, matrix_view<const float> x, matrix_view<const float> table,
                            std::span<const std::int32_t> targets, std::span<const float> logsumexp, double scale,
                            matrix_view<float> dx, matrix_view<float> dtable) {
  const head_shape s = shape;
  const std::int64_t vocab = s.vocab;
  reference_ops::detail::check_head<float, const float>("cross_entropy_backward", s, x, table, targets);
  check_size("cross_entropy_backward", "logsumexp", logsumexp, x.rows);
  check_shape("cross_entropy_backward", "dx", dx, x.rows, s.width);
  check_shape("cross_entropy_backward", "dtable", dtable, table.rows, s.width);
  arena& shared = c.shared();
  const std::span<const std::int32_t> counted = detail::counted_targets(shared, targets);
  const auto factor = static_cast<float>(scale);
  detail::head_gradient<Element>(
      c, shared, x, table, targets, counted, vocab, dx, dtable,
      [&](std::span<const std::int32_t> tokens, detail::logit_rows rows, float* scales) {
        for (std::int64_t r = 0; r < static_cast<std::int64_t>(tokens.size()); ++r) {
          static_cast<void>(detail::exponentiate(rows[r], detail::whole_vectors(vocab), logsumexp[tokens[r]]));
          rows[r][targets[tokens[r]]] -= 1.0F;
          scales[r] = factor;
        }
      });
}

/// cross_entropy and cross_entropy_backward at once, with the logits computed once.
template <class Element, ShapeOf<head_shape> Shape>
[[nodiscard]] loss_sum cross_entropy_with_gradient(context& c, Shape shape, matrix_view<const float> x,
                                                   matrix_view<const float> table,
                                                   std::span<const std::int32_t> targets, double scale,
                                                   std::span<float> losses, matrix_view<float> dx,
                                                   matrix_view<float> dtable) {
  const head_shape s = shape;
  const std::int64_t vocab = s.vocab;
  reference_ops::detail::check_head_gradient<float>(s, x, table, targets, losses, dx, dtable);
  std::fill(losses.begin(), losses.end(), 0.0F);
  arena& shared = c.shared();
  const std::span<const std::int32_t> counted = detail::counted_targets(shared, targets);
  const auto factor = static_cast<float>(scale);
  detail::head_gradient<Element>(c, shared, x, table, targets, counted, vocab, dx, dtable,
                                 [&](std::span<const std::int32_t> tokens, detail::logit_rows rows, float* scales) {
                                   float tops[policy::most_head_rows];
                                   float sums[policy::most_head_rows];
                                   detail::loss_rows(rows, detail::whole_vectors(vocab), tokens, targets, losses, tops,
                                                     sums);
                                   for (std::int64_t r = 0; r < static_cast<std::int64_t>(tokens.size()); ++r) {
                                     rows[r][targets[tokens[r]]] -= sums[r];
                                     scales[r] = factor / sums[r];
                                   }
                                 });
  return detail::sum_of(losses, static_cast<std::int64_t>(counted.size()));
}

}  // namespace smelt::cpu_ops::SMELT_SET
