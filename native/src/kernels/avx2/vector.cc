// SPDX-License-Identifier: Apache-2.0
#include "kernels/avx2/lanes-inl.h"
#include "octavo/kernels.h"

namespace octavo::avx2 {
namespace {
#include "kernels/vector-inl.h"
}  // namespace

extern const VectorKernels kVector;
constinit const VectorKernels kVector{
    .rms_norm = rms_norm,
    .add = add_to,
    .scale = scale,
    .silu_mul = silu_mul,
    .gelu_tanh_mul = gelu_tanh_mul,
    .rope_interleaved = rope_interleaved,
    .rope_halves = rope_halves,
    .soft_cap = soft_cap,
    .argmax = argmax,
    .max = max_of,
    .sum_exp = sum_exp,
};

}  // namespace octavo::avx2
