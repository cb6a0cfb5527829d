// expect: \[smelt-S033\] spec: visit_plan\.expert_hidden must be above 0 and at most 1
// expect: found<32(LL)?>.*limit<3(LL)?>
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
                            .loop = {.first = 1, .count = 2, .visits = smelt::visits(2, {.expert_hidden = {1, 2}})}};
#else
constexpr smelt::spec model{.vocab = 256,
                            .context = 128,
                            .width = 64,
                            .layers = 4,
                            .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
                            .experts = {.stored = 8, .active = 2, .hidden = 32},
                            .loop = {.first = 1, .count = 2, .visits = smelt::visits(2, {.expert_hidden = {1, 3}})}};
#endif

struct checked : smelt::arch<model> {};

}  // namespace

int main() {
  return checked::width == 0 ? 1 : 0;
}
