// How often is a weight packed? Once while nobody changes it: a store of packed copies, kept as long as somebody holds
// the weights still.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <smelt/kernels/cpu/arena.hpp>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace smelt::cpu_ops {

class weight_panels;

/// While one of these lives, weights do not change and their packed copies are kept.
class weights_hold {
 public:
  explicit weights_hold(weight_panels& panels) noexcept : panels_(&panels) {}
  weights_hold(weights_hold&& other) noexcept : panels_(std::exchange(other.panels_, nullptr)) {}
  weights_hold(const weights_hold&) = delete;
  weights_hold& operator=(weights_hold&&) = delete;
  ~weights_hold();

 private:
  weight_panels* panels_;
};

/// Which form of a weight is packed: for products with the weight or with its transpose, of it alone or together with
/// others that always stand under it.
enum class weight_form : std::uint8_t { as_stored, transposed, stacked, stacked_transposed };

/// The rows (the depth of a product) and columns of a packed right operand.
struct panel_extents {
  std::int64_t depth = 0;
  std::int64_t cols = 0;
  friend constexpr auto operator<=>(const panel_extents&, const panel_extents&) = default;
};

/// Packed copies of the parts of a weight, those of its experts say: where they stand one after the other, and for each
/// whether it is there.
template <class Element>
struct weight_parts {
  Element* data = nullptr;
  bool* packed = nullptr;
};

/// Packed copies of weights, by their address, form and extents: one weight may be used as a whole and in part. Nothing
/// is kept outside a hold.
class weight_panels {
 public:
  [[nodiscard]] weights_hold hold() {
    if (holds_ == 0) memory_.reset();
    ++holds_;
    return weights_hold(*this);
  }

  [[nodiscard]] bool held() const noexcept { return holds_ > 0; }

  /// The kept copy of the weight, or memory for `size` elements that pack(elements) has filled. What is packed depends
  /// on the weight, the form, the extents and the type of the element alone.
  template <class Element, class Pack>
  [[nodiscard]] const Element* get(const void* weight, weight_form form, const panel_extents& extents,
                                   std::int64_t size, Pack pack) {
    const key name{weight, form, sizeof(Element), extents};
    const auto place = std::ranges::lower_bound(copies_, name, {}, &copy::name);
    if (place != copies_.end() && place->name == name) return static_cast<const Element*>(place->data);
    const std::span<Element> made = memory_.take<Element>(size);
    pack(made.data());
    copies_.insert(place, {name, made.data(), nullptr});
    return made.data();
  }

  /// The kept copies of a weight's `count` parts of the same extents and `size` elements each, none of which is there
  /// at first: who packs one says so. What is packed depends on what it does for get().
  template <class Element>
  [[nodiscard]] weight_parts<Element> parts(const void* weight, weight_form form, const panel_extents& extents,
                                            std::int64_t count, std::int64_t size) {
    const key name{weight, form, sizeof(Element), extents};
    const auto place = std::ranges::lower_bound(copies_, name, {}, &copy::name);
    if (place != copies_.end() && place->name == name) return {static_cast<Element*>(place->data), place->packed};
    const weight_parts<Element> made{memory_.take<Element>(count * size).data(), memory_.take<bool>(count).data()};
    std::fill_n(made.packed, count, false);
    copies_.insert(place, {name, made.data, made.packed});
    return made;
  }

 private:
  friend class weights_hold;
  using key = std::tuple<const void*, weight_form, std::size_t, panel_extents>;
  struct copy {
    key name;
    void* data;
    bool* packed;  // of parts
  };

  void release() noexcept {
    if (--holds_ == 0) copies_.clear();
  }

  std::vector<copy> copies_;  // sorted by name; keeps its capacity
  arena memory_;
  int holds_ = 0;
};

inline weights_hold::~weights_hold() {
  if (panels_ != nullptr) panels_->release();
}

}  // namespace smelt::cpu_ops
