// Is the matrix product right for every remainder of its tiles, and the vector arithmetic for every number?
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <smelt/core/random.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <smelt/kernels/cpu/operators.hpp>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

std::vector<float> numbers(std::int64_t size, std::uint64_t stream) {
  const smelt::random_stream random(4, stream);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
  return values;
}

// The element of a product that this number becomes: itself, or the nearest bf16, of two the even one.
template <class Element>
float as_element(float value) {
  if constexpr (std::is_same_v<Element, float>) return value;
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// The transpose of [rows, cols].
std::vector<float> transposed(const std::vector<float>& from, std::int64_t rows, std::int64_t cols) {
  std::vector<float> to(from.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) to[j * rows + i] = from[i * cols + j];
  }
  return to;
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

// Can the ops of the set of this name run here? There is nothing to test where they cannot.
bool is_usable_here(std::string_view name) {
  return std::ranges::any_of(smelt::all_instruction_sets, [&](const smelt::instruction_set set) {
    return smelt::name_of(set) == name && smelt::is_usable(set);
  });
}

}  // namespace

#define SMELT_TEXT_OF(text) #text
#define SMELT_TEXT(text) SMELT_TEXT_OF(text)
#define SMELT_REGION "run/kernels/gemm_test.inl"  // from tests/
#include <smelt/kernels/cpu/each_set.inl>
