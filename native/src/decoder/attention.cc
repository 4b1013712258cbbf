// SPDX-License-Identifier: Apache-2.0
// The attention phases of the layer program.
#include <algorithm>

#include "decoder/forward.h"

namespace octavo {
size_t attention_scratch_max(const LayerConfig& layer) {
  AttentionTile tile;
  tile.kv.num_kv_heads = layer.num_kv_heads;
  tile.kv.head_dim = layer.head_dim;
  tile.group = layer.num_heads / layer.num_kv_heads;
  tile.num_tokens = AttentionPlan::kQueryTokensMax;
  return attention_scratch_floats(tile);
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
  if (!plan_.shared().empty()) {
    attend_tiles(layer_idx, plan_.shared(), shared_claims_[layer_idx], thread_idx);
    pool_.barrier(thread_idx);
  }
  attend_tiles(layer_idx, plan_.tiles(), claims_[layer_idx], thread_idx);
  if (!plan_.split_runs().empty()) {
    pool_.barrier(thread_idx);
    merge_splits(layer_idx, thread_idx);
  }
  const ActivationKinds rest = {.a8 = kinds.a8 && !heads_align(layer), .a16 = kinds.a16};
  if (rest.a8 || rest.a16) {
    pool_.barrier(thread_idx);
    quantize_rows(heads_, layer.q_dim(), rest, thread_idx);
  }
}

void Forward::attend_tiles(size_t layer_idx, std::span<const QueryTile> tiles,
                           std::atomic<size_t>& claims, size_t thread_idx) noexcept {
  const size_t num_kv_heads = config_.layers[layer_idx].num_kv_heads;
  const size_t num_items = tiles.size() * num_kv_heads;
  for (;;) {
    const size_t item = claims.fetch_add(1, std::memory_order_relaxed);
    if (item >= num_items) break;
    const QueryTile& tile = tiles[item / num_kv_heads];
    const size_t kv_head = item % num_kv_heads;
    switch (tile.kind) {
      case QueryTile::Kind::kWhole:
        attend_whole(layer_idx, tile, kv_head, thread_idx);
        break;
      case QueryTile::Kind::kSegment:
        attend_own_keys(layer_idx, tile, kv_head, thread_idx);
        break;
      case QueryTile::Kind::kRest:
        attend_own_keys(layer_idx, tile, kv_head, thread_idx);
        merge_cells(layer_idx, tile.run_idx, kv_head);
        break;
      case QueryTile::Kind::kShared:
        attend_shared(layer_idx, tile, kv_head, thread_idx);
        break;
    }
  }
}

AttentionTile Forward::kernel_tile(size_t layer_idx, const QueryTile& query, size_t kv_head) const {
  const LayerConfig& layer = config_.layers[layer_idx];
  const TokenRun& run = input_->runs[query.run_idx];
  const size_t group = layer.num_heads / layer.num_kv_heads;
  return {
      .kv = kv_.view(layer_idx, run.table),
      .kv_head = kv_head,
      .group = group,
      .first_position = run.start + query.offset,
      .num_tokens = query.num_tokens,
      .window = layer.window,
      .q = q_ + (run.first_token + query.offset) * q_stride_ + kv_head * group * layer.head_dim,
      .q_token_stride = q_stride_,
      .scale = layer.attn_scale,
      .soft_cap = layer.attn_soft_cap,
  };
}

void Forward::attend_whole(size_t layer_idx, const QueryTile& query, size_t kv_head,
                           size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const AttentionTile tile = kernel_tile(layer_idx, query, kv_head);
  const size_t token = input_->runs[query.run_idx].first_token + query.offset;
  const size_t num_cols = tile.group * layer.head_dim;
  const size_t col = kv_head * num_cols;
  kernels_.attention->attend(tile, heads_.row(token, layer.q_dim()) + col, layer.q_dim(),
                             attention_scratch_[thread_idx]);
  for (size_t i = 0; i < query.num_tokens; ++i) finish_heads(layer_idx, token + i, col, num_cols);
}

// Segment by segment, each into its cell.
void Forward::attend_own_keys(size_t layer_idx, const QueryTile& query, size_t kv_head,
                              size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const AttentionTile tile = kernel_tile(layer_idx, query, kv_head);
  for (size_t begin = query.keys.begin; begin < query.keys.end;) {
    const size_t segment = begin / kSegmentTokens;
    const size_t end = std::min((segment + 1) * kSegmentTokens, query.keys.end);
    const Cell cell = cell_of(layer, query.run_idx, segment, kv_head);
    kernels_.attention->attend_keys(tile, {begin, end}, cell.acc, cell.max_sum,
                                    attention_scratch_[thread_idx]);
    begin = end;
  }
}

// The kernel wants the state of all rows side by side; cells of different runs are far apart.
void Forward::attend_shared(size_t layer_idx, const QueryTile& query, size_t kv_head,
                            size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const std::span<const size_t> runs = plan_.members().subspan(query.offset, query.num_tokens);
  const size_t group = layer.num_heads / layer.num_kv_heads;
  const size_t num_cols = group * layer.head_dim;
  QueryToken tokens[AttentionPlan::kQueryTokensMax];
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < runs.size(); ++i) {
    const TokenRun& run = input_->runs[runs[i]];
    tokens[i] = {q_ + run.first_token * q_stride_ + kv_head * num_cols, run.start};
    least = std::min(least, run.start);
  }
  QueryTile first = query;
  first.offset = 0;
  AttentionTile tile = kernel_tile(layer_idx, first, kv_head);
  tile.tokens = tokens;
  tile.first_position = least;
  float* const acc = shared_acc_[thread_idx];
  float* const max_sum = shared_max_sum_[thread_idx];
  kernels_.attention->attend_keys(tile, query.keys, acc, max_sum, attention_scratch_[thread_idx]);
  const size_t segment = query.keys.begin / kSegmentTokens;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Cell cell = cell_of(layer, runs[i], segment, kv_head);
    std::copy_n(acc + i * num_cols, num_cols, cell.acc);
    std::copy_n(max_sum + i * group * 2, group * 2, cell.max_sum);
  }
}

