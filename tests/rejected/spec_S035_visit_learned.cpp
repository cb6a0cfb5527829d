// expect: \[smelt-S035\] spec: visit_plan\.residual must not be 0 when learned
// expect: found<0(LL)?>.*limit<2(LL)?>
// max-lines: 11
#include <smelt/spec/arch.hpp>

namespace {

#ifdef CONTROL
constexpr smelt::spec model{
    .vocab = 256,
    .context = 128,
    .width = 64,
    .layers = 4,
    .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
    .experts = {.stored = 8, .active = 2, .hidden = 32},
    .loop = {.first = 1, .count = 2, .visits = smelt::visits(2, {.residual = {1, 2}, .learned = true})}};
#else
constexpr smelt::spec model{
    .vocab = 256,
    .context = 128,
    .width = 64,
    .layers = 4,
    .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
    .experts = {.stored = 8, .active = 2, .hidden = 32},
    .loop = {.first = 1, .count = 2, .visits = smelt::visits(2, {.residual = {0, 2}, .learned = true})}};
#endif

struct checked : smelt::arch<model> {};

}  // namespace

int main() {
  return checked::width == 0 ? 1 : 0;
}
