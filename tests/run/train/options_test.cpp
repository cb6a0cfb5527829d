// Is every option outside its domain refused by name?
#include <smelt/train/options.hpp>

#include <cmath>
#include <limits>

#include "catch.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("options outside their domain are named with the value", "[train]") {
  CHECK_THROWS_WITH(validate(train_options{.tokens = 0}), ContainsSubstring("tokens") && ContainsSubstring("found 0"));
  CHECK_THROWS_WITH(validate(train_options{.learning_rate = std::nan("")}), ContainsSubstring("learning_rate"));
  CHECK_THROWS_WITH(validate(train_options{.beta2 = 1.0}), ContainsSubstring("beta2"));
  CHECK_THROWS_WITH(validate(train_options{.accumulation = -1}), ContainsSubstring("accumulation"));
}

TEST_CASE("no number of an option may be NaN, infinite or negative", "[train]") {
  CHECK_NOTHROW(validate(train_options{}));
  using member = double train_options::*;
  const std::pair<const char*, member> members[] = {{"learning_rate", &train_options::learning_rate},
                                                    {"warmup_share", &train_options::warmup_share},
                                                    {"decay_share", &train_options::decay_share},
                                                    {"final_share", &train_options::final_share},
                                                    {"weight_decay", &train_options::weight_decay},
                                                    {"beta1", &train_options::beta1},
                                                    {"beta2", &train_options::beta2},
                                                    {"eps", &train_options::eps},
                                                    {"momentum", &train_options::momentum},
                                                    {"clip", &train_options::clip},
                                                    {"balance", &train_options::balance},
                                                    {"z", &train_options::z},
                                                    {"balance_bias_step", &train_options::balance_bias_step}};
  for (const auto& [name, field] : members) {
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1e-9}) {
      train_options o;
      o.*field = bad;
      CHECK_THROWS_WITH(validate(o), ContainsSubstring(name));
    }
  }
  CHECK_THROWS_WITH(validate(train_options{.clip = -1e-9}), ContainsSubstring("found -1e-09"));
  CHECK_THROWS_WITH(validate(train_options{.largest_skip_run = 0}), ContainsSubstring("largest_skip_run"));
}

TEST_CASE("huge options are refused before any product of them wraps around", "[train]") {
  constexpr std::int64_t huge = (std::numeric_limits<std::int64_t>::max)();
  CHECK_THROWS_WITH(validate(train_options{.tokens = huge}), ContainsSubstring("tokens"));
  CHECK_THROWS_WITH(validate(train_options{.length = huge}), ContainsSubstring("length"));
  CHECK_THROWS_WITH(validate(train_options{.sequences = huge}), ContainsSubstring("sequences"));
  CHECK_THROWS_WITH(validate(train_options{.accumulation = huge}), ContainsSubstring("accumulation"));
  CHECK_THROWS_WITH(validate(train_options{.length = 65'536, .sequences = 65'536}),
                    ContainsSubstring("sequences x length") && ContainsSubstring("4294967296"));
  const train_options most{
      .tokens = 1'000'000'000'000'000'000, .length = 1 << 15, .sequences = 1 << 15, .accumulation = 1'000'000};
  CHECK_NOTHROW(validate(most));
  CHECK(most.steps() == 932);
  CHECK(train_options{.tokens = 1, .length = 8, .sequences = 2}.steps() == 1);
  CHECK(train_options{.tokens = 16, .length = 8, .sequences = 2}.steps() == 1);
  CHECK(train_options{.tokens = 17, .length = 8, .sequences = 2}.steps() == 2);
}
