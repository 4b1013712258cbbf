// SPDX-License-Identifier: Apache-2.0
// Built with AVX2 flags, so nothing here may have a name that another object file also has.
#include <immintrin.h>

#include "octavo/kernels.h"
#include "quant/panel_layout.h"

namespace octavo::avx2 {
namespace {

using quant::PanelLayout;

#include "kernels/avx2/simd.h"
#include "kernels/gemm-inl.h"
#include "kernels/quantize-inl.h"

template <WeightType kType>
constexpr GemmKernels::GemmFn gemm = gemm_narrow<Ymm, kType>;

}  // namespace

extern const GemmKernels kGemm;
constinit const GemmKernels kGemm{
    .f32 = gemm<WeightType::kF32>,
    .f16 = gemm<WeightType::kF16>,
    .bf16 = gemm<WeightType::kBF16>,
    .q8_0 = gemm<WeightType::kQ8_0>,
    .q4_0 = gemm<WeightType::kQ4_0>,
    .q4_1 = gemm<WeightType::kQ4_1>,
    .q5_0 = gemm<WeightType::kQ5_0>,
    .q5_1 = gemm<WeightType::kQ5_1>,
    .q4_k = gemm<WeightType::kQ4_K>,
    .q5_k = gemm<WeightType::kQ5_K>,
    .q6_k = gemm<WeightType::kQ6_K>,
    .quantize_a8 = quantize_a8,
    .quantize_a16 = quantize_a16,
};

}  // namespace octavo::avx2
