// An engine that only includes headers: it plans its memory at compile time and scores a text with the CPU kernels.
//
//   engine TEXT [CHECKPOINT]    CHECKPOINT is a folder step-XXXXXXXX that `smelt train engine.json` saved, where
//                               engine.json is `served` as JSON: the same names, in the way of docs/specs.md
#include <cmath>
#include <cstdio>
#include <exception>
#include <smelt/smelt.hpp>
#include <string>
#include <vector>

// [plan]
struct served : smelt::arch<smelt::spec{.vocab = 257,
                                        .context = 128,
                                        .width = 64,
                                        .layers = 4,
                                        .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
                                        .experts = {.stored = 8, .active = 2, .hidden = 32, .renormalise = true},
                                        .tied_head = true,
                                        .loop = smelt::middle_twice}> {};

// One slot of keys and values for every (layer, visit): the schedule numbers them, the budget sizes them.
constexpr int kv_slots = smelt::schedule(served::value).size();
constexpr auto kv_bytes = smelt::kv_cache(served::value, sizeof(float)).bytes_at_context;
static_assert(kv_slots == 6 && kv_bytes <= 256 * 1024);
// [/plan]

namespace {

/// Bits a byte that the model needs for `text`, a window of the context at a time.
double bits_per_byte(const smelt::weight_buffer<float>& weights, const std::string& text) {
  // [score]
  smelt::cpu<smelt::cpu_default_executor> backend(smelt::cpu_default_executor(1));
  const auto length = static_cast<std::int64_t>(served::value.context);
  smelt::language_model model(served{}, backend, /*sequences=*/1, length);

  std::vector<std::int32_t> tokens{256};  // the end of a document stands before the next
  smelt::append_byte_tokens(text, tokens);
  smelt::loss_sum total;
  for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += static_cast<std::size_t>(length)) {
    std::vector<std::int32_t> inputs(served::value.context, 0), targets(served::value.context, -1);
    for (std::size_t i = 0; i < inputs.size() && begin + i + 1 < tokens.size(); ++i) {
      inputs[i] = tokens[begin + i];
      targets[i] = tokens[begin + i + 1];
    }
    const std::vector<std::int32_t> first(served::value.context, 0);
    const smelt::loss_sum window = model.forward(weights, {inputs, targets, first, 1, length}).cross_entropy;
    total.nats += window.nats;
    total.targets += window.targets;
  }
  return total.nats / std::log(2.0) / static_cast<double>(total.targets);
  // [/score]
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2 || argv[1][0] == '\0') throw smelt::error(smelt::errc::invalid_argument, "give a text to score");
    smelt::weight_buffer<float> weights(served::value);
    smelt::initialise(weights, served::value, /*seed=*/1);
    if (argc > 2)
      smelt::read_tensors(smelt::safetensors::file(std::string(argv[2]) + "/model.safetensors"), weights,
                          served::value);
    std::printf("%d KV slots, %lld bytes at the context of %d tokens\n", kv_slots, static_cast<long long>(kv_bytes),
                served::value.context);
    std::printf("%.2f bits a byte\n", bits_per_byte(weights, argv[1]));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "engine: %s\n", e.what());
    return 1;
  }
}
