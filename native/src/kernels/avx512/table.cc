// SPDX-License-Identifier: Apache-2.0
#include "octavo/kernels.h"

namespace octavo::avx2 {

extern const VectorKernels kVector;

}  // namespace octavo::avx2

namespace octavo::avx512 {

extern const AttentionKernels kAttention;
extern const GemmKernels kGemm;

// Vector operators are those of AVX2: they wait for memory.
extern const KernelTable kTable;
constinit const KernelTable kTable{"avx512_vnni",
                                   kAvx2 | kFma | kF16c | kBmi2 | kAvx512 | kAvx512Vnni, &kGemm,
                                   &kAttention, &avx2::kVector};

}  // namespace octavo::avx512
