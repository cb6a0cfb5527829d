// How are the weights of experts packed, and kept for a step?

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

static_assert(panel_vectors == 2, "[smelt] a panel is a vector of gate columns and one of up columns");

// Hidden units with the padding of their last vector.
[[nodiscard]] constexpr std::int64_t padded_hidden(std::int64_t hidden) noexcept {
  return (hidden + lanes - 1) / lanes * lanes;
}

// Hidden units of which gate and up stand together where both are a depth: in rows of their gradients, and in the
// right operand of those. A multiple of every set's vectors.
inline constexpr std::int64_t unit_group = 16;
static_assert(unit_group % lanes == 0, "[smelt] a group of hidden units must be whole vectors");

// Where `unit` of gate and of up are among [gate up] of so many padded units: groups of gate units, each followed by
// its up units, so that the leading units of both are contiguous.
[[nodiscard]] constexpr std::int64_t gate_place(std::int64_t unit) noexcept {
  return unit / unit_group * 2 * unit_group + unit % unit_group;
}
[[nodiscard]] constexpr std::int64_t up_place(std::int64_t unit, std::int64_t padded) noexcept {
  return gate_place(unit) + (std::min)(unit_group, padded - unit / unit_group * unit_group);
}

// The leading hidden units and channels of one expert: of gate and up [f, H] and down [H, f] as they are stored.
struct expert_weights {
  const float* gate;
  const float* up;
  const float* down;
  std::int64_t width;
  std::int64_t hidden;
  std::int64_t stored_width;
  std::int64_t stored_hidden;
};

// The stored weights of all experts, one after the other, and what of them is used.
struct stacked_weights {
  const float* gate;
  const float* up;
  const float* down;
  std::int64_t experts;
  std::int64_t width;
  std::int64_t hidden;
  std::int64_t stored_width;
  std::int64_t stored_hidden;

  // Elements that are used.
  [[nodiscard]] std::int64_t size() const noexcept { return experts * 3 * width * hidden; }
  [[nodiscard]] expert_weights operator[](std::int64_t e) const noexcept {
    const std::int64_t at = e * stored_width * stored_hidden;
    return {gate + at, up + at, down + at, width, hidden, stored_width, stored_hidden};
  }
};

// A right operand that an expert's weights are packed as.
template <class Element>
struct expert_form {
  weight_form form;
  // Elements of the operand.
  std::int64_t (*size)(std::int64_t width, std::int64_t hidden);
  // Whether products with what is used of the weights can read the operand of all that is stored: its leading panels
  // and words.
  bool (*shares)(const expert_weights&);
  void (*pack)(arena&, const expert_weights&, Element*);
};

// The right operand of x [gate up]^T: in every panel a vector of gate columns and the up columns of the same units.
template <class Element>
inline constexpr expert_form<Element> gate_up_columns{
    weight_form::transposed,
    [](std::int64_t width, std::int64_t hidden) { return packed_size<Element>(width, 2 * padded_hidden(hidden)); },
    [](const expert_weights& w) {
      return ends_with_step(w.width, w.stored_width, word_depth<Element>) &&
             ends_with_step(w.hidden, w.stored_hidden, lanes);
    },
    [](arena& memory, const expert_weights& w, Element* to) {
      const std::int64_t padded = padded_hidden(w.hidden);
      const std::span<float> mixed = memory.take<float>(2 * padded * w.width);
      for (std::int64_t unit = 0; unit < padded; ++unit) {
        float* gate = mixed.data() + (unit / lanes * panel_width + unit % lanes) * w.width;
        float* up = gate + lanes * w.width;
        if (unit < w.hidden) {
          std::copy_n(w.gate + unit * w.stored_width, w.width, gate);
          std::copy_n(w.up + unit * w.stored_width, w.width, up);
        } else {
          std::fill_n(gate, w.width, 0.0F);
          std::fill_n(up, w.width, 0.0F);
        }
      }
      pack_columns(mixed.data(), w.width, w.width, 2 * padded, 0, panel_count(2 * padded), to);
    }};

// The right operand of (silu(gate) up) down^T.
template <class Element>
inline constexpr expert_form<Element> down_columns{
    weight_form::transposed,
    [](std::int64_t width, std::int64_t hidden) { return packed_size<Element>(hidden, width); },
    [](const expert_weights& w) {
      return ends_with_step(w.hidden, w.stored_hidden, word_depth<Element>) &&
             ends_with_step(w.width, w.stored_width, panel_width);
    },
    [](arena&, const expert_weights& w, Element* to) {
      pack_columns(w.down, w.stored_hidden, w.hidden, w.width, 0, panel_count(w.width), to);
    }};

