// How fast is an expert's matrix product, and how fast are the libraries? Everyone in turn in one process, by the share
// of the peak of multiply-adds measured around each window.
//
// Hot: one expert over and over. Cold: the next expert each time, rotating through 96 MiB of them, as a layer does.
// Peaks are those of the instruction set that smelt's product runs with; the libraries choose theirs themselves.
// Names are gemm.<library>.<hot|cold>_T<tokens>_in<depth>_out<cols>. One thread.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <string>
#include <vector>

#include "support/fill.hpp"
#include "support/gemm_eigen.hpp"
#include "support/gemm_library.hpp"
#if defined(SMELT_BENCH_ONEDNN)
#include "support/gemm_onednn.hpp"
#endif
#if defined(SMELT_BENCH_OPENBLAS)
#include "support/gemm_openblas.hpp"
#endif
#include "support/gemm_smelt.hpp"
#include "support/interleaved.hpp"
#include "support/options.hpp"
#include "support/page_buffer.hpp"

namespace {

using namespace smelt::bench;

struct result {
  std::string library;
  product_shape shape;
  bool cold = false;
  std::vector<window> windows;
};

// Compares 64 elements of y with sums in double; a library that computes something else is not compared.
void check(const gemm_library& library, product_shape shape, const float* x, const float* w, const float* y) {
  for (std::int64_t i = 0; i < 64; ++i) {
    const std::int64_t row = i * 7'919 % shape.tokens;
    const std::int64_t col = i * 104'729 % shape.cols;
    double sum = 0;
    for (std::int64_t k = 0; k < shape.depth; ++k) {
      sum += double(x[row * shape.depth + k]) * double(w[k * shape.cols + col]);
    }
    const double found = double(y[row * shape.cols + col]);
    if (!(std::abs(found - sum) <= library.tolerance * double(shape.depth))) {
      throw smelt::error(smelt::errc::mismatch, "gemm." + library.name + ": element [" + std::to_string(row) + ", " +
                                                    std::to_string(col) + "] is " + std::to_string(found) +
                                                    ", but must be " + std::to_string(sum));
    }
  }
}

std::vector<gemm_library> libraries(smelt::instruction_set set) {
  std::vector<gemm_library> found;
  found.push_back(smelt_library(set));
#if SMELT_HAS_AVX512_BF16
  if (set == smelt::instruction_set::avx512_bf16) found.push_back(smelt_bf16_library());
#endif
  found.push_back(eigen_library());
#if defined(SMELT_BENCH_OPENBLAS)
  found.push_back(openblas_library());
#endif
#if defined(SMELT_BENCH_ONEDNN)
  found.push_back(onednn_library());
#endif
  return found;
}

// All libraries on one shape, hot and then cold.
void measure(const std::vector<gemm_library>& contestants, product_shape shape, const options& chosen,
             std::vector<result>& results) {
  const std::int64_t weights = shape.depth * shape.cols;
  const std::int64_t count = (chosen.quick ? std::int64_t{4} << 20 : std::int64_t{96} << 20) / (4 * weights);
  const auto w = make_page_buffer<float>(count * weights);
  const auto x = make_page_buffer<float>(shape.tokens * shape.depth);
  fill(w.get(), count * weights, 7);
  fill(x.get(), shape.tokens * shape.depth, 3);
  std::vector<const float*> experts;
  for (std::int64_t e = 0; e < count; ++e) experts.push_back(w.get() + e * weights);

  const double flops = 2.0 * double(shape.tokens * shape.depth * shape.cols);
  std::vector<contender> hot;
  std::vector<contender> cold;
  std::vector<std::shared_ptr<float[]>> outputs;
  for (const gemm_library& library : contestants) {
    const product multiply = library.prepare(shape, experts);
    outputs.push_back(make_page_buffer<float>(shape.tokens * shape.cols));
    float* const y = outputs.back().get();
    const std::size_t last = experts.size() - 1;
    multiply(x.get(), last, y);
    check(library, shape, x.get(), experts[last], y);
    const float* const from = x.get();
    hot.push_back({library.name, [=] { multiply(from, 0, y); }, [=] { multiply(from, 0, y); }, flops});
    // The warm-up reads x and writes y, and leaves every expert but one as cold as it was.
    auto next = std::make_shared<std::size_t>(0);
    const auto turn = [=] { multiply(from, *next = (*next + 1) % (last + 1), y); };
    cold.push_back({library.name, turn, turn, flops});
  }
  const int rounds = chosen.quick ? 2 : 25;
  const double seconds = chosen.quick ? 1e-4 : 2e-3;
  const smelt::cpu<smelt::serial_executor> backend(smelt::serial_executor(), smelt::compute_type::fp32, chosen.set);
  for (const bool is_cold : {false, true}) {
    auto windows = interleave(is_cold ? cold : hot, rounds, seconds, [&] { return backend.core_peak(); });
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      results.push_back({contestants[i].name, shape, is_cold, std::move(windows[i])});
    }
  }
}

