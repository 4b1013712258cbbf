// SPDX-License-Identifier: Apache-2.0
// The attention phases of the layer program.
#include <algorithm>

#include "decoder/forward.h"

namespace octavo {
namespace {

constexpr size_t kQueryTokensMax = 32;  // of one tile: keys are converted once for all of them
constexpr size_t kQueryTokensMin = 4;
constexpr size_t kItemsPerThread =
    4;  // items are claimed one by one; this many even out their costs
constexpr size_t kSplitSegments = 2;  // a context shorter than this many segments is never split

// Keys that the queries of a tile read: what orders the tiles, longest first.
size_t cost(const TokenRun& run, const QueryTile& tile) {
  if (tile.is_split) return kSegmentTokens;
  return (run.start + tile.offset + tile.num_tokens) * tile.num_tokens;
}

}  // namespace

size_t attention_scratch_max(const LayerConfig& layer) {
  AttentionTile tile;
  tile.kv.num_kv_heads = layer.num_kv_heads;
  tile.kv.head_dim = layer.head_dim;
  tile.group = layer.num_heads / layer.num_kv_heads;
  tile.num_tokens = kQueryTokensMax;
  return attention_scratch_floats(tile);
}

// Chooses how the queries are cut up. It decides speed only: rows compute the same in any tile, and
// a split row merges its segments just as an unsplit one does.
void Forward::plan_attention() {
  size_t num_kv_heads = SIZE_MAX;
  for (const LayerConfig& layer : config_.layers) {
    num_kv_heads = std::min(num_kv_heads, layer.num_kv_heads);
  }
  const size_t items_wanted = kItemsPerThread * pool_.size();
  const std::vector<TokenRun>& runs = input_->runs;
  const bool may_split = runs.size() * num_kv_heads < items_wanted && runs.size() <= splits_max_;
  size_t tile_tokens = kQueryTokensMax;
  while (tile_tokens > kQueryTokensMin &&
         input_->tokens.size() / tile_tokens * num_kv_heads < items_wanted) {
    tile_tokens /= 2;
  }
  tiles_.clear();
  split_runs_.clear();
  for (size_t i = 0; i < runs.size(); ++i) {
    const size_t num_segments = (runs[i].start + kSegmentTokens) / kSegmentTokens;
    if (may_split && runs[i].num_tokens == 1 && num_segments >= kSplitSegments) {
      for (size_t segment = 0; segment < num_segments; ++segment) {
        tiles_.push_back({i, 0, 1, split_runs_.size(), segment, true});
      }
      split_runs_.push_back(i);
      continue;
    }
    for (size_t offset = 0; offset < runs[i].num_tokens; offset += tile_tokens) {
      tiles_.push_back({.run_idx = i,
                        .offset = offset,
                        .num_tokens = std::min(tile_tokens, runs[i].num_tokens - offset)});
    }
  }
  std::stable_sort(tiles_.begin(), tiles_.end(), [&](const QueryTile& a, const QueryTile& b) {
    return cost(runs[a.run_idx], a) > cost(runs[b.run_idx], b);
  });
}

void Forward::finish_qkv(size_t layer_idx, size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const SlotSet& set = model_.layer(layer_idx);
  const Share tokens = token_share(input_->tokens.size(), thread_idx);
  for (size_t t = tokens.begin; t < tokens.end; ++t) {
    const StepToken& token = input_->tokens[t];
    float* q = q_ + t * q_stride_;
    float* k = k_ + t * kv_stride_;
    float* v = v_ + t * kv_stride_;
    if (layer.has_qkv_bias) {
      kernels_.vector->add(q, set.vector(Slot::kQBias), layer.q_dim());
      kernels_.vector->add(k, set.vector(Slot::kKBias), layer.kv_dim());
      kernels_.vector->add(v, set.vector(Slot::kVBias), layer.kv_dim());
    }
    turn_heads(layer, q, layer.num_heads, set.vector(Slot::kQNorm), token.position);
    turn_heads(layer, k, layer.num_kv_heads, set.vector(Slot::kKNorm), token.position);
    const KvView view = kv_.view(layer_idx, input_->runs[token.run_idx].table);
    kernels_.attention->store_kv(view, token.position, k, v);
  }
}

void Forward::turn_heads(const LayerConfig& layer, float* heads, size_t num_heads,
                         const float* norm, size_t position) noexcept {
  const VectorKernels& vector = *kernels_.vector;
  const RopeTable& rope = ropes_[layer.rope_idx];
  const auto turn =
      rope.pairing() == RopePairing::kInterleaved ? vector.rope_interleaved : vector.rope_halves;
  for (size_t h = 0; h < num_heads; ++h) {
    float* head = heads + h * layer.head_dim;
    if (norm != nullptr) vector.rms_norm(head, norm, layer.head_dim, config_.norm_eps, head);
    turn(head, rope.cos(position), rope.sin(position), rope.num_pairs());
  }
}

void Forward::attend(size_t layer_idx, size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const ActivationKinds kinds = kinds_[layer_idx].attn_output;
  const size_t num_items = tiles_.size() * layer.num_kv_heads;
  for (;;) {
    const size_t item = claims_[layer_idx].fetch_add(1, std::memory_order_relaxed);
    if (item >= num_items) break;
    attend_tile(layer_idx, tiles_[item / layer.num_kv_heads], item % layer.num_kv_heads,
                thread_idx);
  }
  if (!split_runs_.empty()) {
    pool_.barrier(thread_idx);
    merge_splits(layer_idx, thread_idx);
  }
  const ActivationKinds rest = {.a8 = kinds.a8 && !heads_align(layer), .a16 = kinds.a16};
  if (rest.a8 || rest.a16) {
    pool_.barrier(thread_idx);
    quantize_rows(heads_, layer.q_dim(), rest, thread_idx);
  }
}

void Forward::attend_tile(size_t layer_idx, const QueryTile& query, size_t kv_head,
                          size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const TokenRun& run = input_->runs[query.run_idx];
  const size_t token = run.first_token + query.offset;
  const size_t group = layer.num_heads / layer.num_kv_heads;
  const size_t col = kv_head * group * layer.head_dim;
  const AttentionTile tile{
      .kv = kv_.view(layer_idx, run.table),
      .kv_head = kv_head,
      .group = group,
      .first_position = run.start + query.offset,
      .num_tokens = query.num_tokens,
      .window = layer.window,
      .q = q_ + token * q_stride_ + col,
      .q_token_stride = q_stride_,
      .scale = layer.attn_scale,
      .soft_cap = layer.attn_soft_cap,
  };
  float* scratch = attention_scratch_[thread_idx];
  if (query.is_split) {
    kernels_.attention->attend_segment(
        tile, query.segment, split_acc(layer, query.split_idx, kv_head, query.segment),
        split_max_sum(layer, query.split_idx, kv_head, query.segment), scratch);
    return;
  }
  kernels_.attention->attend(tile, heads_.row(token, layer.q_dim()) + col, layer.q_dim(), scratch);
  for (size_t i = 0; i < query.num_tokens; ++i) {
    finish_heads(layer_idx, token + i, col, group * layer.head_dim);
  }
}

// Splits of a layer: [split][kv_head][segment][head of the group][head_dim].
float* Forward::split_acc(const LayerConfig& layer, size_t split_idx, size_t kv_head,
                          size_t segment) {
  const size_t group = layer.num_heads / layer.num_kv_heads;
  const size_t cell = (split_idx * layer.num_kv_heads + kv_head) * segments_max_ + segment;
  return split_acc_ + cell * group * layer.head_dim;
}

float* Forward::split_max_sum(const LayerConfig& layer, size_t split_idx, size_t kv_head,
                              size_t segment) {
  const size_t group = layer.num_heads / layer.num_kv_heads;
  const size_t cell = (split_idx * layer.num_kv_heads + kv_head) * segments_max_ + segment;
  return split_max_sum_ + cell * group * 2;
}

void Forward::merge_splits(size_t layer_idx, size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const size_t group = layer.num_heads / layer.num_kv_heads;
  const Share items = pool_.share(split_runs_.size() * layer.num_kv_heads, thread_idx);
  for (size_t item = items.begin; item < items.end; ++item) {
    const size_t split_idx = item / layer.num_kv_heads;
    const size_t kv_head = item % layer.num_kv_heads;
    const TokenRun& run = input_->runs[split_runs_[split_idx]];
    const size_t num_segments = (run.start + kSegmentTokens) / kSegmentTokens;
    const size_t col = kv_head * group * layer.head_dim;
    for (size_t h = 0; h < group; ++h) {
      kernels_.attention->merge(
          split_acc(layer, split_idx, kv_head, 0) + h * layer.head_dim, group * layer.head_dim,
          split_max_sum(layer, split_idx, kv_head, 0) + h * 2, group * 2, num_segments,
          layer.head_dim, heads_.row(run.first_token, layer.q_dim()) + col + h * layer.head_dim);
    }
    finish_heads(layer_idx, run.first_token, col, group * layer.head_dim);
  }
}

// The heads of one KV head end on a block boundary in every common model; then whoever made them
// quantises them at once.
bool Forward::heads_align(const LayerConfig& layer) {
  return layer.num_heads / layer.num_kv_heads * layer.head_dim % 32 == 0;
}

void Forward::finish_heads(size_t layer_idx, size_t token, size_t col_begin,
                           size_t num_cols) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  if (!kinds_[layer_idx].attn_output.a8 || !heads_align(layer)) return;
  const float* x = heads_.row(token, layer.q_dim()) + col_begin;
  heads_.quantize_a8_columns(*kernels_.gemm, token, layer.q_dim(), col_begin, num_cols, x);
}

}  // namespace octavo
