// Does every visit of a layer find its own keys and values, and no more than its window?
#include <smelt/infer/kv_store.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "catch.hpp"
#include "support/small_specs.hpp"

using namespace smelt;

namespace {

/// Keys that tell their slot and token, values that are the keys' negatives.
float mark(int slot, std::int64_t token) {
  return static_cast<float>(1000 * (slot + 1) + token);
}

void write(kv_store<float>& store, int slot, std::int64_t before, std::int64_t count) {
  const kv_rows<float> rows = store.open(slot, before, count);
  REQUIRE(rows.new_keys.rows == count);
  for (std::int64_t t = 0; t < count; ++t) {
    std::ranges::fill(rows.new_keys.row(t), mark(slot, before + t));
    std::ranges::fill(rows.new_values.row(t), -mark(slot, before + t));
  }
  store.close(slot, before, count);
}

}  // namespace

TEST_CASE("every visit of a layer has keys and values of its own", "[infer][kv_store]") {
  spec s = smelt_test::tiny;
  s.layers = 3;
  s.loop = {.first = 1, .count = 1, .visits = visits(2)};
  kv_store<float> store(s, 9, 4);
  const int slots = schedule(s).size();
  REQUIRE(slots == 4);
  CHECK(store.bytes() == 4 * 9 * 2 * 8 * std::int64_t{sizeof(float)});
  for (const auto& [before, count] : std::vector<std::pair<int, int>>{{0, 4}, {4, 1}, {5, 3}})
    for (int slot = 0; slot < slots; ++slot) write(store, slot, before, count);
  for (int slot = 0; slot < slots; ++slot) {
    const kv_rows<float> rows = store.open(slot, 8, 1);
    CHECK(rows.window == 0);
    REQUIRE(rows.keys.rows == 9);
    for (std::int64_t t = 0; t < 8; ++t) {
      for (const float key : rows.keys.row(t)) CHECK(key == mark(slot, t));
      for (const float value : rows.values.row(t)) CHECK(value == -mark(slot, t));
    }
  }
}

TEST_CASE("a windowed layer keeps the last tokens, however they came", "[infer][kv_store]") {
  spec s = smelt_test::tiny;
  s.attention.window = 4;
  for (const std::vector<int>& passes : std::vector<std::vector<int>>{{1, 1, 1, 1, 1, 1, 1, 1, 1},
                                                                      {9},
                                                                      {2, 1, 6},
                                                                      {5, 3, 1},
                                                                      {3, 3, 3},
                                                                      {1, 2, 3, 1, 2},
                                                                      {4, 4, 1},
                                                                      {6, 1, 1, 1}}) {
    kv_store<float> store(s, 16, 9);
    std::int64_t before = 0;
    for (const int count : passes) {
      write(store, 1, before, count);
      before += count;
    }
    REQUIRE(before == 9);
    // The next token sees itself and the three before it, in any order.
    const kv_rows<float> one = store.open(1, 9, 1);
    one.new_keys.row(0)[0] = mark(1, 9);
    CHECK(one.window == 0);
    REQUIRE(one.keys.rows == 4);
    std::vector<float> seen;
    for (std::int64_t t = 0; t < 4; ++t) seen.push_back(one.keys.row(t)[0]);
    std::ranges::sort(seen);
    CHECK(seen == std::vector{mark(1, 6), mark(1, 7), mark(1, 8), mark(1, 9)});
    write(store, 1, 9, 1);
    // Several see what their windows reach, in order.
    const kv_rows<float> two = store.open(1, 10, 2);
    CHECK(two.window == 4);
    REQUIRE(two.keys.rows == 5);
    for (std::int64_t t = 0; t < 3; ++t) {
      CHECK(two.keys.row(t)[0] == mark(1, 7 + t));
      CHECK(two.values.row(t)[7] == -mark(1, 7 + t));
    }
    CHECK(two.new_keys.data == two.keys.data + 3 * two.keys.cols);
  }
}