nlohmann::json as_json(const std::vector<result>& results, const std::vector<gemm_library>& contestants,
                       smelt::instruction_set set) {
  nlohmann::json document;
  std::vector<double> peaks;
  for (const result& r : results) {
    nlohmann::json entry;
    entry["name"] = "gemm." + r.library + (r.cold ? ".cold" : ".hot") + "_T" + std::to_string(r.shape.tokens) + "_in" +
                    std::to_string(r.shape.depth) + "_out" + std::to_string(r.shape.cols);
    entry["library"] = r.library;
    entry["weights"] = r.cold ? "cold" : "hot";
    entry["tokens"] = r.shape.tokens;
    entry["depth"] = r.shape.depth;
    entry["cols"] = r.shape.cols;
    entry["of_peak"] = of_peak(r.windows);
    for (const window& w : r.windows) {
      entry["windows"].push_back(w.flop_per_second / w.peak);
      peaks.push_back(w.peak);
    }
    document["benchmarks"].push_back(std::move(entry));
  }
  document["instruction_set"] = smelt::name_of(set);
  document["peak_flop_per_second"] = median(peaks);
  for (const gemm_library& library : contestants) document["libraries"][library.name] = library.description;
  return document;
}

// Geometric means over the layer shapes: a row a library, a column a number of tokens.
void print_table(const std::vector<result>& results, const std::vector<gemm_library>& contestants) {
  std::vector<std::int64_t> tokens;
  std::map<std::pair<std::string, std::pair<bool, std::int64_t>>, std::vector<double>> shares;
  for (const result& r : results) {
    if (tokens.empty() || tokens.back() < r.shape.tokens) tokens.push_back(r.shape.tokens);
    shares[{r.library, {r.cold, r.shape.tokens}}].push_back(of_peak(r.windows));
  }
  std::printf("%-10s", "tokens");
  for (const std::int64_t t : tokens) std::printf("%14lld", static_cast<long long>(t));
  std::printf("\n");
  for (const gemm_library& library : contestants) {
    std::printf("%-10s", library.name.c_str());
    for (const std::int64_t t : tokens) {
      double means[2];
      for (const bool cold : {false, true}) {
        double sum = 0;
        const auto& of = shares.at({library.name, {cold, t}});
        for (const double share : of) sum += std::log(share);
        means[cold] = std::exp(sum / double(of.size()));
      }
      std::printf("   %5.1f /%5.1f", 100 * means[0], 100 * means[1]);
    }
    std::printf("\n");
  }
}

int run(const options& chosen) {
  if (const char* core = std::getenv("OPENBLAS_CORETYPE")) {
    std::fprintf(stderr, "note: OPENBLAS_CORETYPE=%s makes OpenBLAS use that core's kernels; unset it to compare\n",
                 core);
  }
  const std::vector<gemm_library> contestants = libraries(chosen.set);
  std::vector<result> results;
  const std::vector<std::int64_t> tokens =
      chosen.quick ? std::vector<std::int64_t>{8, 64} : std::vector<std::int64_t>{8, 16, 32, 64, 128, 256};
  for (const auto& [depth, cols] : {std::pair{256, 512}, std::pair{512, 1'024}, std::pair{1'024, 512}}) {
    for (const std::int64_t t : tokens) measure(contestants, {t, depth, cols}, chosen, results);
  }
  const nlohmann::json document = as_json(results, contestants, chosen.set);
  std::printf(
      "%% of the peak of multiply-adds of one core, %.1f GFLOP/s; weights hot / cold; geometric mean over layers\n",
      document["peak_flop_per_second"].get<double>() * 1e-9);
  print_table(results, contestants);
  for (const gemm_library& library : contestants) {
    std::printf("%s: %s\n", library.name.c_str(), library.description.c_str());
  }
#if !defined(SMELT_BENCH_OPENBLAS)
  std::printf("openblas: not found when this was built (Debian: libopenblas-dev)\n");
#endif
#if !defined(SMELT_BENCH_ONEDNN)
  std::printf("onednn: not found when this was built (Debian: libdnnl-dev)\n");
#endif
  write_json(chosen, document);
  return 0;
}

}  // namespace

int main(int count, char** arguments) try {
  const std::optional<options> chosen = parse_options(count, arguments);
  return chosen ? run(*chosen) : 2;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "gemm: %s\n", problem.what());
  return 1;
}
