// How surprised is the model by the next token? The cross-entropy of a softmax over the vocabulary, a chunk of which
// has logits at a time.

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

// logits[last - first, stride] of the counted tokens [first, last) against packed columns of the table.
inline void chunk_logits(arena& memory, matrix_view<const float> x, std::span<const std::int32_t> counted,
                         std::int64_t first, std::int64_t last, const float* packed, std::int64_t entries,
                         float* logits, std::int64_t stride) {
  const std::int64_t padded = x.cols + policy::row_padding;
  const std::span<float> inputs = memory.take<float>(policy::head_rows * padded);
  for (std::int64_t r = first; r < last; ++r) {
    std::copy_n(x.data + counted[r] * x.cols, x.cols, inputs.data() + (r - first) * padded);
  }
  multiply(row_operand<float>{inputs.data(), padded}, packed_operand<float>{packed, x.cols}, last - first, x.cols, entries, overwrite(logits, stride));
}

[[nodiscard]] inline std::int64_t logit_stride(std::int64_t entries) noexcept {
  return (entries + lanes - 1) / lanes * lanes + policy::row_padding;
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
  const std::int64_t most = (std::min)(vocab, policy::vocab_chunk);
  const std::span<float> packed = shared.take<float>(packed_size<float>(width, most));
  const std::span<float> tops = shared.take<float>(tokens);
  const std::span<float> sums = shared.take<float>(tokens);
  const std::span<float> target_logits = shared.take<float>(tokens);
  for (std::int64_t begin = 0; begin < vocab; begin += most) {
    const std::int64_t entries = (std::min)(most, vocab - begin);
    c.for_each(panel_count(entries), [&](std::int64_t panel) {
      pack_columns(table.data + begin * width, width, width, entries, panel, panel + 1, packed.data());
    });
    c.for_chunks(tokens, policy::head_rows, [&](std::int64_t first, std::int64_t last) {
      const arena_loan memory = c.lend();
      const std::int64_t stride = detail::logit_stride(entries);
      const std::span<float> logits = memory->take<float>(policy::head_rows * stride);
      detail::chunk_logits(*memory, x, counted, first, last, packed.data(), entries, logits.data(), stride);
      for (std::int64_t r = first; r < last; ++r) {
        float* row = logits.data() + (r - first) * stride;
        const std::int64_t target = targets[counted[r]] - begin;
        if (target >= 0 && target < entries) target_logits[r] = row[target];
        const float chunk_top = greatest(row, entries);
        const float top = begin == 0 || chunk_top > tops[r] ? chunk_top : tops[r];
        for_vectors(entries, [&](auto get, auto put) { put(row, exp(get(row) - top)); });
        const float before = begin == 0 ? 0.0F : sums[r] * std::exp(tops[r] - top);
        sums[r] = before + sum(row, entries);
        tops[r] = top;
      }
    });
  }
  loss_sum result{.nats = 0, .targets = tokens};
  for (std::int64_t r = 0; r < tokens; ++r) {
    const std::int64_t t = counted[r];
    logsumexp[t] = tops[r] + std::log(sums[r]);
    losses[t] = logsumexp[t] - target_logits[r];
    result.nats += double(losses[t]);
  }
  return result;
}

/// dx[T,H] (overwritten; exactly 0 where the target is -1) and dtable[V,H] += of scale * the sum of the losses.
template <class Element, ShapeOf<head_shape> Shape>
void cross_entropy_backward(context& c, Shape shape, matrix_view<const float> x,
                            matrix_view<const float> table, std::span<const std::int32_t> targets,
                            std::span<const float> logsumexp, double scale, matrix_view<float> dx,
                            matrix_view<float> dtable) {
  const head_shape s = shape;
  const std::int64_t vocab = s.vocab;
  const std::int64_t width = s.width;
  reference_ops::detail::check_head<float, const float>("cross_entropy_backward", s, x, table, targets);
  check_size("cross_entropy_backward", "logsumexp", logsumexp, x.rows);
  check_shape("cross_entropy_backward", "dx", dx, x.rows, width);
  check_shape("cross_entropy_backward", "dtable", dtable, table.rows, width);
  arena& shared = c.shared();
  const std::span<const std::int32_t> counted = detail::counted_targets(shared, targets);
  const auto tokens = static_cast<std::int64_t>(counted.size());
  const std::int64_t most = (std::min)(vocab, policy::vocab_chunk);
  const std::span<float> columns = shared.take<float>(packed_size<float>(width, most));
  const std::span<float> rows = shared.take<float>(packed_size<float>(most, width));
  const std::span<float> inputs = shared.take<float>(packed_size<float>(tokens, width));
  const std::span<float> dlogits = shared.take<float>(tokens * detail::logit_stride(most));
  const auto factor = static_cast<float>(scale);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    if (targets[t] < 0) std::fill_n(dx.data + t * width, width, 0.0F);
  }
  c.for_each(panel_count(width), [&](std::int64_t panel) {
    pack_rows([&](std::int64_t r) { return x.data + counted[r] * width; }, tokens, width, panel, panel + 1,
              inputs.data());
  });
  for (std::int64_t begin = 0; begin < vocab; begin += most) {
    const std::int64_t entries = (std::min)(most, vocab - begin);
    const std::int64_t stride = detail::logit_stride(entries);
    c.for_each(panel_count(entries), [&](std::int64_t panel) {
      pack_columns(table.data + begin * width, width, width, entries, panel, panel + 1, columns.data());
    });
    c.for_each(panel_count(width), [&](std::int64_t panel) {
      pack_rows([&](std::int64_t v) { return table.data + (begin + v) * width; }, entries, width, panel, panel + 1,
                rows.data());
    });
    c.for_chunks(tokens, policy::head_rows, [&](std::int64_t first, std::int64_t last) {
      const arena_loan memory = c.lend();
      detail::chunk_logits(*memory, x, counted, first, last, columns.data(), entries, dlogits.data() + first * stride,
                           stride);
      for (std::int64_t r = first; r < last; ++r) {
        float* row = dlogits.data() + r * stride;
        const float log_sum = logsumexp[counted[r]];
        for_vectors(entries, [&](auto get, auto put) { put(row, factor * exp(get(row) - log_sum)); });
        const std::int64_t target = targets[counted[r]] - begin;
        if (target >= 0 && target < entries) row[target] -= factor;
      }
      const std::span<float> gradients = memory->take<float>(policy::head_rows * width);
      multiply(row_operand<float>{dlogits.data() + first * stride, stride}, packed_operand<float>{rows.data(), entries}, last - first, entries, width, overwrite(gradients.data(), width));
      for (std::int64_t r = first; r < last; ++r) {
        const float* from = gradients.data() + (r - first) * width;
        float* to = dx.data + counted[r] * width;
        for_vectors(width, [&](auto get, auto put) { put(to, begin == 0 ? get(from) : get(to) + get(from)); });
      }
    });
    for_blocks(c, entries, width, [&](std::int64_t row, std::int64_t count, std::int64_t col, std::int64_t cols) {
      multiply(column_operand<float>{dlogits.data() + row, stride}, packed_operand<float>{inputs.data() + col * tokens, tokens}, count, tokens, cols, accumulate(dtable.data + (begin + row) * width + col, width));
    });
  }
}

}  // namespace smelt::cpu_ops::SMELT_SET
