// Is the matrix product right for every remainder of its tiles, and the vector arithmetic for every number?
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <smelt/core/random.hpp>
#include <smelt/kernels/cpu/operators.hpp>
#include <vector>

namespace {

using namespace smelt::cpu_ops;

std::vector<float> numbers(std::int64_t size, std::uint64_t stream) {
  const smelt::random_stream random(4, stream);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
  return values;
}

}  // namespace

TEST_CASE("a product is right for every remainder of rows, depth and columns", "[gemm]") {
  const std::vector<std::int64_t> depths{1, 2, 3, 5, 255, 256, 257, 300};
  for (std::int64_t rows = 1; rows <= 26; ++rows) {
    for (const std::int64_t cols : {1, 7, 15, 16, 17, 31, 32, 33, 48, 50, 65}) {
      const std::int64_t depth = depths[(rows + cols) % static_cast<std::int64_t>(depths.size())];
      const std::int64_t c_stride = cols + 3;
      const std::vector<float> a = numbers(rows * depth, 1);
      const std::vector<float> b = numbers(depth * cols, 2);
      const std::vector<float> before = numbers(rows * c_stride, 3);
      std::vector<float> packed_rows(static_cast<std::size_t>(packed_size(depth, cols)), 1e30F);
      std::vector<float> packed_columns = packed_rows;
      pack_rows([&](std::int64_t k) { return b.data() + k * cols; }, depth, cols, 0, panel_count(cols),
                packed_rows.data());
      std::vector<float> transposed(b.size());
      std::vector<float> a_columns(a.size());
      for (std::int64_t k = 0; k < depth; ++k) {
        for (std::int64_t n = 0; n < cols; ++n) transposed[n * depth + k] = b[k * cols + n];
        for (std::int64_t i = 0; i < rows; ++i) a_columns[k * rows + i] = a[i * depth + k];
      }
      pack_columns(transposed.data(), depth, depth, cols, 0, panel_count(cols), packed_columns.data());
      REQUIRE(packed_rows == packed_columns);

      for (const bool add : {false, true}) {
        std::vector<float> by_rows = before;
        std::vector<float> by_columns = before;
        multiply({a.data(), depth, 1}, {packed_rows.data(), depth}, rows, depth, cols, by_rows.data(), c_stride, add);
        multiply({a_columns.data(), 1, rows}, {packed_rows.data(), depth}, rows, depth, cols, by_columns.data(),
                 c_stride, add);
        REQUIRE(by_rows == by_columns);
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t n = 0; n < c_stride; ++n) {
            double expected = n >= cols || add ? double(before[i * c_stride + n]) : 0.0;
            double size = std::fabs(expected);
            for (std::int64_t k = 0; n < cols && k < depth; ++k) {
              const double term = double(a[i * depth + k]) * double(b[k * cols + n]);
              expected += term;
              size += std::fabs(term);
            }
            INFO(rows << " x " << depth << " x " << cols << " at " << i << ", " << n);
            REQUIRE(std::fabs(double(by_rows[i * c_stride + n]) - expected) <= 1e-6 * size);
          }
        }
      }
    }
  }
}

TEST_CASE("a product can start inside a packed operand", "[gemm]") {
  const std::int64_t depth = 40;
  const std::int64_t cols = 70;
  const std::vector<float> b = numbers(depth * cols, 2);
  const std::vector<float> a = numbers(5 * 11, 1);
  std::vector<float> packed(static_cast<std::size_t>(packed_size(depth, cols)));
  pack_rows([&](std::int64_t k) { return b.data() + k * cols; }, depth, cols, 0, panel_count(cols), packed.data());
  std::vector<float> c(5 * 70);
  multiply({a.data(), 11, 1}, {packed.data(), depth, 23}, 5, 11, cols, c.data(), cols, false);
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t n = 0; n < cols; ++n) {
      double expected = 0;
      for (std::int64_t k = 0; k < 11; ++k) expected += double(a[i * 11 + k]) * double(b[(23 + k) * cols + n]);
      REQUIRE(double(c[i * cols + n]) == Approx(expected).margin(1e-5));
    }
  }
}

TEST_CASE("the vector exponential is accurate over the whole range", "[vector_math]") {
  double worst = 0;
  for (float x = -87.3F; x < 88.0F; x += 0.0037F) {
    const double expected = std::exp(double(x));
    worst = (std::max)(worst, std::fabs(double(exp(broadcast(x))[0]) / expected - 1));
  }
  CHECK(worst < 1.5e-7);
  CHECK(worst > 0);
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(exp(broadcast(0.0F))[0] == 1.0F);
  CHECK(exp(broadcast(-88.0F))[0] == 0.0F);
  CHECK(exp(broadcast(-inf))[0] == 0.0F);
  CHECK(exp(broadcast(89.0F))[0] == inf);
  CHECK(exp(broadcast(inf))[0] == inf);
  CHECK(std::isnan(exp(broadcast(std::numeric_limits<float>::quiet_NaN()))[0]));
  CHECK(sigmoid(broadcast(-inf))[0] == 0.0F);
  CHECK(sigmoid(broadcast(inf))[0] == 1.0F);
  CHECK(sigmoid(broadcast(0.0F))[0] == 0.5F);
  CHECK(sqrt(broadcast(2.0F))[0] == std::sqrt(2.0F));
}

TEST_CASE("reductions see every lane and no others", "[simd]") {
  for (std::int64_t size = 1; size <= 70; ++size) {
    std::vector<float> a(static_cast<std::size_t>(size) + lanes, 1e9F);
    double total = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      a[i] = static_cast<float>((i * 29) % 71 - 100);
      total += double(a[i]);
    }
    CHECK(double(sum(a.data(), size)) == total);
    CHECK(greatest(a.data(), size) == *std::max_element(a.begin(), a.begin() + size));
    const std::vector<float> ones(static_cast<std::size_t>(size), 1.0F);
    CHECK(double(dot(ones.data(), a.data(), size)) == total);
    std::vector<float> copy(static_cast<std::size_t>(size) + lanes, -5.0F);
    for_vectors(size, [&](auto get, auto put) { put(copy.data(), get(a.data())); });
    CHECK(std::equal(copy.begin(), copy.begin() + size, a.begin()));
    CHECK(copy[size] == -5.0F);
  }
}
