// Which Catch2 is installed? Tests include this one header and read the same under major versions 2 and 3:
// `Approx` is in scope, and `Catch::Matchers::ContainsSubstring` exists in both.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#include <string>

namespace Catch::Matchers {

/// The name version 3 gives to version 2's `Contains`.
[[nodiscard]] inline auto ContainsSubstring(const std::string& text) {
  return Contains(text);
}

}  // namespace Catch::Matchers
#endif
