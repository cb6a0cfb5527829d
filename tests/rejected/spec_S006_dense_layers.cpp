// expect: \[smelt-S006\] spec: dense_layers must be from 0 to layers
// expect: found<5(LL)?>.*limit<4(LL)?>
// max-lines: 11
#include <smelt/spec/arch.hpp>

namespace {

#ifdef CONTROL
constexpr smelt::spec model{.vocab = 256,
                            .context = 128,
                            .width = 64,
                            .layers = 4,
                            .dense_layers = 4,
                            .dense_hidden = 128,
                            .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
                            .experts = {.stored = 8, .active = 2, .hidden = 32}};
#else
constexpr smelt::spec model{.vocab = 256,
                            .context = 128,
                            .width = 64,
                            .layers = 4,
                            .dense_layers = 5,
                            .dense_hidden = 128,
                            .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
                            .experts = {.stored = 8, .active = 2, .hidden = 32}};
#endif

struct checked : smelt::arch<model> {};

}  // namespace

int main() {
  return checked::width == 0 ? 1 : 0;
}
