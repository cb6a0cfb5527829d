// Is every op right on every shape of the table?
#include "support/op_table.hpp"
#include "support/backends.hpp"

#include "catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <set>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/cpu/tbb_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/reference/backend.hpp>
#include <string>
#include <vector>

namespace {

using smelt::test::arrays;

double magnitude(const std::vector<double>& values) {
  double greatest = 0;
  for (const double v : values) greatest = (std::max)(greatest, std::fabs(v));
  return greatest;
}

template <class Scalar>
void check_close(const std::vector<Scalar>& found, const std::vector<double>& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  // Some gradients are exactly zero: a query that sees one key gets none.
  const double scale = (std::max)(magnitude(expected), 1e-3);
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    // A NaN is the worst error of all.
    const double error = std::fabs(double(found[i]) - expected[i]);
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
  }
  INFO("worst element " << at << " of " << found.size() << ", magnitude " << scale);
  CHECK(worst <= tolerance * scale);
}

template <class Scalar>
bool same_bits(const arrays<Scalar>& a, const arrays<Scalar>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    if (!a[i].empty() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(Scalar)) != 0) return false;
  }
  return true;
}

/// Compares every case of the table that is chosen with the reference in double, for every instruction set that can run
/// here.
template <class Chosen>
void compare_with_reference(Chosen chosen) {
  smelt::reference<double> reference;
  for (const smelt::test::cpu_variant& variant : smelt::test::usable_variants()) {
    smelt::cpu backend{smelt::threads_executor(2), variant.compute, variant.set};
    // A bf16 has 8 bits: products of rounded operands are off by 2^-8 of their size, and sums of them by less.
    const bool rounded = variant.compute == smelt::compute_type::bf16;
    const double tolerance = rounded ? 1.5e-2 : 1e-5;
    const double gradient_tolerance = rounded ? 4e-2 : 2e-5;
    smelt::test::for_each_case([&](const auto& c) {
      if (!chosen(c)) return;
      // Scratch memory full of NaN: a result that depends on it shows.
      backend.fill_scratch(std::byte{0xFF});
      const auto found = smelt::test::run_case(c, backend);
      const auto expected = smelt::test::run_case(c, reference);
      INFO(variant.name() << " " << c.op << " " << c.variant);
      for (std::size_t i = 0; i < found.outputs.size(); ++i) {
        INFO("output " << c.outputs[i].name);
        check_close(found.outputs[i], expected.outputs[i], tolerance);
      }
      for (std::size_t i = 0; i < found.gradients.size(); ++i) {
        if (c.inputs[i].kind == smelt::test::gradient::none) continue;
        INFO("gradient of " << c.inputs[i].name);
        check_close(found.gradients[i], expected.gradients[i], gradient_tolerance);
      }
    });
  }
}

/// Few enough numbers and products that an emulator is done in a second.
bool is_small(const smelt::test::op_base& c) {
  double work = c.forward_flops + c.backward_flops;
  for (const smelt::test::op_output& output : c.outputs) work += 100.0 * static_cast<double>(output.size);
  return work < 6e6;
}

}  // namespace

TEST_CASE("CPU ops agree with the reference in double for every instruction set", "[ops]") {
  compare_with_reference([](const auto&) { return true; });
}

// Hidden: tests/emulated runs it on processors that this machine is not, with the sets that each must choose from.
TEST_CASE("small ops agree with the reference on a machine with the stated instruction sets", "[.][emulated]") {
  const char* const stated = std::getenv("SMELT_STATED_SETS");
  REQUIRE(stated != nullptr);
  std::string usable;
  for (const smelt::test::cpu_variant& variant : smelt::test::usable_variants())
    usable += (usable.empty() ? "" : " ") + std::string(name_of(variant.set));
  REQUIRE(usable == stated);
  std::set<std::string> all, compared;
  smelt::test::for_each_case([&](const auto& c) { all.insert(c.op); });
  compare_with_reference([&](const auto& c) {
    if (is_small(c)) compared.insert(c.op);
    return is_small(c);
  });
  CHECK(compared == all);
}

