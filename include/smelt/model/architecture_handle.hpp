// Is the architecture known to the compiler or only at run time? Models take either through one handle.
#pragma once

#include <concepts>
#include <smelt/kernels/shapes.hpp>
#include <smelt/spec/arch.hpp>
#include <smelt/spec/validate.hpp>

namespace smelt {

/// An architecture read at run time. Its kernels take their shapes as values instead of constants.
class dynamic_arch {
 public:
  /// Throws errc::invalid_spec with the broken rule's words when `s` cannot exist.
  explicit dynamic_arch(const spec& s) : value_(validate(s)) {}
  [[nodiscard]] const spec& get() const noexcept { return value_; }

 private:
  spec value_;
};

/// What a model is built from: an architecture type (its handle is an empty object) or a dynamic_arch.
template <class A>
concept ArchitectureHandle = Architecture<A> || std::same_as<A, dynamic_arch>;

/// The spec behind a handle.
template <ArchitectureHandle A>
[[nodiscard]] constexpr const spec& spec_of(const A& handle) noexcept {
  if constexpr (Architecture<A>)
    return A::value;
  else
    return handle.get();
}

/// `Shape(spec)` as a constant when the compiler knows the spec, as a value otherwise.
template <auto Shape, ArchitectureHandle A>
[[nodiscard]] constexpr auto shape(const A& handle) noexcept {
  if constexpr (Architecture<A>)
    return constant<Shape(A::value)>{};
  else
    return Shape(handle.get());
}

}  // namespace smelt
