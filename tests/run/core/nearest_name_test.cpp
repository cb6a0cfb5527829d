// Does "did you mean" name what was meant?
#include <smelt/core/nearest_name.hpp>
#include <string>
#include <vector>

#include "catch.hpp"

using namespace smelt;

TEST_CASE("the nearest names come first", "[core][nearest_name]") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("naon", "nano") == 1);
  CHECK(nearest_names("naon", {"small", "mini", "nano", "nano-smelt"}, 2) ==
        std::vector<std::string>{"nano", "small"});  // small and mini tie
  CHECK(nearest_names("x", {}).empty());
}
