#include "host_backend.hpp"

#include <utility>

namespace smelt::tool {

template <class Op, class Result, class... Arguments>
Result host_op<Op, Result (host_kernels::*)(Arguments...)>::operator()(Arguments... arguments) const {
  return Op::call(*kernels_, std::forward<Arguments>(arguments)...);
}

#define SMELT_HOST_OP(op, ...)                                                    \
  struct op##_op {                                                                \
    template <class... Arguments>                                                 \
    static decltype(auto) call(host_kernels& kernels, Arguments&&... arguments) { \
      return kernels.op(std::forward<Arguments>(arguments)...);                   \
    }                                                                             \
  };                                                                              \
  template class host_op<op##_op, decltype(&host_kernels::op __VA_ARGS__)>;
SMELT_HOST_OPS(SMELT_HOST_OP)
#undef SMELT_HOST_OP

host_backend::host_backend(int threads, compute_type compute, instruction_set set)
    : kernels_(std::make_unique<host_kernels>(cpu_default_executor(threads), compute, set)) {}

double host_backend::core_peak() const {
  return kernels_->core_peak();
}

}  // namespace smelt::tool
