// expect: \[smelt-B001\] budget: the two figures must agree within the tolerance
// expect: metric::params,.*actual<410081247232L*>.*expected<405853388800L*>
// max-lines: 10
#include <smelt/budget/check.hpp>

using namespace smelt;

struct llama_405b : arch<spec{.vocab = 128'256,
                              .context = 131'072,
                              .width = 16'384,
                              .layers = 126,
                              .dense_layers = 126,
                              .dense_hidden = 53'248,
#ifdef CONTROL
                              .attention = {.heads = 128, .kv_heads = 8, .head_dim = 128}
#else
                              .attention = {.heads = 128, .kv_heads = 16, .head_dim = 128}
#endif
                    }> {
};

static_assert(costs_as_stated<llama_405b, stated{.params = 405'853'388'800}>::passed);
