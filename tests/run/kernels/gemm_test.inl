// The tests of gemm_test.cpp for one instruction set and its elements.

namespace smelt::cpu_ops::SMELT_SET {

namespace {

#if SMELT_BF16
using product_element = bf16;  // the products of floats are those of AVX-512
constexpr bf16 garbage{0xFFFF};
#else
using product_element = float;
constexpr float garbage = not_a_number;
#endif

// A packed matrix, with room filled with what must not be read.
template <class Pack>
std::vector<product_element> packed(std::int64_t depth, std::int64_t cols, Pack pack) {
  std::vector<product_element> panels(static_cast<std::size_t>(packed_size<product_element>(depth, cols)), garbage);
  pack(panels.data());
  return panels;
}

std::vector<product_element> packed_rows(const std::vector<float>& b, std::int64_t depth, std::int64_t cols) {
  return packed(depth, cols, [&](product_element* to) {
    pack_rows([&](std::int64_t k) { return b.data() + k * cols; }, depth, cols, 0, panel_count(cols), to);
  });
}

bool same_bits(const std::vector<product_element>& a, const std::vector<product_element>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(product_element)) == 0;
}

// residual + scale * a[rows, depth] b[depth, cols] in double, with the elements that are multiplied.
struct exact {
  double value = 0;
  double size = 0;  // of the terms
};
exact expected_element(const float* a, std::int64_t depth, const float* b, std::int64_t cols, std::int64_t i,
                       std::int64_t n, double scale, double residual) {
  exact sum{residual, std::fabs(residual)};
  for (std::int64_t k = 0; k < depth; ++k) {
    const double term = scale * double(as_element<product_element>(a[i * depth + k])) *
                        double(as_element<product_element>(b[k * cols + n]));
    sum.value += term;
    sum.size += std::fabs(term);
  }
  return sum;
}

}  // namespace

TEST_CASE("a product is right for every remainder of rows, depth and columns: " SMELT_TEXT(SMELT_SET), "[gemm]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  arena memory;
  const std::vector<std::int64_t> depths{1, 2, 3, 5, 255, 256, 257, 300};
  for (std::int64_t rows = 1; rows <= 30; ++rows) {
    for (const std::int64_t cols : {1, 7, 15, 16, 17, 31, 32, 33, 48, 50, 65}) {
      const std::int64_t depth = depths[(rows + cols) % static_cast<std::int64_t>(depths.size())];
      const std::int64_t stride = cols + 3;
      const std::vector<float> a = numbers(rows * depth, 1);
      const std::vector<float> b = numbers(depth * cols, 2);
      const std::vector<float> before = numbers(rows * stride, 3);
      const std::vector<float> residual = numbers(rows * cols, 4);
      const std::vector<product_element> right = packed_rows(b, depth, cols);
      const std::vector<float> b_columns = transposed(b, depth, cols);
      REQUIRE(same_bits(right, packed(depth, cols, [&](product_element* to) {
                          pack_columns(b_columns.data(), depth, depth, cols, 0, panel_count(cols), to);
                        })));
      const std::vector<float> a_columns = transposed(a, rows, depth);
      memory.reset();
      const auto by_rows = rows_of<product_element>(memory, a.data(), depth, rows, depth);
      const auto by_columns = columns_of<product_element>(memory, a_columns.data(), rows, rows, depth);
      const packed_operand<product_element> operand{right.data(), depth};

      const auto check = [&](auto epilogue_to, double scale, auto residual_at) {
        std::vector<float> found = before;
        std::vector<float> found_by_columns = before;
        multiply(by_rows, operand, rows, depth, cols, epilogue_to(found.data()));
        multiply(by_columns, operand, rows, depth, cols, epilogue_to(found_by_columns.data()));
        REQUIRE(found == found_by_columns);
        double worst = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t n = 0; n < cols; ++n) {
            const exact e = expected_element(a.data(), depth, b.data(), cols, i, n, scale, residual_at(i, n));
            worst = (std::max)(worst, std::fabs(double(found[i * stride + n]) - e.value) / e.size);
          }
          for (std::int64_t n = cols; n < stride; ++n) REQUIRE(found[i * stride + n] == before[i * stride + n]);
        }
        INFO(rows << " x " << depth << " x " << cols);
        REQUIRE(worst <= 1e-6);
      };
      check([&](float* to) { return overwrite(to, stride); }, 1.0, [](std::int64_t, std::int64_t) { return 0.0; });
      check([&](float* to) { return accumulate(to, stride); }, 1.0,
            [&](std::int64_t i, std::int64_t n) { return double(before[i * stride + n]); });
      check([&](float* to) { return affine{to, stride, -0.375F, residual.data(), cols}; }, -0.375,
            [&](std::int64_t i, std::int64_t n) { return double(residual[i * cols + n]); });
    }
  }
}

