// Runs every hot kernel once, each in a callgrind dump of its own; check.py reads the counts.
//
// kernels --describe        prints the compiler and the instruction sets that can be counted, as JSON
// kernels INSTRUCTION_SET   runs the kernels; under callgrind with --instr-atstart=no, every dump is one kernel's
#include <array>
#include <iostream>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/op_table.hpp"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define SMELT_CAN_COUNT 1
#endif

namespace {

using namespace smelt;
using backend = cpu<serial_executor>;

/// Those that valgrind knows.
constexpr std::array countable{instruction_set::baseline, instruction_set::avx2};

/// Is the program itself one that valgrind can run, and whose counts are those of its kernels?
constexpr bool plain_build() {
#if !defined(SMELT_CAN_COUNT) || defined(__AVX512F__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

/// Counts the second of two runs: the first one takes memory.
template <class Run>
void count(const std::string& name, Run run) {
  run();
#if defined(SMELT_CAN_COUNT)
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
  run();
  CALLGRIND_DUMP_STATS_AT(name.c_str());
  CALLGRIND_STOP_INSTRUMENTATION;
#else
  static_cast<void>(name);
#endif
}

template <class Case>
void count_case(const Case& c, backend& b) {
  auto in = test::rounded_inputs<float>(c);
  auto out = test::empty_outputs<float>(c);
  count(c.op + " " + c.variant, [&] { c.forward(b, in, out); });
  if constexpr (test::has_backward<Case, backend>) {
    auto dout = test::rounded<float>(test::output_gradients(c));
    auto din = test::rounded<float>(test::gradients_before(c));
    count(c.op + "_backward " + c.variant, [&] { c.backward(b, in, out, dout, din); });
  }
}

/// Two sequences of 128 tokens of the smallest preset's shapes, and products that leave a rest in every direction.
void count_all(backend& b) {
  count_case(test::linear_case(256, 128, 128), b);
  count_case(test::linear_case(250, 100, 64), b);
  count_case(test::linear_case(8, 128, 128), b);
  count_case(test::experts_case(256, 32, 4, 128, 32), b);
  count_case(test::attention_input_case(256, 128, 4, 1, 32, qk_norm::per_head), b);
  count_case(test::attention_case(2, 128, 4, 1, 32), b);
  count_case(test::attention_case(2, 128, 4, 1, 32, test::sight::documents), b);
  count_case(test::cross_entropy_case(256, 128, 257), b);
  count_case(test::cross_entropy_with_gradient_case(256, 128, 257), b);
  count_case(test::route_case(256, 32, 4, score_function::softmax, true), b);
  count_case(test::rms_norm_case(256, 128), b);
  count_case(test::pool_case(2, 128, 128, 2, encoder_kind::conv), b);
  count_case(test::pool_case(2, 128, 128, 2, encoder_kind::softmax), b);
  count_case(test::write_back_case(2, 128, 128, 2, writeback_kind::scaled), b);
  count_case(test::norm_case(100'000), b);
}

void describe() {
  std::cout << "{\"compiler\": \"" <<
#if defined(__clang__)
      "clang++ " << __clang_version__
#else
      "g++ " << __VERSION__
#endif
            << "\", \"countable\": " << (plain_build() ? "true" : "false") << ", \"instruction_sets\": [";
  std::string separator;
  for (const instruction_set set : countable) {
    if (!is_usable(set)) continue;
    std::cout << separator << "\"" << name_of(set) << "\"";
    separator = ", ";
  }
  std::cout << "]}\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw error(errc::invalid_argument, "needs --describe or an instruction set");
    if (std::string_view(argv[1]) == "--describe") {
      describe();
      return 0;
    }
    backend b(serial_executor(), compute_type::fp32, usable_instruction_set(argv[1]));
    count_all(b);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "kernels: " << e.what() << "\n";
    return 2;
  }
}
