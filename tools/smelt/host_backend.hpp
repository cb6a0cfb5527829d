// Which kernels does the program compute with? The CPU backend's, for shapes known at run time, compiled in one file:
// most of what a compiler does here is kernels, and it would do it again in every file that trains or measures a model.
#pragma once

#include <memory>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/kernels/shapes.hpp>

namespace smelt::tool {

using host_kernels = cpu<cpu_default_executor>;

/// One op of host_kernels as an object to be called. Its signature is the op's own; what it calls is compiled in
/// host_backend.cpp.
template <class Op, class Signature>
class host_op;
template <class Op, class Result, class... Arguments>
class host_op<Op, Result (host_kernels::*)(Arguments...)> {
 public:
  explicit host_op(host_kernels& kernels) noexcept : kernels_(&kernels) {}
  Result operator()(Arguments... arguments) const;

 private:
  host_kernels* kernels_;
};

// X(op, shape): every op of Backend, with the kind of shape that it takes.
#define SMELT_HOST_OPS(X)                              \
  X(embed)                                             \
  X(embed_backward)                                    \
  X(rms_norm, <norm_shape>)                            \
  X(rms_norm_backward, <norm_shape>)                   \
  X(linear, <linear_shape>)                            \
  X(add_linear, <linear_shape>)                        \
  X(linear_backward_input, <linear_shape>)             \
  X(linear_backward_weight, <linear_shape>)            \
  X(attention_input, <attention_input_shape>)          \
  X(attention_input_backward, <attention_input_shape>) \
  X(attention, <attention_shape>)                      \
  X(attention_backward, <attention_shape>)             \
  X(attention_cached, <attention_shape>)               \
  X(route, <router_shape>)                             \
  X(route_losses, <router_shape>)                      \
  X(route_backward, <router_shape>)                    \
  X(group_by_expert, <router_shape>)                   \
  X(experts, <experts_shape>)                          \
  X(experts_backward, <experts_shape>)                 \
  X(cross_entropy, <head_shape>)                       \
  X(cross_entropy_backward, <head_shape>)              \
  X(cross_entropy_with_gradient, <head_shape>)         \
  X(pool, <pool_shape>)                                \
  X(pool_backward, <pool_shape>)                       \
  X(write_back, <write_back_shape>)                    \
  X(write_back_backward, <write_back_shape>)           \
  X(difference)                                        \
  X(dot)                                               \
  X(norm)                                              \
  X(adamw)                                             \
  X(adamw_deferred)                                    \
  X(settle)                                            \
  X(muon)

/// The backend of the program's models.
class host_backend {
  std::unique_ptr<host_kernels> kernels_;  // before the ops, which point to it

 public:
  using scalar = host_kernels::scalar;

  /// Throws as cpu does.
  host_backend(int threads, compute_type compute, instruction_set set);

  [[nodiscard]] compute_type compute() const noexcept { return kernels_->compute(); }
  [[nodiscard]] instruction_set instructions() const noexcept { return kernels_->instructions(); }
  [[nodiscard]] int threads() const noexcept { return kernels_->threads(); }
  [[nodiscard]] auto hold_weights() { return kernels_->hold_weights(); }
  [[nodiscard]] double core_peak() const;

#define SMELT_HOST_OP(op, ...) host_op<struct op##_op, decltype(&host_kernels::op __VA_ARGS__)> op{*kernels_};
  SMELT_HOST_OPS(SMELT_HOST_OP)
#undef SMELT_HOST_OP
};

static_assert(Backend<host_backend>);

}  // namespace smelt::tool
