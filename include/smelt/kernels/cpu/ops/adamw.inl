// How does a gradient move a weight? AdamW: by its smoothed direction, with decay beside it.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

inline void adamw_elements(const adamw_update& u, std::int64_t begin, std::int64_t end, float decay) {
  float* g = u.arrays[0].data() + begin;
  float* w = u.arrays[1].data() + begin;
  float* m = u.arrays[2].data() + begin;
  float* v = u.arrays[3].data() + begin;
  for_vectors(end - begin, [&](auto get, auto put) {
    const floats scaled = get(g) * u.scale;
    const floats new_m = u.beta1 * get(m) + u.rest1 * scaled;
    const floats new_v = u.beta2 * get(v) + u.rest2 * (scaled * scaled);
    put(g, floats{});
    put(m, new_m);
    put(v, new_v);
    if (u.rate != 0.0F) {
      const floats old = get(w);
      const floats direction = new_m * u.first_correction / (sqrt(new_v * u.second_correction) + u.eps);
      put(w, old - u.rate * (direction + decay * old));
    }
  });
}

// The elements of [first, last) that are in a range.
inline void adamw_piece(const adamw_update& u, std::int64_t first, std::int64_t last) {
  auto r = std::ranges::partition_point(
      u.ranges, [&](const parameter_range& range) { return range.first + range.size <= first; });
  for (; r != u.ranges.end() && r->first < last; ++r) {
    adamw_elements(u, (std::max)(first, r->first), (std::min)(last, r->first + r->size), r->decayed ? u.decay : 0.0F);
  }
}

}  // namespace detail

/// One update of weight, first and second moment of the elements in the ranges, which ascend; their gradients become 0,
/// while they are in the cache. With a learning rate of 0 the weights keep their bits, whatever the decay. The context
/// does it when it likes, and all before settle() returns.
inline void adamw_deferred(context& c, const adamw_step& numbers, std::span<const parameter_range> ranges,
                           std::span<float> gradient, std::span<float> weight, std::span<float> first_moment,
                           std::span<float> second_moment) {
  reference_ops::detail::check_adamw(numbers, ranges, gradient, weight, first_moment, second_moment);
  if (ranges.empty()) return;
  const auto step = double(numbers.step);
  c.defer({.ranges = ranges,
           .arrays = {gradient, weight, first_moment, second_moment},
           .scale = static_cast<float>(numbers.gradient_scale),
           .beta1 = static_cast<float>(numbers.beta1),
           .beta2 = static_cast<float>(numbers.beta2),
           .rest1 = static_cast<float>(1 - numbers.beta1),
           .rest2 = static_cast<float>(1 - numbers.beta2),
           .first_correction = static_cast<float>(1 / (1 - std::pow(numbers.beta1, step))),
           .second_correction = static_cast<float>(1 / (1 - std::pow(numbers.beta2, step))),
           .eps = static_cast<float>(numbers.eps),
           .rate = static_cast<float>(numbers.learning_rate),
           .decay = static_cast<float>(numbers.weight_decay)},
          detail::adamw_piece);
}

/// The same, now.
inline void adamw(context& c, const adamw_step& numbers, std::span<const parameter_range> ranges,
                  std::span<float> gradient, std::span<float> weight, std::span<float> first_moment,
                  std::span<float> second_moment) {
  adamw_deferred(c, numbers, ranges, gradient, weight, first_moment, second_moment);
  c.settle();
}

}  // namespace smelt::cpu_ops::SMELT_SET
