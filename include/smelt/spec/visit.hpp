// How is one visit of the looped span run, and which visits does a loop make?
#pragma once

namespace smelt {

/// A residual coefficient as an exact ratio: x <- x + (num / den) * sublayer(x).
struct ratio {
  int num = 1;
  int den = 1;

  /// The ratio as a real number. Precondition: den != 0 (a rule of the spec).
  template <class Real = double>
  [[nodiscard]] constexpr Real as() const noexcept {
    return static_cast<Real>(num) / static_cast<Real>(den);
  }

  friend constexpr bool operator==(const ratio&, const ratio&) = default;
};

/// One visit of the looped span (SMELT section 2, LatentLoop section 3).
struct visit_plan {
  ratio residual{};            ///< scales every sublayer's write of this visit; SMELT uses 1/r
  int compression = 1;         ///< sequence positions per latent position; 1 is full resolution
  bool own_attention = false;  ///< stores attention weights of its own instead of sharing the span's

  friend constexpr bool operator==(const visit_plan&, const visit_plan&) = default;
};

/// The most visits a loop may make.
inline constexpr int max_visits = 8;

/// The visits of a loop in execution order. Plain members, so that it can sit inside a template argument.
struct visit_list {
  int count = 0;
  visit_plan v0{}, v1{}, v2{}, v3{}, v4{}, v5{}, v6{}, v7{};

  /// Plan `i` of a mutable or constant list. Precondition: 0 <= i < max_visits.
  template <class Self>
  [[nodiscard]] static constexpr auto& at(Self& self, int i) noexcept {
    switch (i) {
      case 0:
        return self.v0;
      case 1:
        return self.v1;
      case 2:
        return self.v2;
      case 3:
        return self.v3;
      case 4:
        return self.v4;
      case 5:
        return self.v5;
      case 6:
        return self.v6;
      default:
        return self.v7;
    }
  }

  /// Plan of visit `i`. Precondition: 0 <= i < max_visits.
  [[nodiscard]] constexpr const visit_plan& operator[](int i) const noexcept { return at(*this, i); }

  /// The same list with `plan` behind it; the count may pass max_visits, which the spec's rules then refuse.
  [[nodiscard]] constexpr visit_list then(const visit_plan& plan) const noexcept {
    visit_list r = *this;
    if (count < max_visits) at(r, count) = plan;
    ++r.count;
    return r;
  }

  friend constexpr bool operator==(const visit_list&, const visit_list&) = default;
};

/// Whether every visit follows the same plan.
[[nodiscard]] constexpr bool is_uniform(const visit_list& list) noexcept {
  for (int i = 1; i < list.count; ++i)
    if (!(list[i] == list[0])) return false;
  return true;
}

/// The largest compression factor of a visit; 1 when there is none.
[[nodiscard]] constexpr int largest_compression(const visit_list& list) noexcept {
  int c = 1;
  for (int i = 0; i < list.count; ++i) c = list[i].compression > c ? list[i].compression : c;
  return c;
}

/// `n` visits by the same plan; each writes with coefficient 1/n, as SMELT does, unless another plan is given.
[[nodiscard]] constexpr visit_list visits(int n, visit_plan plan) noexcept {
  visit_list list;
  for (int i = 0; i < n; ++i) list = list.then(plan);
  return list;
}
[[nodiscard]] constexpr visit_list visits(int n) noexcept {
  return visits(n, {.residual = {1, n < 1 ? 1 : n}});
}

/// A looped span of layers and its visits: the whole span is run, then the whole span again.
struct loop_spec {
  static constexpr int middle = -1;  ///< for `first`: centre the span, first = floor((layers - count) / 2)
  static constexpr int half = -1;    ///< for `count`: half of the layers, floor(layers / 2)

  int first = middle;   ///< 0-based first layer of the span
  int count = 0;        ///< layers in the span; 0 is no loop
  visit_list visits{};  ///< one plan a visit

  friend constexpr bool operator==(const loop_spec&, const loop_spec&) = default;
};

/// SMELT's loop: the middle half of the layers, visited twice, each write scaled by 1/2.
inline constexpr loop_spec middle_twice{.first = loop_spec::middle, .count = loop_spec::half, .visits = visits(2)};

}  // namespace smelt
