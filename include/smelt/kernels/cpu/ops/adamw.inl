// How does a gradient move a weight? AdamW: by its smoothed direction, with decay beside it.

namespace smelt::cpu_ops::SMELT_SET {

/// One update of weight, first and second moment. With a learning rate of 0 the weights keep their bits, whatever the
/// decay.
inline void adamw(context& c, const adamw_step& numbers, std::span<const float> gradient, std::span<float> weight,
           std::span<float> first_moment, std::span<float> second_moment) {
  const auto size = static_cast<std::int64_t>(weight.size());
  check_size("adamw", "gradient", gradient, size);
  check_size("adamw", "first", first_moment, size);
  check_size("adamw", "second", second_moment, size);
  check_at_least("adamw", "step", numbers.step, 1);
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
  const auto decay = static_cast<float>(numbers.weight_decay);
  c.for_chunks(size, policy::flat_elements, [&](std::int64_t first, std::int64_t last) {
    const float* gradients = gradient.data() + first;
    float* weights = weight.data() + first;
    float* m = first_moment.data() + first;
    float* v = second_moment.data() + first;
    for_vectors(last - first, [&](auto get, auto put) {
      const floats g = get(gradients) * scale;
      const floats new_m = beta1 * get(m) + rest1 * g;
      const floats new_v = beta2 * get(v) + rest2 * (g * g);
      put(m, new_m);
      put(v, new_v);
      if (rate != 0.0F) {
        const floats w = get(weights);
        const floats direction = new_m * first_correction / (sqrt(new_v * second_correction) + eps);
        put(weights, w - rate * (direction + decay * w));
      }
    });
  });
}

}  // namespace smelt::cpu_ops::SMELT_SET
