// SPDX-License-Identifier: Apache-2.0
#include "octavo/kernels.h"

namespace octavo::avx2 {

extern const AttentionKernels kAttention;
extern const VectorKernels kVector;

}  // namespace octavo::avx2

namespace octavo::avxvnni {

extern const GemmKernels kGemm;

// Only the matrix product has its own code here; attention and vector operators are those of AVX2.
extern const KernelTable kTable;
constinit const KernelTable kTable{"avx_vnni", kAvx2 | kFma | kF16c | kBmi2 | kAvxVnni, &kGemm,
                                   &avx2::kAttention, &avx2::kVector};

}  // namespace octavo::avxvnni
