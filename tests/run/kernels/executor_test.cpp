// Does every executor run every task once, and let exceptions out?
#include "catch.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <smelt/core/error.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

TEMPLATE_TEST_CASE("an executor runs every task exactly once", "[executor]", smelt::serial_executor,
                   smelt::threads_executor, smelt::cpu_default_executor) {
  constexpr int most = std::is_same_v<TestType, smelt::serial_executor> ? 1 : 9;
  for (int threads = 1; threads <= most; ++threads) {
    TestType executor(threads);
    CHECK(executor.threads() >= 1);
    CHECK(executor.threads() <= threads);
    for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
      const auto runs = std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(n));
      executor.for_each(n, [&](std::int64_t i) { ++runs[i]; });
      for (std::int64_t i = 0; i < n; ++i) REQUIRE(runs[i] == 1);
    }
  }
}

TEMPLATE_TEST_CASE("an exception comes out of an executor, which stays usable", "[executor]", smelt::serial_executor,
                   smelt::threads_executor, smelt::cpu_default_executor) {
  TestType executor(std::is_same_v<TestType, smelt::serial_executor> ? 1 : 4);
  for (int round = 0; round < 50; ++round) {
    CHECK_THROWS_AS(executor.for_each(100,
                                      [](std::int64_t i) {
                                        if (i % 10 == 3) throw std::runtime_error("task");
                                      }),
                    std::runtime_error);
    std::atomic<int> runs = 0;
    executor.for_each(100, [&](std::int64_t) { ++runs; });
    CHECK(runs == 100);
  }
}

TEMPLATE_TEST_CASE("an executor refuses fewer threads than one", "[executor]", smelt::serial_executor,
                   smelt::threads_executor, smelt::cpu_default_executor) {
  for (const int threads : {0, -3}) {
    try {
      const TestType executor(threads);
      FAIL("an executor without threads was made");
    } catch (const smelt::error& e) {
      CHECK(e.code() == smelt::errc::invalid_argument);
      CHECK_THAT(std::string(e.what()), Catch::Matchers::ContainsSubstring("is " + std::to_string(threads)));
    }
  }
}

TEST_CASE("an executor moves with its threads", "[executor]") {
  smelt::threads_executor first(3);
  smelt::threads_executor second = std::move(first);
  std::atomic<int> runs = 0;
  second.for_each(100, [&](std::int64_t) { ++runs; });
  CHECK(runs == 100);
}

TEST_CASE("threads that come and go at once do not hang", "[executor]") {
  for (int round = 0; round < 200; ++round) {
    smelt::threads_executor executor(4);
    std::atomic<int> runs = 0;
    if (round % 2 == 0) executor.for_each(3, [&](std::int64_t) { ++runs; });
    CHECK(runs == (round % 2 == 0 ? 3 : 0));
  }
}
