// How much of the machine does a layer of experts use, forward and backward, on one core and on all of them?
//
// A run is what a training step does with the layer: sort the tokens by expert, forward, and the gradients of inputs,
// weights and router weights. The weights are packed beforehand, as a step packs them once for all of its passes; the
// step itself pays for that and is measured whole by `smelt bench`. Names are moe_layer.<type>.<cores>_T<tokens>; the
// shares are of the peak of multiply-adds in float32, measured on one core around each window.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/core/random.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>
#include <vector>

#include "support/allowed_cores.hpp"
#include "support/fill.hpp"
#include "support/interleaved.hpp"
#include "support/options.hpp"
#include "support/page_buffer.hpp"

namespace {

using namespace smelt::bench;
using backend = smelt::cpu<smelt::cpu_default_executor>;

constexpr smelt::experts_shape shape{.experts = 32, .active = 8, .width = 256, .hidden = 128};
constexpr smelt::router_shape router{.experts = shape.experts, .active = shape.active};

/// Several runs: the first of a window finds the caches as another contender left them.
constexpr double window_seconds = 0.05;

/// A matrix with memory of its own.
class matrix {
 public:
  matrix(std::int64_t rows, std::int64_t cols, std::uint32_t seed = 0)
      : values_(make_page_buffer<float>(rows * cols)), rows_(rows), cols_(cols) {
    if (seed != 0) fill(values_.get(), rows * cols, seed);
  }
  [[nodiscard]] smelt::matrix_view<float> view() const { return {values_.get(), rows_, cols_}; }

 private:
  std::shared_ptr<float[]> values_;
  std::int64_t rows_;
  std::int64_t cols_;
};

/// A layer with so many tokens, whose experts are drawn evenly, as a trained router's are.
struct layer {
  std::int64_t tokens;
  matrix x{tokens, shape.width, 1};
  matrix gate_weight{std::int64_t{shape.experts} * shape.hidden, shape.width, 2};
  matrix up_weight{std::int64_t{shape.experts} * shape.hidden, shape.width, 3};
  matrix down_weight{std::int64_t{shape.experts} * shape.width, shape.hidden, 4};
  matrix weights{tokens, shape.active, 5};
  matrix dy{tokens, shape.width, 6};
  matrix y{tokens, shape.width};
  matrix gate{tokens * shape.active, shape.hidden};
  matrix up{tokens * shape.active, shape.hidden};
  matrix dx{tokens, shape.width};
  matrix dgate_weight{std::int64_t{shape.experts} * shape.hidden, shape.width};
  matrix dup_weight{std::int64_t{shape.experts} * shape.hidden, shape.width};
  matrix ddown_weight{std::int64_t{shape.experts} * shape.width, shape.hidden};
  matrix dweights{tokens, shape.active};
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> offsets = std::vector<std::int32_t>(shape.experts + 1);
  std::vector<std::int32_t> assignment = std::vector<std::int32_t>(std::size_t(tokens) * shape.active);
  std::vector<std::int32_t> row = assignment;

  explicit layer(std::int64_t count) : tokens(count) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const smelt::random_stream random(1, std::uint64_t(t));
      for (std::uint64_t slot = 0; slot < std::uint64_t{shape.active}; ++slot) {
        ids.push_back(std::int32_t(smelt::permuted(slot, std::uint64_t{shape.experts}, random)));
      }
    }
  }

  void run(backend& b) {
    const smelt::grouping_view<std::int32_t> sorted(offsets, assignment, row);
    b.group_by_expert(router, ids, sorted);
    const smelt::grouping_view<> grouping = sorted;
    b.experts(shape, 1.0, x.view(), x.view(), gate_weight.view(), up_weight.view(), down_weight.view(), grouping,
              weights.view(), gate.view(), up.view(), y.view());
    b.experts_backward(shape, 1.0, x.view(), gate_weight.view(), up_weight.view(), down_weight.view(), grouping,
                       weights.view(), gate.view(), up.view(), dy.view(), dx.view(), false, dgate_weight.view(),
                       dup_weight.view(), ddown_weight.view(), dweights.view());
  }

  /// Of the products alone, forward and twice as many backward.
  [[nodiscard]] double flops() const { return 3 * 6.0 * double(tokens) * shape.active * shape.width * shape.hidden; }
};

int run(const options& chosen) {
  const int cores = allowed_cores();
  const bool bf16 = chosen.set == smelt::instruction_set::avx512_bf16;
  struct variant {
    std::string type;
    std::unique_ptr<backend> of;
  };
  std::vector<variant> variants;
  for (const int threads : {1, cores}) {
    if (threads == 1 && !variants.empty()) continue;  // a machine of one core
    for (const auto compute : {smelt::compute_type::fp32, smelt::compute_type::bf16}) {
      if (compute == smelt::compute_type::bf16 && !bf16) continue;
      variants.push_back({std::string(name_of(compute)),
                          std::make_unique<backend>(smelt::cpu_default_executor(threads), compute, chosen.set)});
    }
  }
  nlohmann::json document;
  document["instruction_set"] = name_of(chosen.set);
  document["cores"] = cores;
  const backend one(smelt::cpu_default_executor(1), smelt::compute_type::fp32, chosen.set);
  for (const std::int64_t tokens :
       chosen.quick ? std::vector<std::int64_t>{64} : std::vector<std::int64_t>{512, 4'096}) {
    const auto work = std::make_shared<layer>(tokens);
    std::vector<contender> contenders;
    std::vector<smelt::cpu_ops::weights_hold> holds;
    for (const variant& v : variants) {
      holds.push_back(v.of->hold_weights());
      const auto turn = [b = v.of.get(), work] { work->run(*b); };
      contenders.push_back(
          {v.type + '.' + std::to_string(v.of->threads()) + "_T" + std::to_string(tokens), turn, turn, work->flops()});
    }
    const auto windows = interleave(contenders, chosen.quick ? 2 : 25, chosen.quick ? 1e-4 : window_seconds,
                                    [&] { return one.core_peak(); });
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const int threads = variants[i].of->threads();
      const double share = of_peak(windows[i], threads);
      nlohmann::json entry{{"name", "moe_layer." + contenders[i].name},
                           {"type", variants[i].type},
                           {"cores", threads},
                           {"tokens", tokens},
                           {"of_peak", share}};
      for (const window& w : windows[i]) entry["windows"].push_back(w.flop_per_second / (w.peak * threads));
      document["benchmarks"].push_back(std::move(entry));
      std::printf("moe_layer.%-16s %5.1f %% of the peak of float32\n", contenders[i].name.c_str(), 100 * share);
    }
  }
  write_json(chosen, document);
  return 0;
}

}  // namespace

int main(int count, char** arguments) try {
  const std::optional<options> chosen = parse_options(count, arguments);
  return chosen ? run(*chosen) : 2;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "moe_layer: %s\n", problem.what());
  return 1;
}