#if !SMELT_BF16
TEST_CASE("a right operand is read where it is: " SMELT_TEXT(SMELT_SET), "[gemm]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  for (std::int64_t rows = 1; rows <= 14; ++rows) {
    for (const std::int64_t cols : {panel_width, 2 * panel_width, 3 * panel_width}) {
      const std::int64_t depth = 3 * rows;
      const std::int64_t stride = cols + 5;
      const std::vector<float> a_columns = numbers(depth * rows, 1);
      const std::vector<float> b = numbers(depth * stride, 2);
      std::vector<float> found(static_cast<std::size_t>(rows * cols));
      std::vector<float> expected = found;
      const column_operand<float> left{a_columns.data(), rows};
      multiply(left, stored_operand{b.data(), stride}, rows, depth, cols, overwrite(found.data(), cols));
      const std::vector<float> panels = packed(depth, cols, [&](float* to) {
        pack_rows([&](std::int64_t k) { return b.data() + k * stride; }, depth, cols, 0, panel_count(cols), to);
      });
      multiply(left, packed_operand<float>{panels.data(), depth}, rows, depth, cols, overwrite(expected.data(), cols));
      INFO(rows << " x " << depth << " x " << cols);
      REQUIRE(found == expected);
    }
  }
}
#endif

TEST_CASE("columns whose rows would crowd a cache are copied as they are: " SMELT_TEXT(SMELT_SET), "[gemm]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  const std::int64_t depth = 9;
  const std::int64_t cols = panel_width + 1;
  const std::vector<float> right = numbers(depth * cols, 2);
  const std::vector<product_element> panels = packed_rows(right, depth, cols);
  for (const std::int64_t rows : {1, 16, 33}) {
    const std::vector<float> crowded = numbers(depth * policy::crowded_stride, 1);
    std::vector<float> apart(static_cast<std::size_t>(depth * rows));
    for (std::int64_t i = 0; i < depth * rows; ++i) apart[i] = crowded[i / rows * policy::crowded_stride + i % rows];
    arena memory;
    const auto product = [&](const float* from, std::int64_t stride) {
      std::vector<float> to(static_cast<std::size_t>(rows * cols));
      multiply(columns_of<product_element>(memory, from, stride, rows, depth),
               packed_operand<product_element>{panels.data(), depth}, rows, depth, cols, overwrite(to.data(), cols));
      return to;
    };
    REQUIRE(product(crowded.data(), policy::crowded_stride) == product(apart.data(), rows));
  }
}

TEST_CASE("a square is transposed: " SMELT_TEXT(SMELT_SET), "[simd]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  floats square[lanes];
  for (std::int64_t i = 0; i < lanes; ++i) {
    for (std::int64_t j = 0; j < lanes; ++j) square[i][j] = static_cast<float>(100 * i + j);
  }
  transpose(square);
  for (std::int64_t i = 0; i < lanes; ++i) {
    for (std::int64_t j = 0; j < lanes; ++j) REQUIRE(square[i][j] == static_cast<float>(100 * j + i));
  }
}

