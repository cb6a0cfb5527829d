// Which executor serves when nobody chooses? The pool of threads: it begins and ends a batch of tasks in half a
// microsecond where oneTBB takes three to eight, and a training step has some hundred batches. oneTBB's is for programs
// that share its workers: name tbb_executor, or define SMELT_PREFERS_TBB.
#pragma once

#include <smelt/kernels/cpu/tbb_executor.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>

namespace smelt {

#if defined(SMELT_TBB_EXECUTOR) && defined(SMELT_PREFERS_TBB)
using cpu_default_executor = tbb_executor;
#else
using cpu_default_executor = threads_executor;
#endif

}  // namespace smelt
