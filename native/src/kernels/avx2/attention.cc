// SPDX-License-Identifier: Apache-2.0
#include "kernels/avx2/lanes-inl.h"
#include "octavo/kernels.h"

namespace octavo::avx2 {
namespace {
#include "kernels/narrow-inl.h"
using Wide = Narrow;
#include "kernels/attention-inl.h"
}  // namespace

extern const AttentionKernels kAttention;
constinit const AttentionKernels kAttention{store_kv, attend, attend_keys, merge};

}  // namespace octavo::avx2
