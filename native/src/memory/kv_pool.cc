// SPDX-License-Identifier: Apache-2.0
#include "octavo/kv_pool.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace octavo {
namespace {

size_t layer_halves(const KvLayerShape& layer, size_t block_size) {
  return 2 * layer.num_kv_heads * layer.head_dim * block_size;
}

void copy_keys(const uint16_t* src, uint16_t* dst, size_t head_dim, size_t num_tokens) {
  const size_t tile_halves = head_dim * kKeyTile;
  const size_t num_full = num_tokens / kKeyTile;
  std::memcpy(dst, src, num_full * tile_halves * sizeof(uint16_t));
  const size_t tail = num_tokens % kKeyTile;
  for (size_t d = 0; d < head_dim && tail > 0; ++d) {
    const size_t at = num_full * tile_halves + d * kKeyTile;
    std::memcpy(dst + at, src + at, tail * sizeof(uint16_t));
  }
}

}  // namespace

KvPool::KvPool(std::vector<KvLayerShape> layers, size_t num_blocks, size_t block_size)
    : layers_(std::move(layers)), num_blocks_(num_blocks), block_size_(block_size) {
  if (block_size == 0 || block_size % kKeyTile != 0) {
    throw std::invalid_argument("block_size must be a positive multiple of 8, got " +
                                std::to_string(block_size));
  }
  if (num_blocks == 0 || num_blocks > INT32_MAX) {
    throw std::invalid_argument("num_blocks must be in [1, 2147483647], got " +
                                std::to_string(num_blocks));
  }
  for (const KvLayerShape& layer : layers_) {
    layer_offsets_.push_back(block_stride_);
    block_stride_ += layer_halves(layer, block_size);
  }
  if (block_stride_ > SIZE_MAX / 2 / sizeof(uint16_t) / num_blocks) {
    throw std::invalid_argument("num_blocks " + std::to_string(num_blocks) +
                                " exceeds the address space");
  }
  mapping_ = Mapping(num_blocks * block_stride_ * sizeof(uint16_t));
}

size_t KvPool::block_bytes(const std::vector<KvLayerShape>& layers, size_t block_size) {
  size_t halves = 0;
  for (const KvLayerShape& layer : layers) halves += layer_halves(layer, block_size);
  return halves * sizeof(uint16_t);
}

KvView KvPool::view(size_t layer_idx, const int32_t* table) const {
  const KvLayerShape& layer = layers_[layer_idx];
  return KvView{
      .base = reinterpret_cast<uint16_t*>(mapping_.data()) + layer_offsets_[layer_idx],
      .block_stride = block_stride_,
      .table = table,
      .block_size = block_size_,
      .num_kv_heads = layer.num_kv_heads,
      .head_dim = layer.head_dim,
  };
}

void KvPool::copy_block(int32_t src, int32_t dst, size_t num_tokens) {
  if (src == dst) return;
  auto* pool = reinterpret_cast<uint16_t*>(mapping_.data());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const uint16_t* from = pool + static_cast<size_t>(src) * block_stride_ + layer_offsets_[i];
    uint16_t* to = pool + static_cast<size_t>(dst) * block_stride_ + layer_offsets_[i];
    const size_t head_halves = layers_[i].head_dim * block_size_;
    const size_t num_heads = layers_[i].num_kv_heads;
    for (size_t head = 0; head < num_heads; ++head) {
      copy_keys(from + head * head_halves, to + head * head_halves, layers_[i].head_dim,
                num_tokens);
      const size_t values = (num_heads + head) * head_halves;
      std::memcpy(to + values, from + values, num_tokens * layers_[i].head_dim * sizeof(uint16_t));
    }
  }
}

}  // namespace octavo
