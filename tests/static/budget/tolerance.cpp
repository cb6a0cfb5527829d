// Are percentages exact, and comparisons free of rounding and overflow?
#include <smelt/budget/tolerance.hpp>

namespace {

using namespace smelt;

static_assert(4_pct == percent{40'000});
static_assert(0.5_pct == percent{5'000});
static_assert(12.3456_pct == percent{123'456});
static_assert(1'000_pct == percent{10'000'000});
static_assert(0_pct == percent{});

// Usable as a template argument.
template <within Within>
struct tolerances {
  static constexpr percent flops = Within.flops;
};
static_assert(tolerances<within{.flops = 2.5_pct}>::flops.ppm == 25'000);

// The border belongs to the tolerance, on both sides, and nothing beyond it.
static_assert(agrees(104, 100, 4_pct) && agrees(96, 100, 4_pct));
static_assert(!agrees(105, 100, 4_pct) && !agrees(95, 100, 4_pct));
static_assert(agrees(1'010'000, 1'000'000, 1_pct) && !agrees(1'010'001, 1'000'000, 1_pct));
static_assert(agrees(0, 0, 0_pct) && !agrees(1, 0, 100_pct) && agrees(7, 7, 0_pct));

// Large figures: 2^62 and 2^63 - 1 differ by half of the second.
constexpr std::int64_t most = 9'223'372'036'854'775'807;
constexpr std::int64_t half = 4'611'686'018'427'387'904;
static_assert(!agrees(half, most, 49_pct) && agrees(half, most, 50_pct));
static_assert(!agrees(most, 0, percent{most}));
static_assert(share_of(most, 100_pct) == most);
static_assert(share_of(most, 1'000_pct) == most);
static_assert(share_of(half, percent{1}) == half / 1'000'000);

static_assert(ratio_ppm(123, 120) == 1'025'000);
static_assert(ratio_ppm(2, 3) == 666'667);
static_assert(ratio_ppm(0, 0) == 1'000'000);
static_assert(ratio_ppm(1, 0) == most);
static_assert(ratio_ppm(most, most) == 1'000'000);
static_assert(ratio_ppm(half, most) == 500'000);
static_assert(ratio_ppm(most, 1) == most);

}  // namespace
