// SPDX-License-Identifier: Apache-2.0
// Built with AVX-512 flags, so nothing here may have a name that another object file also has.
#include <immintrin.h>

#include "octavo/kernels.h"
#include "quant/panel_layout.h"

namespace octavo::avx512 {
namespace {

using quant::PanelLayout;

#include "kernels/avx2/simd.h"
#include "kernels/avx512/simd.h"
#include "kernels/gemm-inl.h"
#include "kernels/quantize-inl.h"

// Thirty-two registers hold two panels by eight tokens (4 codes, 8 sums, 8 accumulators,
// temporaries), which spreads the unpacking of codes over twice as many tokens as four would. One
// token takes four panels at once. An odd last panel goes by the AVX2 vocabulary: the same bits.
template <WeightType kType>
void gemm(const std::byte* panels, size_t num_panels, size_t cols, const Activations& x,
          size_t token_begin, size_t token_end, float* out, size_t out_stride) noexcept {
  constexpr bool kPlain = quant::code_bits(kType) == 0 && kType != WeightType::kQ8_0;
  const Job job{quant::panel_layout(kType, cols), x, token_begin, out, out_stride};
  const std::byte* panel = panels + (kPlain ? job.at.values : 0);
  size_t idx = 0;
  if (token_end - token_begin == 1) {
    for (; idx + 4 <= num_panels; idx += 4, panel += 4 * job.at.bytes) {
      run_tile<Zmm, kType, 2, 1>(job, panel, idx, token_begin);
    }
  }
  for (; idx + 2 <= num_panels; idx += 2, panel += 2 * job.at.bytes) {
    run_tokens<Zmm, kType, 1, 8>(job, panel, idx, token_end);
  }
  if (idx < num_panels) run_tokens<Ymm, kType, 1>(job, panel, idx, token_end);
}

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

}  // namespace octavo::avx512
