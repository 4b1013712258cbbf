// SPDX-License-Identifier: Apache-2.0
#include "octavo/kernels.h"

namespace octavo::avx2 {

extern const GemmKernels kGemm;
extern const AttentionKernels kAttention;
extern const VectorKernels kVector;

extern const KernelTable kTable;
constinit const KernelTable kTable{"avx2", kAvx2 | kFma | kF16c | kBmi2, &kGemm, &kAttention,
                                   &kVector};

}  // namespace octavo::avx2
