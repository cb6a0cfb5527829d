// Which executor serves when nobody chooses? oneTBB's where it is there, the pool of threads otherwise.
#pragma once

#include <smelt/kernels/cpu/tbb_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>

namespace smelt {

#if defined(SMELT_TBB_EXECUTOR)
using cpu_default_executor = tbb_executor;
#else
using cpu_default_executor = threads_executor;
#endif

}  // namespace smelt
