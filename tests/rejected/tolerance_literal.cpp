// expect: percent_literal_has_at_most_four_decimals|constant
// expect: percent_literal_has_at_most_four_decimals
// max-lines: 16
#include <smelt/budget/tolerance.hpp>

using namespace smelt;

#ifdef CONTROL
constexpr percent tolerance = 0.1234_pct;
#else
constexpr percent tolerance = 0.12345_pct;
#endif
static_assert(tolerance.ppm == 1'234);