// Cells of a layer: [cell][head][head_dim] and [cell][head][2].
Forward::Cell Forward::cell_of(const LayerConfig& layer, size_t run_idx, size_t segment,
                               size_t kv_head) const {
  const size_t group = layer.num_heads / layer.num_kv_heads;
  const size_t head = plan_.cell(run_idx, segment) * layer.num_heads + kv_head * group;
  return {cell_acc_ + head * layer.head_dim, cell_max_sum_ + head * 2};
}

void Forward::merge_cells(size_t layer_idx, size_t run_idx, size_t kv_head) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const size_t group = layer.num_heads / layer.num_kv_heads;
  const TokenRun& run = input_->runs[run_idx];
  const size_t col = kv_head * group * layer.head_dim;
  const Cell first = cell_of(layer, run_idx, 0, kv_head);
  for (size_t h = 0; h < group; ++h) {
    kernels_.attention->merge(
        first.acc + h * layer.head_dim, layer.q_dim(), first.max_sum + h * 2, layer.num_heads * 2,
        num_segments(run), layer.head_dim,
        heads_.row(run.first_token, layer.q_dim()) + col + h * layer.head_dim);
  }
  finish_heads(layer_idx, run.first_token, col, group * layer.head_dim);
}

void Forward::merge_splits(size_t layer_idx, size_t thread_idx) noexcept {
  const size_t num_kv_heads = config_.layers[layer_idx].num_kv_heads;
  const Share items = pool_.share(plan_.split_runs().size() * num_kv_heads, thread_idx);
  for (size_t item = items.begin; item < items.end; ++item) {
    merge_cells(layer_idx, plan_.split_runs()[item / num_kv_heads], item % num_kv_heads);
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
