// A model of a type compiles no op that it never runs: each costs the compiler as much as one that it needs.
#include <smelt/budget/presets.hpp>
#include <smelt/infer/decoder.hpp>
#include <smelt/kernels/reference/backend.hpp>
#include <smelt/model/language_model.hpp>
#include <type_traits>

namespace {

using namespace smelt;

template <auto Shape>
constexpr bool has_hidden(constant<Shape>) {
  return Shape.hidden > 0;
}

/// What a model has besides attention and experts.
struct parts {
  bool routed = true;
  bool compressed = false;
  bool narrow = false;
};

/// A backend whose ops compile for a model that has such parts alone.
template <parts Has>
struct strict : reference<float> {
  template <class Shape, class... Arguments>
  void route(Shape shape, Arguments... arguments) const {
    static_assert(Has.routed || !sizeof(Shape));
    reference::route(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void route_backward(Shape shape, Arguments... arguments) const {
    static_assert(Has.routed || !sizeof(Shape));
    reference::route_backward(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void pool(Shape shape, Arguments... arguments) const {
    static_assert(Has.compressed || !sizeof(Shape));
    reference::pool(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void pool_backward(Shape shape, Arguments... arguments) const {
    static_assert(Has.compressed || !sizeof(Shape));
    reference::pool_backward(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void write_back(Shape shape, Arguments... arguments) const {
    static_assert(Has.compressed || !sizeof(Shape));
    reference::write_back(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void write_back_backward(Shape shape, Arguments... arguments) const {
    static_assert(Has.compressed || !sizeof(Shape));
    reference::write_back_backward(shape, arguments...);
  }
  // Of all layers' products, those into and out of a narrow stream alone have shapes that only a visit knows.
  template <class Shape, class... Arguments>
  void linear(Shape shape, Arguments... arguments) const {
    static_assert(Has.narrow || !std::is_same_v<Shape, linear_shape>);
    reference::linear(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void add_linear(Shape shape, Arguments... arguments) const {
    static_assert(Has.narrow || !std::is_same_v<Shape, linear_shape>);
    reference::add_linear(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void linear_backward_input(Shape shape, Arguments... arguments) const {
    static_assert(Has.narrow || !std::is_same_v<Shape, linear_shape>);
    reference::linear_backward_input(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void linear_backward_weight(Shape shape, Arguments... arguments) const {
    static_assert(Has.narrow || !std::is_same_v<Shape, linear_shape>);
    reference::linear_backward_weight(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void experts(Shape shape, Arguments... arguments) const {
    if constexpr (!std::is_same_v<Shape, experts_shape>) static_assert(has_hidden(Shape()));
    reference::experts(shape, arguments...);
  }
  template <class Shape, class... Arguments>
  void experts_backward(Shape shape, Arguments... arguments) const {
    if constexpr (!std::is_same_v<Shape, experts_shape>) static_assert(has_hidden(Shape()));
    reference::experts_backward(shape, arguments...);
  }
};

struct dense : arch<[] {
  spec s = presets::nano::value;
  s.dense_layers = s.layers;
  s.dense_hidden = 64;
  s.experts = {};
  return s;
}()> {};
struct narrow : arch<[] {
  spec s = presets::nano_smelt::value;
  s.loop.visits = visits(2, {.stream = {1, 2}});
  return s;
}()> {};

}  // namespace

template class smelt::language_model<presets::nano, strict<parts{}>>;
template class smelt::decoder<presets::nano, strict<parts{}>>;
template class smelt::language_model<dense, strict<parts{.routed = false}>>;
template class smelt::decoder<dense, strict<parts{.routed = false}>>;
template class smelt::language_model<presets::nano_latentloop, strict<parts{.compressed = true}>>;
template class smelt::decoder<presets::nano_latentloop, strict<parts{.compressed = true}>>;
template class smelt::language_model<narrow, strict<parts{.narrow = true}>>;
template class smelt::decoder<narrow, strict<parts{.narrow = true}>>;
template class smelt::language_model<dynamic_arch, strict<parts{.compressed = true, .narrow = true}>>;
