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
  explicit dynamic_arch(const spec& s) : dynamic_arch(s, s) {}
  /// The same for layers that use the leading parts of the weights of `whole`.
  dynamic_arch(const spec& s, const spec& whole) : value_(validate(s)), whole_(whole) {}
  [[nodiscard]] const spec& get() const noexcept { return value_; }
  /// Whose weights are stored.
  [[nodiscard]] const spec& whole() const noexcept { return whole_; }

 private:
  spec value_;
  spec whole_;
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

/// Whether the handle's spec may have what `has` asks for. A type says no where its spec has not, so that what a model
/// of it never runs is not compiled; a dynamic_arch never does.
template <ArchitectureHandle A>
[[nodiscard]] consteval bool may_have(bool (*has)(const spec&) noexcept) noexcept {
  if constexpr (Architecture<A>)
    return has(A::value);
  else
    return true;
}

/// `Shape(spec)`, or `Shape(spec, whole)` for one with weights, as a constant when the compiler knows the spec, as a
/// value otherwise.
template <auto Shape, ArchitectureHandle A>
[[nodiscard]] constexpr auto shape(const A& handle) noexcept {
  constexpr bool has_weights = std::invocable<decltype(Shape), const spec&, const spec&>;
  if constexpr (Architecture<A> && has_weights)
    return constant<Shape(A::value, A::value)>{};
  else if constexpr (Architecture<A>)
    return constant<Shape(A::value)>{};
  else if constexpr (has_weights)
    return Shape(handle.get(), handle.whole());
  else
    return Shape(handle.get());
}

}  // namespace smelt
