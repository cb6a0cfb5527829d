// How is one visit of the looped span run, and which visits does a loop make?
#pragma once

#include <cstdint>

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

/// Whether a share is all of it.
[[nodiscard]] constexpr bool is_whole(const ratio& share) noexcept {
  return share.num == share.den;
}

/// `share` of `size`, which the rules of the spec keep a whole number. Precondition: share.den != 0.
[[nodiscard]] constexpr int part_of(int size, const ratio& share) noexcept {
  return static_cast<int>(std::int64_t{size} * share.num / share.den);
}

/// How a compressed visit makes one latent of the tokens of a chunk (LatentLoop section 3).
enum class encoder_kind : int {
  mean,     ///< their mean
  conv,     ///< a weight a position of the chunk and a channel, [c, H], started at 1/c
  softmax,  ///< their mean weighted by the softmax of u . h inside the chunk, with a learned scorer u of size H
};

/// How a compressed visit adds what it did to a latent to the tokens that receive it: the i-th receiver (0 <= i < c) of
/// latent j is token c j + i (1-based), and gets the latent's increment times a coefficient.
enum class writeback_kind : int {
  direct,      ///< 1
  scaled,      ///< w[i] of [c, H], started at 1 (the paper's default)
  scalar,      ///< w[i] of [1, c], started at 1
  normalised,  ///< w[i] / rms(w[i]) of [c, H], started at 1: only its direction is learned
};

/// Which rotary position latent j (1-based) of chunks of c tokens has.
enum class latent_position : int {
  last_token,  ///< that of its chunk's last token, c j - 1 (0-based)
  chunk,       ///< the number of its chunk, j - 1 (0-based)
};

/// One visit of the looped span (SMELT section 2, LatentLoop section 3).
struct visit_plan {
  ratio residual{};        ///< scales every sublayer's write of this visit; SMELT uses 1/r
  bool learned = false;    ///< the coefficient is trained, one scalar a visit, started at `residual`
  int compression = 1;     ///< tokens per latent, c; 1 is full resolution
  encoder_kind encoder{};  ///< of a compressed visit
  writeback_kind writeback{writeback_kind::scaled};  ///< of a compressed visit
  latent_position position{};                        ///< of a compressed visit
  bool own_attention = false;  ///< stores attention weights of its own instead of sharing the span's
  int active = 0;              ///< routed experts a token visits; 0 is as many as the spec says
  ratio expert_hidden{};       ///< share of the hidden units of every routed expert that run: the first ones
  ratio stream{};              ///< share of the residual stream that the span runs on, behind a learned projection

  friend constexpr bool operator==(const visit_plan&, const visit_plan&) = default;
};

/// Whether the span runs on a share of the channels of the residual stream.
[[nodiscard]] constexpr bool is_narrow(const visit_plan& plan) noexcept {
  return !is_whole(plan.stream);
}

/// Whether the span runs on the residual stream itself: at full resolution and on all of its channels.
[[nodiscard]] constexpr bool is_plain(const visit_plan& plan) noexcept {
  return plan.compression == 1 && !is_narrow(plan);
}

/// What a list holds where it has no run: all zero, which compilers neither write nor compare at length.
inline constexpr visit_plan no_plan{
    .residual = {0, 0}, .compression = 0, .writeback = writeback_kind{}, .expert_hidden = {0, 0}, .stream = {0, 0}};

/// The most visits a loop may make.
inline constexpr int max_visits = 16;
/// The most runs of visits by different plans that a loop may have.
inline constexpr int max_plans = 8;

/// The visits of a loop in execution order, as runs of visits by the same plan. Plain members, so that it can sit
/// inside a template argument.
struct visit_list {
  int count = 0;  ///< visits in all
  /// The plan of every run.
  visit_plan v0 = no_plan, v1 = no_plan, v2 = no_plan, v3 = no_plan, v4 = no_plan, v5 = no_plan, v6 = no_plan,
             v7 = no_plan;
  int n0 = 0, n1 = 0, n2 = 0, n3 = 0, n4 = 0, n5 = 0, n6 = 0, n7 = 0;  ///< visits of every run; 0 behind the last one

  /// Plan of run `i` of a mutable or constant list. Precondition: 0 <= i < max_plans.
  template <class Self>
  [[nodiscard]] static constexpr auto& plan_of(Self& self, int i) noexcept {
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
  /// Visits of run `i` of a mutable or constant list. Precondition: 0 <= i < max_plans.
  template <class Self>
  [[nodiscard]] static constexpr auto& length_of(Self& self, int i) noexcept {
    switch (i) {
      case 0:
        return self.n0;
      case 1:
        return self.n1;
      case 2:
        return self.n2;
      case 3:
        return self.n3;
      case 4:
        return self.n4;
      case 5:
        return self.n5;
      case 6:
        return self.n6;
      default:
        return self.n7;
    }
  }

  /// Runs of visits by the same plan.
  [[nodiscard]] constexpr int runs() const noexcept {
    int n = 0;
    while (n < max_plans && length_of(*this, n) > 0) ++n;
    return n;
  }

  /// Plan of visit `i`; of the last run for a number behind all visits. Precondition: i >= 0.
  [[nodiscard]] constexpr const visit_plan& operator[](int i) const noexcept {
    int run = 0;
    for (; run + 1 < max_plans && i >= length_of(*this, run) && length_of(*this, run + 1) > 0; ++run)
      i -= length_of(*this, run);
    return plan_of(*this, run);
  }

  /// The same list with `times` visits by `plan` behind it. The count may pass what the runs hold, which the spec's
  /// rules then refuse.
  [[nodiscard]] constexpr visit_list then(const visit_plan& plan, int times = 1) const noexcept {
    visit_list r = *this;
    if (times < 1) return r;
    r.count += times;
    const int last = runs() - 1;
    if (last >= 0 && plan_of(r, last) == plan) {
      length_of(r, last) += times;
    } else if (last + 1 < max_plans) {
      plan_of(r, last + 1) = plan;
      length_of(r, last + 1) = times;
    }
    return r;
  }

  /// The same list with `plan` for visit `i`. Precondition: 0 <= i < count.
  [[nodiscard]] constexpr visit_list with(int i, const visit_plan& plan) const noexcept {
    visit_list r;
    for (int v = 0; v < count; ++v) r = r.then(v == i ? plan : (*this)[v]);
    return r;
  }

  friend constexpr bool operator==(const visit_list&, const visit_list&) = default;
};

/// Whether every visit follows the same plan.
[[nodiscard]] constexpr bool is_uniform(const visit_list& list) noexcept {
  for (int i = 1; i < list.runs(); ++i)
    if (!(visit_list::plan_of(list, i) == list.v0)) return false;
  return true;
}

/// The largest compression factor of a visit; 1 when there is none.
[[nodiscard]] constexpr int largest_compression(const visit_list& list) noexcept {
  int c = 1;
  for (int i = 0; i < list.runs(); ++i) {
    const int of_run = visit_list::plan_of(list, i).compression;
    c = of_run > c ? of_run : c;
  }
  return c;
}

/// `n` visits by the same plan; each writes with coefficient 1/n, as SMELT does, unless another plan is given.
[[nodiscard]] constexpr visit_list visits(int n, visit_plan plan) noexcept {
  return visit_list{}.then(plan, n);
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
