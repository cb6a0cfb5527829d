// How are the weights of experts packed, and kept for a step?

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

static_assert(panel_vectors == 2, "[smelt] a panel is a vector of gate columns and one of up columns");

// Hidden units with the padding of their last vector.
[[nodiscard]] constexpr std::int64_t padded_hidden(std::int64_t hidden) noexcept {
  return (hidden + lanes - 1) / lanes * lanes;
}

// The weights of one expert: gate and up [f, H], down [H, f].
struct expert_weights {
  const float* gate;
  const float* up;
  const float* down;
  std::int64_t width;
  std::int64_t hidden;
};

// The weights of all experts, one after the other.
struct stacked_weights {
  const float* gate;
  const float* up;
  const float* down;
  std::int64_t experts;
  std::int64_t width;
  std::int64_t hidden;

  [[nodiscard]] std::int64_t size() const noexcept { return experts * 3 * width * hidden; }
  [[nodiscard]] expert_weights operator[](std::int64_t e) const noexcept {
    const std::int64_t at = e * width * hidden;
    return {gate + at, up + at, down + at, width, hidden};
  }
};

// The right operand of x [gate up]^T: in every panel a vector of gate columns and the up columns of the same units.
template <class Element>
void pack_gate_up_columns(arena& memory, const expert_weights& w, Element* to) {
  const std::int64_t padded = padded_hidden(w.hidden);
  const std::span<float> mixed = memory.take<float>(2 * padded * w.width);
  for (std::int64_t unit = 0; unit < padded; ++unit) {
    float* gate = mixed.data() + (unit / lanes * panel_width + unit % lanes) * w.width;
    float* up = gate + lanes * w.width;
    if (unit < w.hidden) {
      std::copy_n(w.gate + unit * w.width, w.width, gate);
      std::copy_n(w.up + unit * w.width, w.width, up);
    } else {
      std::fill_n(gate, w.width, 0.0F);
      std::fill_n(up, w.width, 0.0F);
    }
  }
  pack_columns(mixed.data(), w.width, w.width, 2 * padded, 0, panel_count(2 * padded), to);
}

// The right operand of (silu(gate) up) down^T.
template <class Element>
void pack_down_columns(arena&, const expert_weights& w, Element* to) {
  pack_columns(w.down, w.hidden, w.hidden, w.width, 0, panel_count(w.width), to);
}

// The right operand of dy down.
template <class Element>
void pack_down_rows(arena&, const expert_weights& w, Element* to) {
  pack_rows([&](std::int64_t k) { return w.down + k * w.hidden; }, w.width, w.hidden, 0, panel_count(w.hidden), to);
}

// The right operand of [dgate dup] [gate; up], both padded to whole vectors of units.
template <class Element>
void pack_gate_up_rows(arena& memory, const expert_weights& w, Element* to) {
  const std::int64_t padded = padded_hidden(w.hidden);
  const std::span<float> none = memory.take<float>(w.width);
  std::fill(none.begin(), none.end(), 0.0F);
  const auto row_of = [&](std::int64_t k) {
    const std::int64_t unit = k < padded ? k : k - padded;
    return unit < w.hidden ? (k < padded ? w.gate : w.up) + unit * w.width : none.data();
  };
  pack_rows(row_of, 2 * padded, w.width, 0, panel_count(w.width), to);
}

// One packed form of the weights of the experts that have rows. Copies are kept while somebody holds the weights still;
// otherwise they are made for one op, all of them at once or each by the task that needs it. All are the same: what an
// expert gives for a token depends neither on who holds the weights nor on how many other tokens chose it.
template <class Element>
class expert_panels {
 public:
  using pack_function = void (*)(arena&, const expert_weights&, Element*);

  // An expert's panels have `size` elements. A kept copy goes by the weight's address `name` and the form. Those of one
  // op are taken from `memory` if they are made `at_once`.
  expert_panels(context& c, arena& memory, const stacked_weights& weights, bool at_once,
                const grouping_view<>& grouping, const float* name, weight_form form, std::int64_t size,
                pack_function pack)
      : weights_(weights), size_(size), pack_(pack) {
    const std::int64_t experts = weights.experts;
    weight_parts<Element> copies;
    if (c.panels().held()) {
      copies = c.panels().parts<Element>(name, form, experts, size);
    } else if (at_once) {
      copies = {memory.take<Element>(experts * size).data(), memory.take<bool>(experts).data()};
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
        pack(*task_memory, weights[missing[i]], copies.data + missing[i] * size);
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

 private:
  stacked_weights weights_;
  const Element* kept_ = nullptr;
  std::int64_t size_;
  pack_function pack_;
};

}  // namespace detail

}  // namespace smelt::cpu_ops::SMELT_SET