// The right operand of dy down.
template <class Element>
inline constexpr expert_form<Element> down_rows{
    weight_form::as_stored, [](std::int64_t width, std::int64_t hidden) { return packed_size<Element>(width, hidden); },
    [](const expert_weights& w) {
      return ends_with_step(w.width, w.stored_width, word_depth<Element>) &&
             ends_with_step(w.hidden, w.stored_hidden, panel_width);
    },
    [](arena&, const expert_weights& w, Element* to) {
      pack_rows([&](std::int64_t k) { return w.down + k * w.stored_hidden; }, w.width, w.hidden, 0,
                panel_count(w.hidden), to);
    }};

// The right operand of [dgate dup] [gate; up], whose units are in groups and padded to whole vectors.
template <class Element>
inline constexpr expert_form<Element> gate_up_rows{
    weight_form::as_stored,
    [](std::int64_t width, std::int64_t hidden) { return packed_size<Element>(2 * padded_hidden(hidden), width); },
    [](const expert_weights& w) {
      return ends_with_step(w.hidden, w.stored_hidden, unit_group) &&
             ends_with_step(w.width, w.stored_width, panel_width);
    },
    [](arena& memory, const expert_weights& w, Element* to) {
      const std::int64_t padded = padded_hidden(w.hidden);
      const std::span<float> none = memory.take<float>(w.width);
      std::fill(none.begin(), none.end(), 0.0F);
      const std::span<const float*> rows = memory.take<const float*>(2 * padded);
      for (std::int64_t unit = 0; unit < padded; ++unit) {
        const bool is_there = unit < w.hidden;
        rows[gate_place(unit)] = is_there ? w.gate + unit * w.stored_width : none.data();
        rows[up_place(unit, padded)] = is_there ? w.up + unit * w.stored_width : none.data();
      }
      pack_rows([&](std::int64_t k) { return rows[k]; }, 2 * padded, w.width, 0, panel_count(w.width), to);
    }};

// One packed form of the weights of the experts that have rows. Copies are kept while somebody holds the weights still;
// otherwise they are made for one op, all of them at once or each by the task that needs it. All are the same: what an
// expert gives for a token depends neither on who holds the weights nor on how many other tokens chose it.
template <class Element>
class expert_panels {
 public:
  // A kept copy goes by the weight's address `name`, and is of all that is stored if the form shares that. Those of one
  // op are taken from `memory` if they are made `at_once`.
  expert_panels(context& c, arena& memory, const stacked_weights& weights, bool at_once,
                const grouping_view<>& grouping, const float* name, const expert_form<Element>& form)
      : weights_(weights), pack_(form.pack) {
    const std::int64_t experts = weights.experts;
    if (c.panels().held() && form.shares(weights[0])) {
      weights_.width = weights.stored_width;
      weights_.hidden = weights.stored_hidden;
    }
    size_ = form.size(weights_.width, weights_.hidden);
    weight_parts<Element> copies;
    if (c.panels().held()) {
      const panel_extents extents{weights_.hidden, weights_.width};
      copies = c.panels().parts<Element>(name, form.form, extents, experts, size_);
    } else if (at_once) {
      copies = {memory.take<Element>(experts * size_).data(), memory.take<bool>(experts).data()};
      std::fill_n(copies.packed, experts, false);
    } else {
      return;
    }
    const std::span<std::int64_t> missing = memory.take<std::int64_t>(experts);
    std::int64_t count = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      if (!copies.packed[e] && grouping.offsets[e] < grouping.offsets[e + 1]) missing[count++] = e;
    }
    if (count > 0) {
      c.for_each(count, [&](std::int64_t i) {
        const arena_loan task_memory = c.lend();
        pack_(*task_memory, weights_[missing[i]], copies.data + missing[i] * size_);
      });
    }
    for (std::int64_t i = 0; i < count; ++i) copies.packed[missing[i]] = true;
    kept_ = copies.data;
  }

  // The panels of one expert, packed into `memory` where they are not kept.
  [[nodiscard]] const Element* of(arena& memory, std::int64_t expert) const {
    if (kept_ != nullptr) return kept_ + expert * size_;
    const std::span<Element> made = memory.take<Element>(size_);
    pack_(memory, weights_[expert], made.data());
    return made.data();
  }

  // Hidden units and channels of every expert that are packed.
  [[nodiscard]] std::int64_t hidden() const noexcept { return weights_.hidden; }
  [[nodiscard]] std::int64_t width() const noexcept { return weights_.width; }

 private:
  stacked_weights weights_;  // of which what is packed is used
  const Element* kept_ = nullptr;
  std::int64_t size_ = 0;
  void (*pack_)(arena&, const expert_weights&, Element*);
};

}  // namespace detail

}  // namespace smelt::cpu_ops::SMELT_SET
