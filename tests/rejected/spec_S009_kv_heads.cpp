// expect: \[smelt-S009\] spec: attention\.heads must be a multiple of attention\.kv_heads
// expect: found<15(LL)?>.*limit<4(LL)?>
// max-lines: 11
#include <smelt/spec/arch.hpp>

namespace {

#ifdef CONTROL
constexpr smelt::spec model{.vocab = 256,
                            .context = 128,
                            .width = 64,
                            .layers = 4,
                            .attention = {.heads = 16, .kv_heads = 4, .head_dim = 16},
                            .experts = {.stored = 8, .active = 2, .hidden = 32}};
#else
constexpr smelt::spec model{.vocab = 256,
                            .context = 128,
                            .width = 64,
                            .layers = 4,
                            .attention = {.heads = 15, .kv_heads = 4, .head_dim = 16},
                            .experts = {.stored = 8, .active = 2, .hidden = 32}};
#endif

struct checked : smelt::arch<model> {};

}  // namespace

int main() {
  return checked::width == 0 ? 1 : 0;
}
