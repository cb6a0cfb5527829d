// expect: overflow|outside the range of representable values|constant
// expect-gcc: overflow in constant expression
// expect-clang: outside the range of representable values
// expect-nvcc: overflow
// max-lines: 20
#include <smelt/budget/parameters.hpp>

using namespace smelt;

#ifdef CONTROL
constexpr int width = 1'000;
#else
constexpr int width = 2'000'000'000;
#endif

constexpr spec huge{.vocab = 1'000,
                    .context = 1'000,
                    .width = width,
                    .layers = 4,
                    .attention = {.heads = 1'000'000, .kv_heads = 1'000'000, .head_dim = 1'024},
                    .experts = {.stored = 8, .active = 2, .hidden = 1'000}};
static_assert(parameters(huge).total > 0);
