// clang-format off: the order matters.
// Every op, for the instruction set of the region that includes this file: see operators.hpp.
#include <smelt/kernels/cpu/ops/simd.inl>
// The ops stand on these three.
#include <smelt/kernels/cpu/ops/gemm.inl>
#include <smelt/kernels/cpu/ops/vector_math.inl>

#include <smelt/kernels/cpu/ops/adamw.inl>
// Both passes of attention, and attention to kept keys, work on panels of queries.
#include <smelt/kernels/cpu/ops/attention_panels.inl>
#include <smelt/kernels/cpu/ops/attention.inl>
#include <smelt/kernels/cpu/ops/attention_backward.inl>
#include <smelt/kernels/cpu/ops/attention_cached.inl>
#include <smelt/kernels/cpu/ops/core_peak.inl>
#include <smelt/kernels/cpu/ops/difference.inl>
#include <smelt/kernels/cpu/ops/embed.inl>
// Both passes of the experts pack the same weights, and gather and spread rows alike.
#include <smelt/kernels/cpu/ops/experts_weights.inl>
#include <smelt/kernels/cpu/ops/experts_rows.inl>
#include <smelt/kernels/cpu/ops/experts.inl>
#include <smelt/kernels/cpu/ops/experts_backward.inl>
#include <smelt/kernels/cpu/ops/linear.inl>
#include <smelt/kernels/cpu/ops/muon.inl>
// The head packs its weights as a projection does.
#include <smelt/kernels/cpu/ops/cross_entropy.inl>
// A norm is a sum of products.
#include <smelt/kernels/cpu/ops/dot.inl>
#include <smelt/kernels/cpu/ops/norm.inl>
#include <smelt/kernels/cpu/ops/rms_norm.inl>
// Both add up gradients of weights as a gain's, and cut their work by latents.
#include <smelt/kernels/cpu/ops/pool.inl>
#include <smelt/kernels/cpu/ops/write_back.inl>
#include <smelt/kernels/cpu/ops/rotary.inl>
#include <smelt/kernels/cpu/ops/route.inl>
// It norms, turns and packs as the ops above do.
#include <smelt/kernels/cpu/ops/attention_input.inl>