TEST_CASE("an element does not depend on the rows and columns around it: " SMELT_TEXT(SMELT_SET), "[gemm]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  const std::int64_t rows = 61;
  const std::int64_t depth = 133;
  const std::int64_t cols = 77;
  const std::vector<float> a = numbers(rows * depth, 1);
  const std::vector<float> b = numbers(depth * cols, 2);
  const std::vector<product_element> right = packed_rows(b, depth, cols);
  const auto product = [&](std::int64_t first, std::int64_t count) {
    arena memory;
    std::vector<float> to(static_cast<std::size_t>(count * cols));
    multiply(rows_of<product_element>(memory, a.data() + first * depth, depth, count, depth),
             packed_operand<product_element>{right.data(), depth}, count, depth, cols, overwrite(to.data(), cols));
    return to;
  };
  const std::vector<float> whole = product(0, rows);
  for (std::int64_t count = 1; count <= 30; ++count) {
    const std::vector<float> part = product(17, count);
    INFO(count << " rows");
    REQUIRE(std::equal(part.begin(), part.end(), whole.begin() + 17 * cols));
  }
}

TEST_CASE("a product can start inside a packed operand and end before its end: " SMELT_TEXT(SMELT_SET), "[gemm]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  const std::int64_t rows = 5;
  const std::int64_t depth = 40;
  const std::int64_t cols = 2 * panel_width + 6;
  const std::int64_t first = 22;
  const std::vector<float> b = numbers(depth * cols, 2);
  const std::vector<product_element> right = packed_rows(b, depth, cols);
  for (const std::int64_t part : {1, 2, 11, 12, 18}) {
    for (const std::int64_t used : {cols, panel_width}) {
      const std::vector<float> a = numbers(rows * part, 1);
      arena memory;
      std::vector<float> to(static_cast<std::size_t>(rows * cols), 7.0F);
      multiply(rows_of<product_element>(memory, a.data(), part, rows, part),
               packed_operand<product_element>{right.data(), depth, first}, rows, part, used,
               overwrite(to.data(), cols));
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t n = 0; n < cols; ++n) {
          const exact e = expected_element(a.data(), part, b.data() + first * cols, cols, i, n, 1, 0);
          INFO(part << " of the depth, row " << i << ", column " << n << " of " << used);
          if (n < used) {
            REQUIRE(std::fabs(double(to[i * cols + n]) - e.value) <= 1e-6 * e.size);
          } else {
            REQUIRE(to[i * cols + n] == 7.0F);
          }
        }
      }
    }
  }
}

TEST_CASE("what is not finite reaches its own row or column and no other: " SMELT_TEXT(SMELT_SET), "[gemm]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  const std::int64_t cols = panel_width + 3;
  for (const std::int64_t rows : {1, 6, 13, 25}) {
    for (const std::int64_t depth : {1, 7, 64}) {
      for (const float odd : {not_a_number, infinity, -infinity}) {
        std::vector<float> a = numbers(rows * depth, 1);
        std::vector<float> b = numbers(depth * cols, 2);
        const std::int64_t bad_row = rows - 1;
        const std::int64_t bad_col = cols - 1;
        const auto product = [&] {
          arena memory;
          const std::vector<product_element> right = packed_rows(b, depth, cols);
          const std::vector<float> a_columns = transposed(a, rows, depth);
          std::vector<float> by_rows(static_cast<std::size_t>(rows * cols));
          std::vector<float> by_columns = by_rows;
          const packed_operand<product_element> operand{right.data(), depth};
          multiply(rows_of<product_element>(memory, a.data(), depth, rows, depth), operand, rows, depth, cols,
                   overwrite(by_rows.data(), cols));
          multiply(columns_of<product_element>(memory, a_columns.data(), rows, rows, depth), operand, rows, depth, cols,
                   overwrite(by_columns.data(), cols));
          REQUIRE(std::memcmp(by_rows.data(), by_columns.data(), by_rows.size() * 4) == 0);
          return by_rows;
        };
        INFO(rows << " rows, depth " << depth << ", " << odd);
        a[bad_row * depth + depth - 1] = odd;
        const std::vector<float> from_left = product();
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          REQUIRE(std::isfinite(from_left[i]) == (i / cols != bad_row));
        }
        a[bad_row * depth + depth - 1] = 1;
        b[(depth - 1) * cols + bad_col] = odd;
        const std::vector<float> from_right = product();
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          REQUIRE(std::isfinite(from_right[i]) == (i % cols != bad_col));
        }
        if (!std::isnan(odd)) REQUIRE(from_right[bad_row * cols + bad_col] == odd);
      }
    }
  }
}

