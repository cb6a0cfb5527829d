// Does scratch memory grow once and then stay?
#include "../tools/smelt/allocations.hpp"
#include "support/backends.hpp"
#include "support/op_table.hpp"

#include "catch.hpp"

#include <cstddef>
#include <cstdint>
#include <smelt/kernels/cpu/arena.hpp>
#include <smelt/kernels/cpu/context.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <span>

TEST_CASE("an arena keeps arrays apart while it grows, and stops growing", "[arena]") {
  smelt::cpu_ops::arena memory;
  for (int round = 0; round < 3; ++round) {
    memory.reset();
    const std::int64_t before = smelt::tool::allocations();
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
    if (round == 2) CHECK(smelt::tool::allocations() == before);
  }
}

TEST_CASE("arenas that tasks borrow become as large as the largest, whoever needed it", "[arena]") {
  smelt::cpu_ops::context c(smelt::cpu_ops::any_executor(smelt::threads_executor(4)));
  const auto borrow = [&](std::int64_t tasks, std::int64_t bytes) {
    c.for_each(tasks, [&](std::int64_t) {
      const smelt::cpu_ops::arena_loan memory = c.lend();
      const std::span<std::byte> all = memory->take<std::byte>(bytes);
      all.front() = all.back() = std::byte{1};
    });
  };
  borrow(1, 3 << 20);
  const std::int64_t before = smelt::tool::allocations();
  for (int round = 0; round < 20; ++round) borrow(8, 3 << 20);
  CHECK(smelt::tool::allocations() == before);
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
    run();
    run();  // the op's own memory grew by pieces and becomes one
    const std::int64_t before = smelt::tool::allocations();
    for (int round = 0; round < 3; ++round) run();
    const std::int64_t grown = smelt::tool::allocations() - before;  // without those of the next line
    INFO(c.op << " " << c.variant);
    CHECK(grown == 0);
  });
}
