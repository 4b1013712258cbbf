// SPDX-License-Identifier: Apache-2.0
// A decoder of two layers with random weights, and batches for it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "octavo/decoder.h"

namespace octavo::testing {

constexpr size_t kVocab = 40;

// Repeatable, and unlike <random>'s distributions the same with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  float uniform() { return static_cast<float>(next()) / 2147483648.0f * 2 - 1; }

 private:
  uint64_t state_;
};

inline DecoderConfig tiny_config() {
  DecoderConfig config;
  config.hidden_dim = 36;  // no multiple of a panel, a unit or a block
  config.vocab_size = kVocab;
  config.context_length = 1024;
  config.ropes.push_back({RopePairing::kInterleaved, {1.0, 0.3, 0.1, 0.03}, 1.0});
  config.ropes.push_back(
      {RopePairing::kHalves, {1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003}, 1.1});
  LayerConfig layer;
  layer.num_heads = 6;
  layer.num_kv_heads = 2;
  layer.head_dim = 16;
  layer.mlp_dim = 50;
  layer.attn_scale = 0.25f;
  config.layers.push_back(layer);
  layer.rope_idx = 1;
  layer.window = 40;
  layer.attn_soft_cap = 10.0f;
  layer.activation = MlpActivation::kGeluTanh;
  layer.has_qk_norm = layer.has_post_norms = layer.has_qkv_bias = true;
  config.layers.push_back(layer);
  return config;
}

inline void load_f32(Decoder& decoder, Random& random, Slot slot, std::optional<size_t> layer,
                     size_t rows, size_t cols) {
  std::vector<float> values(rows * cols);
  for (float& value : values) value = random.uniform() * 0.3f;
  decoder.load_matrix(slot, layer, WeightType::kF32, rows, cols, std::as_bytes(std::span(values)));
}

inline void load_ones(Decoder& decoder, Slot slot, std::optional<size_t> layer, size_t size) {
  const std::vector<float> values(size, 1.0f);
  decoder.load_vector(slot, layer, values);
}

inline void load_all(Decoder& decoder, const DecoderConfig& config) {
  Random random(1);
  const size_t hidden = config.hidden_dim;
  load_f32(decoder, random, Slot::kEmbedding, {}, kVocab, hidden);
  load_f32(decoder, random, Slot::kOutput, {}, kVocab, hidden);
  load_ones(decoder, Slot::kOutputNorm, {}, hidden);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    load_f32(decoder, random, Slot::kQ, i, layer.q_dim(), hidden);
    load_f32(decoder, random, Slot::kK, i, layer.kv_dim(), hidden);
    load_f32(decoder, random, Slot::kV, i, layer.kv_dim(), hidden);
    load_f32(decoder, random, Slot::kAttnOutput, i, hidden, layer.q_dim());
    load_f32(decoder, random, Slot::kGate, i, layer.mlp_dim, hidden);
    load_f32(decoder, random, Slot::kUp, i, layer.mlp_dim, hidden);
    load_f32(decoder, random, Slot::kDown, i, hidden, layer.mlp_dim);
    load_ones(decoder, Slot::kAttnNorm, i, hidden);
    load_ones(decoder, Slot::kMlpNorm, i, hidden);
    if (layer.has_post_norms) load_ones(decoder, Slot::kPostAttnNorm, i, hidden);
    if (layer.has_post_norms) load_ones(decoder, Slot::kPostMlpNorm, i, hidden);
    if (layer.has_qk_norm) load_ones(decoder, Slot::kQNorm, i, layer.head_dim);
    if (layer.has_qk_norm) load_ones(decoder, Slot::kKNorm, i, layer.head_dim);
    if (layer.has_qkv_bias) load_ones(decoder, Slot::kQBias, i, layer.q_dim());
    if (layer.has_qkv_bias) load_ones(decoder, Slot::kKBias, i, layer.kv_dim());
    if (layer.has_qkv_bias) load_ones(decoder, Slot::kVBias, i, layer.kv_dim());
  }
  decoder.finish_loading();
}

inline std::unique_ptr<Decoder> make_decoder(size_t num_threads, size_t block_size,
                                             size_t num_blocks) {
  const DecoderConfig config = tiny_config();
  auto decoder = std::make_unique<Decoder>(config, num_threads, std::nullopt);
  load_all(*decoder, config);
  decoder->create_kv(num_blocks, block_size, 8, 512);
  return decoder;
}

inline std::vector<int32_t> random_ids(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.next() % kVocab);
  return ids;
}

inline void add_work(Batch& batch, RowWork work, const std::vector<int32_t>& ids,
                     const std::vector<int32_t>& blocks) {
  work.num_token_ids = ids.size();
  work.num_tokens = std::max<size_t>(1, ids.size());
  work.num_new_blocks = blocks.size();
  batch.token_ids.insert(batch.token_ids.end(), ids.begin(), ids.end());
  batch.new_blocks.insert(batch.new_blocks.end(), blocks.begin(), blocks.end());
  batch.work.push_back(work);
}

inline std::vector<int32_t> blocks_from(int32_t first, size_t count) {
  std::vector<int32_t> blocks(count);
  for (size_t i = 0; i < count; ++i) blocks[i] = first + static_cast<int32_t>(count - 1 - i);
  return blocks;
}

inline RowOpen open_row(size_t row) {
  RowOpen open;
  open.row = row;
  open.sampling.num_logprobs = 3;
  return open;
}

}  // namespace octavo::testing