TEST_CASE("the vector exponentials are accurate where they are used: " SMELT_TEXT(SMELT_SET), "[vector_math]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  double worst = 0;
  for (float x = -125.0F; x < 127.4F; x += 0.0053F) {
    const double expected = std::exp2(double(x));
    worst = (std::max)(worst, std::fabs(double(exp2(broadcast(x))[0]) / expected - 1));
  }
  CHECK(worst < 2e-7);
  CHECK(worst > 0);
  CHECK(exp2(broadcast(0.0F))[0] == 1.0F);
  CHECK(exp2(broadcast(-127.1F))[0] <= 5.5e-39F);
  CHECK(exp2(broadcast(-3e38F))[0] == 0.0F);
  CHECK(exp2(broadcast(-infinity))[0] == 0.0F);
  CHECK(std::isnan(exp2(broadcast(not_a_number))[0]));
  // Parts of what is allowed: 3e-7 + 8e-8 |x|.
  double worst_part = 0;
  for (float x = -86.5F; x < 87.0F; x += 0.0037F) {
    const double allowed = 3e-7 + 8e-8 * std::fabs(double(x));
    const double of_exp = std::fabs(double(exp(broadcast(x))[0]) / std::exp(double(x)) - 1);
    const double of_sigmoid = std::fabs(double(sigmoid(broadcast(x))[0]) * (1 + std::exp(-double(x))) - 1);
    worst_part = (std::max)({worst_part, of_exp / allowed, of_sigmoid / allowed});
  }
  CHECK(worst_part < 1);
  CHECK(worst_part > 0);
  CHECK(exp(broadcast(0.0F))[0] == 1.0F);
  CHECK(exp(broadcast(-infinity))[0] == 0.0F);
  CHECK(std::isnan(exp(broadcast(not_a_number))[0]));
  CHECK(sigmoid(broadcast(-infinity))[0] < 1e-38F);
  CHECK(sigmoid(broadcast(infinity))[0] == 1.0F);
  CHECK(sigmoid(broadcast(0.0F))[0] == 0.5F);
  CHECK(std::isnan(sigmoid(broadcast(not_a_number))[0]));
  CHECK(sqrt(broadcast(2.0F))[0] == std::sqrt(2.0F));
}

TEST_CASE("reductions see every lane and no others: " SMELT_TEXT(SMELT_SET), "[simd]") {
  if (!is_usable_here(SMELT_TEXT(SMELT_SET))) return;
  for (std::int64_t size = 1; size <= 70; ++size) {
    std::vector<float> a(static_cast<std::size_t>(size + lanes), 1e9F);
    double total = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      a[i] = static_cast<float>((i * 29) % 71 - 100);
      total += double(a[i]);
    }
    CHECK(double(sum(a.data(), size)) == total);
    CHECK(greatest(a.data(), size) == *std::max_element(a.begin(), a.begin() + size));
    const std::vector<float> ones(static_cast<std::size_t>(size), 1.0F);
    CHECK(double(dot(ones.data(), a.data(), size)) == total);
    std::vector<float> copy(static_cast<std::size_t>(size + lanes), -5.0F);
    for_vectors(size, [&](auto get, auto put) { put(copy.data(), get(a.data())); });
    CHECK(std::equal(copy.begin(), copy.begin() + size, a.begin()));
    CHECK(copy[size] == -5.0F);
  }
}

}  // namespace smelt::cpu_ops::SMELT_SET
