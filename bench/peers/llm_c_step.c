// How fast does llm.c train a dense model? Its own train_gpt2.c, at a shape given on the command line with random
// weights and tokens; prints a JSON object a step.
//
//   cc -Ofast -march=native -fopenmp -I LLM_C llm_c_step.c -lm -o llm_c_step
//   ./llm_c_step LAYERS HEADS WIDTH VOCAB CONTEXT BATCH STEPS CHECKPOINT     (CHECKPOINT: a file it may write)
#define TESTING  // leaves its main out
#include <train_gpt2.c>

static float next_random(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 9) / 8388608.0f - 0.5f;
}

// llm.c reads models from files only.
static void write_checkpoint(const char* path, GPT2Config config) {
  size_t sizes[NUM_PARAMETER_TENSORS];
  fill_in_parameter_sizes(sizes, config);
  int header[256] = {20240326, 3, config.max_seq_len, config.vocab_size, config.num_layers, config.num_heads,
                     config.channels, config.padded_vocab_size};
  FILE* file = fopen(path, "wb");
  if (file == NULL) {
    fprintf(stderr, "llm_c_step: cannot write %s\n", path);
    exit(1);
  }
  int written = fwrite(header, sizeof(int), 256, file) == 256;
  unsigned state = 1;
  for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
    for (size_t i = 0; i < sizes[tensor]; i++) {
      const float value = 0.04f * next_random(&state);
      written = written && fwrite(&value, sizeof(float), 1, file) == 1;
    }
  }
  if (fclose(file) != 0 || !written) {
    fprintf(stderr, "llm_c_step: cannot write %s\n", path);
    exit(1);
  }
}

int main(int count, char** arguments) {
  if (count != 9) {
    fprintf(stderr, "usage: %s LAYERS HEADS WIDTH VOCAB CONTEXT BATCH STEPS CHECKPOINT\n", arguments[0]);
    return 2;
  }
  const int layers = atoi(arguments[1]);
  const int heads = atoi(arguments[2]);
  const int width = atoi(arguments[3]);
  const int vocab = atoi(arguments[4]);
  const int context = atoi(arguments[5]);
  const int batch = atoi(arguments[6]);
  const int steps = atoi(arguments[7]);
  const int padded = (vocab + 127) / 128 * 128;
  const GPT2Config config = {context, vocab, padded, layers, heads, width};
  write_checkpoint(arguments[8], config);
  GPT2 model;
  gpt2_build_from_checkpoint(&model, arguments[8]);

  const int tokens = batch * context;
  int* inputs = (int*)malloc(tokens * sizeof(int));
  int* targets = (int*)malloc(tokens * sizeof(int));
  unsigned state = 2;
  for (int i = 0; i < tokens; i++) inputs[i] = (int)((next_random(&state) + 0.5f) * (float)vocab);
  for (int i = 0; i < tokens; i++) targets[i] = inputs[(i + 1) % tokens];

  // Two flops for every weight of a product, exact causal attention, and twice as many again for gradients.
  const double products = (double)layers * 12.0 * width * width + (double)width * padded;
  const double flops = tokens * (6.0 * products + 6.0 * width * (context + 1.0) * layers);
  for (int step = 0; step < steps + 1; step++) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    gpt2_forward(&model, inputs, targets, batch, context);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, step + 1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    if (step == 0) continue;  // allocates
    printf("{\"seconds\": %.6f, \"tokens_per_second\": %.3f, \"flop_per_second\": %.6g}\n", seconds, tokens / seconds,
           flops / seconds);
    fflush(stdout);
  }
  gpt2_free(&model);
  free(inputs);
  free(targets);
  return 0;
}