TEST_CASE("gradients of the reference agree with central differences", "[ops][full]") {
  using backend_type = smelt::reference<double>;
  backend_type backend;
  smelt::test::for_each_case([&](const auto& c) {
    if constexpr (smelt::test::has_backward<std::decay_t<decltype(c)>, backend_type>) {
      const auto results = smelt::test::run_case(c, backend);
      const arrays<double> before = smelt::test::gradients_before(c);
      const arrays<double> dout = smelt::test::output_gradients(c);
      arrays<double> in = smelt::test::rounded_inputs<double>(c);
      const auto loss = [&] {
        arrays<double> out = smelt::test::empty_outputs<double>(c);
        c.forward(backend, in, out);
        double sum = 0;
        for (std::size_t o = 0; o < out.size(); ++o) {
          for (std::size_t i = 0; i < dout[o].size(); ++i) sum += dout[o][i] * out[o][i];
        }
        return sum;
      };
      for (std::size_t n = 0; n < in.size(); ++n) {
        const smelt::test::gradient kind = c.inputs[n].kind;
        if (kind == smelt::test::gradient::none) continue;
        INFO(c.op << " " << c.variant << ": gradient of " << c.inputs[n].name);
        // Elements spread over the input, fewer where the four forward passes of each are long.
        const std::size_t samples = c.forward_flops > 2e6 ? 3 : 12;
        std::vector<double> found;
        std::vector<double> expected;
        const std::size_t step = in[n].size() / samples + 1;
        for (std::size_t i = 0; i < in[n].size(); i += step) {
          constexpr double h = 1e-4;
          const double value = in[n][i];
          const auto at = [&](double shift) {
            in[n][i] = value + shift;
            return loss();
          };
          // Fourth order: the error is h^4, far below the tolerance.
          expected.push_back((8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h));
          in[n][i] = value;
          found.push_back(results.gradients[n][i] - (kind == smelt::test::gradient::adds ? before[n][i] : 0.0));
        }
        // Some gradients are exactly zero (one expert's share of one): compare with the size of the loss's own terms.
        const double scale = (std::max)(magnitude(expected), 1e-3);
        for (std::size_t i = 0; i < found.size(); ++i) {
          INFO("element " << i * step << ": " << found[i] << ", differences give " << expected[i]);
          CHECK(std::fabs(found[i] - expected[i]) <= 1e-6 * scale);
        }
      }
    }
  });
}

TEST_CASE("CPU ops give the same bits for every number of threads and every executor", "[ops][threads]") {
  for (const smelt::test::cpu_variant& variant : smelt::test::usable_variants()) {
    smelt::cpu serial{smelt::serial_executor(), variant.compute, variant.set};
    smelt::cpu two{smelt::threads_executor(2), variant.compute, variant.set};
    smelt::cpu three{smelt::threads_executor(3), variant.compute, variant.set};
    smelt::cpu seven{smelt::threads_executor(7), variant.compute, variant.set};
#if defined(SMELT_TBB_EXECUTOR)
    smelt::cpu with_tbb{smelt::tbb_executor(4), variant.compute, variant.set};
#endif
    smelt::test::for_each_case([&](const auto& c) {
      const auto expected = smelt::test::run_case(c, serial);
      const auto check = [&](auto& backend, const char* name) {
        backend.fill_scratch(std::byte{0x7F});
        const auto found = smelt::test::run_case(c, backend);
        INFO(variant.name() << " " << c.op << " " << c.variant << " with " << name);
        CHECK(same_bits(found.outputs, expected.outputs));
        CHECK(same_bits(found.gradients, expected.gradients));
      };
      check(two, "2 threads");
      check(three, "3 threads");
      check(seven, "7 threads");
#if defined(SMELT_TBB_EXECUTOR)
      check(with_tbb, "oneTBB");
#endif
    });
  }
}
