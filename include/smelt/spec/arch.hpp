// How is an architecture named? As a type that derives from arch<spec{...}>; the compiler checks it there.
#pragma once

#include <smelt/spec/rules.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>
#include <type_traits>

namespace smelt {

/// The first rule that a spec breaks, computed once a spec.
template <spec Spec>
inline constexpr violation violation_of = first_violation(Spec);

/// An architecture as a type: `struct tiny : smelt::arch<smelt::spec{...}> {};`. A spec that cannot exist does not
/// compile; the message names the field, the value and the remedy. Its physical quantities are static members.
template <spec Spec>
struct arch
    : private spec_check<violation_of<Spec>.broken, found<violation_of<Spec>.found>, limit<violation_of<Spec>.limit>> {
  using architecture = arch;                                    ///< arch<spec{...}> as seen from the derived type
  static constexpr spec value = Spec;                           ///< the spec itself
  static constexpr int width = Spec.width;                      ///< residual stream H
  static constexpr int depth = Spec.layers;                     ///< physical layers L
  static constexpr loop_span loop = span_of(Spec);              ///< the looped span, resolved
  static constexpr int visits = loop.visits;                    ///< visits r of the looped span; 1 without a loop
  static constexpr int executed_depth = schedule(Spec).size();  ///< executed layers L + (r - 1) m
  static constexpr int experts = Spec.experts.stored;           ///< stored routed experts E
  static constexpr int active_experts = Spec.experts.active;    ///< routed experts a token visits, k
  static constexpr int compression = largest_compression(Spec.loop.visits);  ///< coarsest visit; 1 is full resolution
};

/// A type that derives from arch<spec{...}>. Asked through a member, not by naming arch<T::value>, which would make the
/// compiler hash the whole spec again for every check.
template <class T>
concept Architecture = std::is_same_v<decltype(T::value), const spec> && std::is_base_of_v<typename T::architecture, T>;

/// An architecture that visits a span more than once.
template <class T>
concept Looped = Architecture<T> && (T::visits > 1);

/// An architecture all of whose visits follow the same plan; an unlooped one has a single visit.
template <class T>
concept UniformVisits = Architecture<T> && is_uniform(T::value.loop.visits);

/// An architecture with a visit at lower sequence resolution.
template <class T>
concept Compressed = Architecture<T> && (T::compression > 1);

/// An architecture with at least one layer of routed experts.
template <class T>
concept MixtureOfExperts = Architecture<T> && (T::value.dense_layers < T::value.layers);

/// An architecture without routed experts.
template <class T>
concept Dense = Architecture<T> && !MixtureOfExperts<T>;

/// An architecture with multi-head latent attention.
template <class T>
concept LatentAttention = Architecture<T> && (T::value.attention.latent.kv_rank > 0);

}  // namespace smelt
