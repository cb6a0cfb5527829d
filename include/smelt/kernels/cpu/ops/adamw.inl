// How does a gradient move a weight? AdamW: by its smoothed direction, with decay beside it.

namespace smelt::cpu_ops::SMELT_SET {

/// One update of weight, first and second moment of the elements in the ranges, which ascend; their gradients become 0,
/// while they are in the cache. With a learning rate of 0 the weights keep their bits, whatever the decay.
inline void adamw(context& c, const adamw_step& numbers, std::span<const parameter_range> ranges,
                  std::span<float> gradient, std::span<float> weight, std::span<float> first_moment,
                  std::span<float> second_moment) {
  reference_ops::detail::check_adamw(numbers, ranges, gradient, weight, first_moment, second_moment);
  if (ranges.empty()) return;
  const auto step = double(numbers.step);
  const auto first_correction = static_cast<float>(1 / (1 - std::pow(numbers.beta1, step)));
  const auto second_correction = static_cast<float>(1 / (1 - std::pow(numbers.beta2, step)));
  const auto scale = static_cast<float>(numbers.gradient_scale);
  const auto beta1 = static_cast<float>(numbers.beta1);
  const auto beta2 = static_cast<float>(numbers.beta2);
  const auto rest1 = static_cast<float>(1 - numbers.beta1);
  const auto rest2 = static_cast<float>(1 - numbers.beta2);
  const auto eps = static_cast<float>(numbers.eps);
  const auto rate = static_cast<float>(numbers.learning_rate);
  const auto update = [&](std::int64_t first, std::int64_t last, float decay) {
    float* g = gradient.data() + first;
    float* w = weight.data() + first;
    float* m = first_moment.data() + first;
    float* v = second_moment.data() + first;
    for_vectors(last - first, [&](auto get, auto put) {
      const floats scaled = get(g) * scale;
      const floats new_m = beta1 * get(m) + rest1 * scaled;
      const floats new_v = beta2 * get(v) + rest2 * (scaled * scaled);
      put(g, floats{});
      put(m, new_m);
      put(v, new_v);
      if (rate != 0.0F) {
        const floats old = get(w);
        const floats direction = new_m * first_correction / (sqrt(new_v * second_correction) + eps);
        put(w, old - rate * (direction + decay * old));
      }
    });
  };
  const auto begin = ranges.front().first;
  const auto end = ranges.back().first + ranges.back().size;
  c.for_chunks(end - begin, policy::update_elements, [&](std::int64_t chunk_first, std::int64_t chunk_last) {
    const std::int64_t first = begin + chunk_first;
    const std::int64_t last = begin + chunk_last;
    auto r = std::ranges::partition_point(
        ranges, [&](const parameter_range& range) { return range.first + range.size <= first; });
    for (; r != ranges.end() && r->first < last; ++r) {
      update((std::max)(first, r->first), (std::min)(last, r->first + r->size),
             r->decayed ? static_cast<float>(numbers.weight_decay) : 0.0F);
    }
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
