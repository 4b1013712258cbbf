// SPDX-License-Identifier: Apache-2.0
#include "kernels/scalar/lanes-inl.h"
#include "octavo/kernels.h"

namespace octavo::scalar {
namespace {
#include "kernels/narrow-inl.h"
using Wide = Narrow;
#include "kernels/attention-inl.h"
}  // namespace

extern const AttentionKernels kAttention;
constinit const AttentionKernels kAttention{store_kv, attend, attend_keys, merge};

}  // namespace octavo::scalar
