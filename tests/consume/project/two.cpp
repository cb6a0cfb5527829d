// Do two translation units that include every header link? This is the second.
#include EVERY_HEADER

int sum_in_the_other_unit(smelt::matrix_view<const int> view) {
  int sum = 0;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    for (const int value : view.row(row)) sum += value;
  }
  return sum;
}
