// SPDX-License-Identifier: Apache-2.0
#include "octavo/kernels.h"

namespace octavo {
namespace {
#include "kernels/attention_layout-inl.h"
}  // namespace

size_t attention_scratch_floats(const AttentionTile& tile) {
  return scratch_layout(tile.num_tokens * tile.group, tile.kv.head_dim).end;
}

}  // namespace octavo
