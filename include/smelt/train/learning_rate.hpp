// How large is the learning rate at a step? Warm-up, then constant, cosine or warm-up-stable-decay.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <smelt/train/options.hpp>

namespace smelt {

/// Learning rate of 0-based step `step` of `steps`. The first step of a warm-up is above 0 and its last below the peak;
/// the last step of a decay reaches final_share; a step past the end keeps the last one's rate.
[[nodiscard]] inline double learning_rate(const train_options& o, std::int64_t step, std::int64_t steps) {
  const auto warmup = static_cast<std::int64_t>(std::ceil(o.warmup_share * static_cast<double>(steps)));
  step = std::clamp<std::int64_t>(step, 0, std::max<std::int64_t>(steps - 1, 0));
  if (step < warmup) return o.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  // Progress through the decay: 0 where it begins, 1 at the last step; 0 when there is no step to decay over.
  const auto progress = [&](std::int64_t begin) {
    const std::int64_t last = steps - 1;
    if (last <= begin) return 0.0;
    return std::clamp(static_cast<double>(step - begin) / static_cast<double>(last - begin), 0.0, 1.0);
  };
  switch (o.decay) {
    case decay_kind::constant:
      return o.learning_rate;
    case decay_kind::cosine: {
      const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress(warmup)));
      return o.learning_rate * (o.final_share + (1.0 - o.final_share) * cosine);
    }
    case decay_kind::wsd: {
      const auto stable = steps - static_cast<std::int64_t>(std::ceil(o.decay_share * static_cast<double>(steps)));
      if (stable >= steps) return o.learning_rate;
      return o.learning_rate * (1.0 - (1.0 - o.final_share) * progress((std::max)(stable - 1, warmup)));
    }
  }
  return o.learning_rate;
}

}  // namespace smelt
