// expect: \[smelt-S020\] spec: norms_per_layer must be 2 or 4
// expect: found<3(LL)?>.*limit<2(LL)?>
// max-lines: 11
#include <smelt/spec/arch.hpp>

namespace {

#ifdef CONTROL
constexpr smelt::spec model{.vocab = 256,
                            .context = 128,
                            .width = 64,
                            .layers = 4,
                            .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
                            .experts = {.stored = 8, .active = 2, .hidden = 32},
                            .norms_per_layer = 4};
#else
constexpr smelt::spec model{.vocab = 256,
                            .context = 128,
                            .width = 64,
                            .layers = 4,
                            .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
                            .experts = {.stored = 8, .active = 2, .hidden = 32},
                            .norms_per_layer = 3};
#endif

struct checked : smelt::arch<model> {};

}  // namespace

int main() {
  return checked::width == 0 ? 1 : 0;
}
