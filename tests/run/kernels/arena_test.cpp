// Does scratch memory grow once and then stay?
#include "support/allocations.hpp"
#include "support/backends.hpp"
#include "support/op_table.hpp"

#include "catch.hpp"

#include <cstddef>
#include <cstdint>
#include <smelt/kernels/cpu/arena.hpp>
#include <span>

TEST_CASE("an arena keeps arrays apart while it grows, and stops growing", "[arena]") {
  smelt::cpu_ops::arena memory;
  for (int round = 0; round < 3; ++round) {
    memory.reset();
    const std::int64_t before = smelt::test::allocations();
    const std::span<float> a = memory.take<float>(10);
    const std::span<double> b = memory.take<double>(10'000);
    const std::span<float> c = memory.take<float>(50'000);
    for (float& x : a) x = 1;
    for (double& x : b) x = 2;
    for (float& x : c) x = 3;
    CHECK(a[9] == 1.0F);
    CHECK(b[0] == 2.0);
    CHECK(b[9'999] == 2.0);
    CHECK(reinterpret_cast<std::uintptr_t>(c.data()) % 64 == 0);
    CHECK(memory.take<float>(0).empty());
    if (round == 2) CHECK(smelt::test::allocations() == before);
  }
}

TEST_CASE("after its first call an op allocates nothing", "[arena]") {
  smelt::test::cpu_backend backend{smelt::threads_executor(2)};
  smelt::test::for_each_case([&](const auto& c) {
    auto in = smelt::test::rounded_inputs<float>(c);
    auto out = smelt::test::empty_outputs<float>(c);
    auto dout = smelt::test::rounded<float>(smelt::test::output_gradients(c));
    auto din = smelt::test::rounded<float>(smelt::test::gradients_before(c));
    const auto run = [&] {
      c.forward(backend, in, out);
      if constexpr (smelt::test::has_backward<std::decay_t<decltype(c)>, smelt::test::cpu_backend>) {
        c.backward(backend, in, out, dout, din);
      }
    };
    // Which of the two arenas a task gets is chance, so each may take a few rounds to reach its size.
    std::int64_t grown = 1;
    for (int round = 0; round < 100 && grown > 0; ++round) {
      const std::int64_t before = smelt::test::allocations();
      run();
      grown = smelt::test::allocations() - before;
    }
    INFO(c.op << " " << c.variant);
    CHECK(grown == 0);
  });
}
