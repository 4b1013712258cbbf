// SPDX-License-Identifier: Apache-2.0
// KV memory: fixed-size blocks of token slots, all layers of a block side by side.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/kernels.h"
#include "octavo/memory.h"

namespace octavo {

struct KvLayerShape {
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
};

// One mapping of num_blocks blocks. A block is [layer] of the layout in kernels.h, so memory is
// committed by the blocks in use and not by the layers: the first write to a block touches its
// pages alone.
class KvPool {
 public:
  // Throws std::invalid_argument for a bad size, std::bad_alloc when the addresses cannot be had.
  KvPool(std::vector<KvLayerShape> layers, size_t num_blocks, size_t block_size);

  static size_t block_bytes(const std::vector<KvLayerShape>& layers, size_t block_size);

  size_t num_blocks() const { return num_blocks_; }
  size_t block_size() const { return block_size_; }
  size_t bytes() const { return mapping_.size(); }

  // What kernels need to reach one layer of the sequence with block table `table`.
  KvView view(size_t layer_idx, const int32_t* table) const;

  // All layers of one block, block_bytes() of them, side by side.
  std::byte* block(int32_t id) const {
    return mapping_.data() + static_cast<size_t>(id) * block_bytes();
  }
  size_t block_bytes() const { return block_stride_ * sizeof(uint16_t); }

  // Copies the first num_tokens slots, in all layers. Ids and the count are within bounds.
  void copy_block(int32_t src, int32_t dst, size_t num_tokens);

 private:
  std::vector<KvLayerShape> layers_;
  std::vector<size_t> layer_offsets_;  // halves from a block's start
  size_t num_blocks_;
  size_t block_size_;
  size_t block_stride_ = 0;  // halves
  Mapping mapping_;
};

}  // namespace octavo
