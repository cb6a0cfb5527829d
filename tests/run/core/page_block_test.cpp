// Are blocks zero, aligned, movable, and cut into arrays that do not overlap?
#include <smelt/core/page_block.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <smelt/core/carver.hpp>
#include <tuple>
#include <utility>

#include "catch.hpp"

using smelt::carver;
using smelt::page_block;

TEST_CASE("a block of any size is zero, aligned and keeps what is written", "[memory]") {
  constexpr std::size_t huge = page_block::huge_page;
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, huge - 1, huge, huge + 1, 3 * huge + 12'345}) {
    INFO(size << " bytes");
    page_block block(size);
    REQUIRE(block.size() == size);
    const auto address = reinterpret_cast<std::uintptr_t>(block.data());
    CHECK(address % page_block::line == 0);
#if defined(__linux__)
    if (size >= huge) CHECK(address % huge == 0);
#endif
    CHECK(std::all_of(block.data(), block.data() + size, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(block.data(), size, std::byte{0x5A});
    block.touch(size + 1);
    page_block moved = std::move(block);
    CHECK(block.data() == nullptr);  // NOLINT(bugprone-use-after-move)
    CHECK(block.size() == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(moved.data()) == address);
    CHECK(std::all_of(moved.data(), moved.data() + size, [](std::byte b) { return b == std::byte{0x5A}; }));
    page_block other(7);
    other = std::move(moved);
    CHECK(other.size() == size);
  }
  CHECK(page_block(0).data() == nullptr);
  CHECK(page_block().size() == 0);
}

TEST_CASE("a block that no system has is refused", "[memory]") {
  CHECK_THROWS_AS(page_block((std::numeric_limits<std::size_t>::max)()), std::bad_alloc);
  CHECK_THROWS_AS(page_block((std::numeric_limits<std::size_t>::max)() - 63), std::bad_alloc);
}

TEST_CASE("a block is cut as it was measured", "[memory]") {
  const auto cut = [](carver& memory) {
    const auto a = memory.take<std::int32_t>(3);
    const auto b = memory.take<double>(17);
    const auto c = memory.take<float>(0);
    const auto d = memory.take<float>(16);
    return std::tuple(a, b, c, d);
  };
  carver measure;
  CHECK(std::get<1>(cut(measure)).empty());
  CHECK(measure.used() == 64 + 192 + 0 + 64);
  const page_block block(measure.used());
  carver memory({block.data(), block.size()});
  const auto [a, b, c, d] = cut(memory);
  CHECK(memory.used() == block.size());
  CHECK(a.size() == 3);
  CHECK(reinterpret_cast<std::byte*>(b.data()) == block.data() + 64);
  CHECK(b.size() == 17);
  CHECK(c.empty());
  CHECK(reinterpret_cast<std::byte*>(d.data()) == block.data() + 256);
  CHECK_THROWS_AS(memory.take<float>(1), std::bad_alloc);
}
