// Is the learning rate right at every edge of its schedule?
#include <smelt/train/learning_rate.hpp>

#include <cmath>

#include "catch.hpp"

using namespace smelt;

TEST_CASE("learning rates are right at every edge", "[train]") {
  train_options o{.learning_rate = 1.0, .warmup_share = 0.1, .final_share = 0.1};
  CHECK(learning_rate(o, 0, 1) > 0);
  for (const decay_kind decay : {decay_kind::constant, decay_kind::cosine, decay_kind::wsd}) {
    o.decay = decay;
    for (const std::int64_t steps : {1, 2, 3, 10, 100}) {
      for (std::int64_t step = 0; step < steps + 3; ++step) {
        const double rate = learning_rate(o, step, steps);
        CHECK(rate > 0);
        CHECK(rate <= 1.0);
        CHECK(std::isfinite(rate));
      }
      CHECK(learning_rate(o, steps + 5, steps) == learning_rate(o, steps - 1, steps));
    }
    if (decay != decay_kind::constant) CHECK(learning_rate(o, 99, 100) == Approx(0.1));
    for (std::int64_t step = 0; step < 9; ++step) CHECK(learning_rate(o, step, 100) < learning_rate(o, step + 1, 100));
  }
  o.decay = decay_kind::wsd;
  CHECK(learning_rate(o, 50, 100) == 1.0);
  CHECK(learning_rate(o, 79, 100) == 1.0);
  CHECK(learning_rate(o, 80, 100) < 1.0);
}

TEST_CASE("learning rates have the values that their definitions give", "[train]") {
  train_options o{.learning_rate = 2.0, .warmup_share = 0.1, .decay_share = 0.2, .final_share = 0.1};
  for (const decay_kind decay : {decay_kind::constant, decay_kind::cosine, decay_kind::wsd}) {
    o.decay = decay;
    for (std::int64_t step = 0; step < 11; ++step)
      CHECK(learning_rate(o, step, 110) == Approx(2.0 * static_cast<double>(step + 1) / 12));
    CHECK(learning_rate(o, 11, 110) == 2.0);
  }
  o.decay = decay_kind::constant;
  CHECK(learning_rate(o, 109, 110) == 2.0);
  o.decay = decay_kind::cosine;  // from step 11 to step 109
  CHECK(learning_rate(o, 60, 110) == Approx(2.0 * 0.55));
  CHECK(learning_rate(o, 11 + 98 / 7, 110) == Approx(2.0 * (0.1 + 0.45 * (1 + std::cos(std::acos(-1.0) / 7)))));
  CHECK(learning_rate(o, 109, 110) == Approx(0.2));
  o.decay = decay_kind::wsd;  // the last 22 steps
  CHECK(learning_rate(o, 87, 110) == 2.0);
  CHECK(learning_rate(o, 88, 110) == Approx(2.0 * (1 - 0.9 / 22)));
  CHECK(learning_rate(o, 98, 110) == Approx(1.1));
  CHECK(learning_rate(o, 109, 110) == Approx(0.2));
  o.decay_share = 0;
  CHECK(learning_rate(o, 109, 110) == 2.0);
  o.decay_share = 1;  // the decay follows the warm-up
  CHECK(learning_rate(o, 60, 110) == Approx(1.1));
  o.warmup_share = 1;
  CHECK(learning_rate(o, 109, 110) == Approx(2.0 * 110 / 111));
  o.warmup_share = 0;
  CHECK(learning_rate(o, 0, 110) == 2.0);
  CHECK(learning_rate(o, -5, 110) == learning_rate(o, 0, 110));
}
