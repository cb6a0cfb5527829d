// Does every executor run every task once, and let exceptions out?
#include "catch.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <smelt/core/error.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/kernels/cpu/tbb_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(SMELT_TBB_EXECUTOR)
#define SMELT_EXECUTORS smelt::serial_executor, smelt::threads_executor, smelt::tbb_executor
#else
#define SMELT_EXECUTORS smelt::serial_executor, smelt::threads_executor
#endif

TEMPLATE_TEST_CASE("an executor runs every task exactly once", "[executor]", SMELT_EXECUTORS) {
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

TEMPLATE_TEST_CASE("an exception comes out of an executor, which stays usable", "[executor]", SMELT_EXECUTORS) {
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

TEMPLATE_TEST_CASE("an executor refuses fewer threads than one", "[executor]", SMELT_EXECUTORS) {
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

TEST_CASE("a pool of threads takes batches up again after it has slept, and uneven tasks", "[executor]") {
  smelt::threads_executor executor(3);
  for (int round = 0; round < 20; ++round) {
    // Longer than threads watch for work.
    if (round % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<std::int64_t> sum = 0;
    executor.for_each(101, [&](std::int64_t i) {
      if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      sum += i;
    });
    REQUIRE(sum == 5050);
  }
}

TEST_CASE("a batch does not wait for threads that have not begun", "[executor]") {
  // Far more threads than cores: most of them sleep or wait for a core while the caller does their tasks.
  smelt::threads_executor executor(64);
  std::int64_t batches = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) {
    std::atomic<int> runs = 0;
    executor.for_each(64, [&](std::int64_t) { ++runs; });
    REQUIRE(runs == 64);
    ++batches;
  }
  CHECK(batches > 20);
}

TEST_CASE("exceptions from several tasks at once are one exception, and no task is counted twice", "[executor]") {
  smelt::threads_executor executor(4);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> runs = 0;
    CHECK_THROWS_AS(executor.for_each(40,
                                      [&](std::int64_t) {
                                        ++runs;
                                        throw std::runtime_error("task");
                                      }),
                    std::runtime_error);
    CHECK(runs >= 1);
    CHECK(runs <= 4);
  }
}
