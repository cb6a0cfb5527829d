// How fast is every op? Rates beside the machine's own limit: GFLOP/s of matrix products, their share of the peak of
// multiply-adds measured in this process, and bytes per second with every array counted once.
//
// Names are <op>.<backend>.<variant>: cpu is the default executor on all cores, cpu1 is one thread, eigen is Eigen's
// product of the same size on one thread.
#include <benchmark/benchmark.h>

// g++ 12's own intrinsics, inlined into Eigen, look uninitialised to it.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <Eigen/Core>
#pragma GCC diagnostic pop

#include <algorithm>
#include <cstdint>
#include <memory>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/op_table.hpp"

namespace {

template <class Backend>
Backend& shared_backend() {
  if constexpr (std::is_same_v<Backend, smelt::cpu<smelt::serial_executor>>) {
    static Backend backend{smelt::serial_executor()};
    return backend;
  } else {
    static Backend backend{
        smelt::cpu_default_executor((std::max)(1, static_cast<int>(std::thread::hardware_concurrency())))};
    return backend;
  }
}

// The best of many: what the core can do when nothing disturbs it.
double core_peak() {
  static const double best = [] {
    double peak = 0;
    for (int i = 0; i < 50; ++i)
      peak = (std::max)(peak, shared_backend<smelt::cpu<smelt::serial_executor>>().core_peak());
    return peak;
  }();
  return best;
}

void report(benchmark::State& state, double flops, double bytes, int threads) {
  const auto iterations = double(state.iterations());
  if (flops > 0) {
    state.counters["flops"] = benchmark::Counter(flops * iterations, benchmark::Counter::kIsRate);
    state.counters["of_peak"] =
        benchmark::Counter(flops * iterations / (core_peak() * threads), benchmark::Counter::kIsRate);
  }
  if (bytes > 0) state.counters["bytes"] = benchmark::Counter(bytes * iterations, benchmark::Counter::kIsRate);
}

double size_of(const smelt::test::arrays<float>& arrays) {
  double bytes = 0;
  for (const auto& a : arrays) bytes += 4.0 * double(a.size());
  return bytes;
}

template <class Backend, class Case>
void register_case(const Case& c, const std::string& backend_name) {
  const auto shared = std::make_shared<const Case>(c);
  benchmark::RegisterBenchmark((c.op + "." + backend_name + "." + c.variant).c_str(), [shared](
                                                                                          benchmark::State& state) {
    Backend& backend = shared_backend<Backend>();
    auto in = smelt::test::rounded_inputs<float>(*shared);
    auto out = smelt::test::empty_outputs<float>(*shared);
    for (auto _ : state) {
      shared->forward(backend, in, out);
      benchmark::ClobberMemory();
    }
    report(state, shared->forward_flops, size_of(in) + size_of(out), backend.threads());
  })->UseRealTime();
  if constexpr (smelt::test::has_backward<Case, Backend>) {
    benchmark::RegisterBenchmark((c.op + "_backward." + backend_name + "." + c.variant).c_str(),
                                 [shared](benchmark::State& state) {
                                   Backend& backend = shared_backend<Backend>();
                                   auto in = smelt::test::rounded_inputs<float>(*shared);
                                   auto out = smelt::test::empty_outputs<float>(*shared);
                                   shared->forward(backend, in, out);
                                   auto dout = smelt::test::rounded<float>(smelt::test::output_gradients(*shared));
                                   auto din = smelt::test::rounded<float>(smelt::test::gradients_before(*shared));
                                   for (auto _ : state) {
                                     shared->backward(backend, in, out, dout, din);
                                     benchmark::ClobberMemory();
                                   }
                                   report(state, shared->backward_flops,
                                          size_of(in) + size_of(out) + size_of(dout) + size_of(din), backend.threads());
                                 })
        ->UseRealTime();
  }
}

void register_eigen(int rows, int depth, int cols) {
  const std::string name =
      smelt::test::label("linear.eigen.T", rows) + smelt::test::label("_in", depth) + smelt::test::label("_out", cols);
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const matrix x = matrix::Random(rows, depth);
    const matrix w = matrix::Random(cols, depth);
    matrix y(rows, cols);
    for (auto _ : state) {
      y.noalias() = x * w.transpose();
      benchmark::ClobberMemory();
    }
    report(state, 2.0 * rows * depth * cols, 0, 1);
  })->UseRealTime();
}

}  // namespace

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::AddCustomContext("core_peak_gflops", std::to_string(core_peak() * 1e-9));
  benchmark::RegisterBenchmark("fma_peak.cpu1.registers", [](benchmark::State& state) {
    double rate = 0;
    for (auto _ : state) rate = (std::max)(rate, shared_backend<smelt::cpu<smelt::serial_executor>>().core_peak());
    state.counters["flops"] = rate;
  });
  register_eigen(4096, 128, 128);
  register_eigen(4096, 512, 512);
  register_eigen(512, 128, 96);
  smelt::test::for_each_bench_case([](const auto& c) {
    register_case<smelt::cpu<smelt::cpu_default_executor>>(c, "cpu");
    register_case<smelt::cpu<smelt::serial_executor>>(c, "cpu1");
  });
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
