// SPDX-License-Identifier: Apache-2.0
#include "octavo/kernels.h"

namespace octavo::scalar {

extern const GemmKernels kGemm;
extern const AttentionKernels kAttention;
extern const VectorKernels kVector;

extern const KernelTable kTable;
constinit const KernelTable kTable{"scalar", 0, &kGemm, &kAttention, &kVector};

}  // namespace octavo::scalar
