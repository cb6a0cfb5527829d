// Do two translation units that include every header link? This is the first, and holds main.
#include EVERY_HEADER

#include <array>
#include <cstdio>

int sum_in_the_other_unit(smelt::matrix_view<const int> view);

int main() {
  const std::array<int, 6> values{1, 2, 3, 4, 5, 6};
  const int sum = sum_in_the_other_unit({values.data(), 2, 3});
  if (sum != 21) {
    std::printf("the other unit summed %d, and must sum 21\n", sum);
    return 1;
  }
  return 0;
}
