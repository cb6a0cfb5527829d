// A training loop of one's own: an architecture as a type, the model's forward and backward pass, and AdamW. Then the
// model goes on with a text.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <smelt/smelt.hpp>
#include <span>
#include <string>

namespace {

// [architecture]
struct tiny : smelt::arch<smelt::spec{.vocab = 257,
                                      .context = 64,
                                      .width = 64,
                                      .layers = 4,
                                      .attention = {.heads = 4, .kv_heads = 2, .head_dim = 16},
                                      .experts = {.stored = 8, .active = 2, .hidden = 32, .renormalise = true},
                                      .tied_head = true,
                                      .loop = smelt::middle_twice}> {};

static_assert(tiny::executed_depth == 6);  // 1 entry layer, 2 looped layers visited twice, 1 exit layer
// [/architecture]

/// Sums such as "17+25=42;", which a model can learn and a person can check.
std::string sums(std::uint64_t seed, std::uint64_t count) {
  const smelt::random_stream random(seed, 1);
  std::string text;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t a = random.below(50, 2 * i);
    const std::uint64_t b = random.below(50, 2 * i + 1);
    text += std::to_string(a) + "+" + std::to_string(b) + "=" + std::to_string(a + b) + ";";
  }
  return text;
}

}  // namespace

int main() {
  smelt::dataset_builder documents(/*validation_fraction=*/0.1);
  for (std::uint64_t i = 0; i < 100; ++i)
    documents.add({.text = sums(i, 60), .category = "sums", .source = {}, .id = {}});
  const smelt::dataset data = std::move(documents).finish();

  // [loop]
  const smelt::train_options options{.tokens = 200 * 16 * 64, .length = 64, .sequences = 16, .learning_rate = 1e-2};
  smelt::cpu<smelt::cpu_default_executor> backend(smelt::cpu_default_executor(2));
  smelt::language_model model(tiny{}, backend, options.sequences, options.length);
  smelt::weight_buffer<float> weights(tiny::value);
  smelt::weight_buffer<float> gradients(tiny::value);
  smelt::optimizer<float> adamw(tiny::value);
  smelt::initialise(weights, tiny::value, /*seed=*/1);

  const smelt::batch_plan plan{.context = options.length, .sequences = options.sequences, .seed = 1};
  smelt::batch batch;
  for (std::int64_t step = 0; step < options.steps(); ++step) {
    fill_training_batch(data.train, plan, step * plan.sequences, batch);
    const double mean = 1.0 / static_cast<double>(target_count(batch));
    const smelt::forward_result result = model.forward_and_backward(
        weights, view(batch), {.cross_entropy = mean, .balance = 0.01, .z = 0.001}, gradients);
    const smelt::gradient_norm norm = norm_of(backend, gradients);
    const double clip = norm.norm > 1.0 ? 1.0 / norm.norm : 1.0;
    adamw.apply(backend, options, learning_rate(options, step, options.steps()), clip, step + 1, gradients, weights);
    if (step % 50 == 0) std::printf("step %3d  loss %.3f nats/token\n", int(step), result.cross_entropy.nats * mean);
  }
  // [/loop]

  const smelt::evaluation found = evaluate(model, weights, data.validation, data.categories.size(), plan,
                                           /*most_batches=*/0, [] { return true; });
  std::printf("validation loss %.3f nats/token over %lld targets\n", found.loss(),
              static_cast<long long>(found.total.targets));

  // [decode]
  smelt::decoder decoder(tiny{}, backend, weights, /*capacity=*/tiny::value.context);
  std::string text = "17+25=";
  std::span<const float> logits = decoder.prefill(smelt::byte_tokens(text));
  while (decoder.size() < decoder.capacity()) {
    const auto likeliest = std::max_element(logits.begin(), logits.end()) - logits.begin();
    if (likeliest > 255) break;  // the end of the document
    text += static_cast<char>(likeliest);
    logits = decoder.decode(static_cast<std::int32_t>(likeliest));
  }
  // [/decode]
  std::printf("%s\n", text.c_str());
  return found.loss() < 1.8 ? 0 : 1;  // a uniform guess has 5.55
}
