// expect: \[smelt-S030\] spec: exit_gate needs a loop of at least 2 visits
// expect: found<1(LL)?>.*limit<2(LL)?>
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
                            .loop = smelt::middle_twice,
                            .exit_gate = true};
#else
constexpr smelt::spec model{.vocab = 256,
                            .context = 128,
                            .width = 64,
                            .layers = 4,
                            .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
                            .experts = {.stored = 8, .active = 2, .hidden = 32},
                            .exit_gate = true};
#endif

struct checked : smelt::arch<model> {};

}  // namespace

int main() {
  return checked::width == 0 ? 1 : 0;
}
