// SPDX-License-Identifier: Apache-2.0
// Paged attention over eight lanes. Included inside octavo::<isa>::{anonymous} after that folder's
// lanes-inl.h, which also says how many tiles of eight the two long loops may take at once
// (`Wide`).
//
// A row is one head of one token. Per span of 32 keys it computes, always in this order:
//   scores   lane = key: an fma chain over d = 0 .. head_dim - 1, times scale * log2(e)
//            [or soft_cap * log2(e) * tanh(that chain times scale / soft_cap)]
//   softmax  max' = max(max, scores); p = 2^(score - max'); c = 2^(max - max')
//            sum = fma(sum, c, tree of p); keys the row does not see have p = 0
//   values   lane = dim: acc *= c, then acc = fma(p, v, acc) for the keys it sees, in order
// A span of which it sees nothing is left out. How many rows, tiles
// or dims advance together, and whether halves are converted on the
// fly or once per tile, changes none of that. Maxima are in base 2.
#pragma once

#include "kernels/attention_layout-inl.h"
#include "kernels/attention_loops-inl.h"
#include "kernels/math-inl.h"

constexpr float kMinusInfinity = -__builtin_huge_valf();

struct Call {
  const AttentionTile* tile;
  ScratchLayout at;
  float* scratch;
  float* acc;      // [row][head_dim]
  float* max_sum;  // [row][2]
  size_t rows;
  size_t head_dim;
};

inline size_t first_seen(const AttentionTile& tile, size_t position) {
  const bool all = tile.window == 0 || position + 1 <= tile.window;
  return all ? 0 : position + 1 - tile.window;
}

// Past the last position that any token of the tile sees.
inline size_t seen_end(const AttentionTile& tile) {
  return tile.first_position + (tile.tokens != nullptr ? 1 : tile.num_tokens);
}

inline Range seen_in_span(const AttentionTile& tile, size_t token, size_t span_begin) {
  const size_t position =
      tile.tokens != nullptr ? tile.tokens[token].position : tile.first_position + token;
  const size_t begin = greater(first_seen(tile, position), span_begin);
  const size_t end = smaller(position + 1, span_begin + kSpanTokens);
  if (begin >= end) return {0, 0};
  return {begin - span_begin, end - span_begin};
}

// ---- softmax ----

// Dot products to base-2 scores. `cap` is soft_cap * log2(e), or 0.
inline V finish_score(V dot, float factor, float cap) {
  const V x = mul(dot, set1(factor));
  return cap == 0.0f ? x : mul(tanh(x), set1(cap));
}

// Turns one row's 32 dot products into weights, updates (max, sum), returns the factor for acc.
inline float soften(const AttentionTile& tile, Range seen, float* weights, float* max_sum) {
  const bool capped = tile.soft_cap != 0.0f;
  const float factor = capped ? tile.scale / tile.soft_cap : tile.scale * kLog2e;
  const float cap = capped ? tile.soft_cap * kLog2e : 0.0f;
  V s[kTilesPerSpan];
  for (size_t t = 0; t < kTilesPerSpan; ++t) {
    s[t] = finish_score(load(weights + t * kKeyTile), factor, cap);
  }
  if (seen.begin != 0 || seen.end != kSpanTokens) {
    const V begin = set1(static_cast<float>(seen.begin));
    const V end = set1(static_cast<float>(seen.end));
    const V hidden = set1(kMinusInfinity);
    for (size_t t = 0; t < kTilesPerSpan; ++t) {
      const V key = add(iota(), set1(static_cast<float>(t * kKeyTile)));
      s[t] = select(less(key, begin), hidden, select(less(key, end), s[t], hidden));
    }
  }
  const float before = max_sum[0];
  const V widest = max(max(s[0], s[1]), max(s[2], s[3]));
  const float after = larger(before, max_lanes(widest));
  for (size_t t = 0; t < kTilesPerSpan; ++t) {
    s[t] = exp2_flushed(sub(s[t], set1(after)));
    store(weights + t * kKeyTile, s[t]);
  }
  // 2^0 is exactly 1, so the shortcut is only a shortcut.
  const float rescale = before == after ? 1.0f : first_lane(exp2_flushed(set1(before - after)));
  const float sum = sum_lanes(add(add(s[0], s[1]), add(s[2], s[3])));
  max_sum[0] = after;
  max_sum[1] = __builtin_fmaf(max_sum[1], rescale, sum);
  return rescale;
}

// ---- spans ----

// Finds the tiles of a span that some token of the call sees; no other table entry is read.
SpanTiles<uint16_t> locate(const AttentionTile& tile, size_t span_begin) {
  const KvView& kv = tile.kv;
  const size_t begin = greater(first_seen(tile, tile.first_position), span_begin);
  const size_t end = smaller(seen_end(tile), span_begin + kSpanTokens);
  SpanTiles<uint16_t> span;
  span.tiles.begin = (begin - span_begin) / kKeyTile;
  span.tiles.end = (end - span_begin + kKeyTile - 1) / kKeyTile;
  for (size_t t = span.tiles.begin; t < span.tiles.end; ++t) {
    const size_t position = span_begin + t * kKeyTile;
    const size_t slot = position % kv.block_size;
    const size_t block = static_cast<size_t>(kv.table[position / kv.block_size]);
    // Keys of a whole tile take as many halves as values of 8 slots, so the slot addresses both.
    const uint16_t* keys =
        kv.base + block * kv.block_stride + (tile.kv_head * kv.block_size + slot) * kv.head_dim;
    span.keys[t] = keys;
    span.values[t] = keys + kv.num_kv_heads * kv.block_size * kv.head_dim;
  }
  return span;
}

SpanTiles<float> convert(const SpanTiles<uint16_t>& from, size_t head_dim, float* keys,
                         float* values) {
  const size_t size = kKeyTile * head_dim;
  SpanTiles<float> to;
  to.tiles = from.tiles;
  for (size_t t = from.tiles.begin; t < from.tiles.end; ++t) {
    for (size_t i = 0; i < size; i += kLanes) {
      store(keys + t * size + i, load(from.keys[t] + i));
      store(values + t * size + i, load(from.values[t] + i));
    }
    to.keys[t] = keys + t * size;
    to.values[t] = values + t * size;
  }
  return to;
}

// Folds one span into rows [begin, end) of one row tile.
template <class T>
void fold_row_tile(const Call& call, const SpanTiles<T>& span, size_t span_begin, size_t row_tile,
                   Range rows) {
  const AttentionTile& tile = *call.tile;
  const size_t first = row_tile * call.at.row_tile;
  const size_t count = smaller(call.rows - first, call.at.row_tile);
  float* const weights = call.scratch + call.at.weights + first * kSpanTokens;
  score(count, call.scratch + call.at.q + first * call.head_dim, span, call.head_dim, weights);
  float rescale[kDirectRows];
  for (size_t row = greater(first, rows.begin); row < smaller(first + count, rows.end);) {
    // Neighbours that see the same keys advance together.
    const Range seen = seen_in_span(tile, row / tile.group, span_begin);
    if (seen.begin == seen.end) {  // possible only between tokens of several sequences
      ++row;
      continue;
    }
    size_t end = row;
    for (; end < smaller(first + count, rows.end); ++end) {
      const Range next = seen_in_span(tile, end / tile.group, span_begin);
      if (next.begin != seen.begin || next.end != seen.end) break;
      rescale[end - row] =
          soften(tile, seen, weights + (end - first) * kSpanTokens, call.max_sum + 2 * end);
    }
    accumulate(end - row, span, seen, call.head_dim, weights + (row - first) * kSpanTokens, rescale,
               call.acc + row * call.head_dim);
    row = end;
  }
}

// Tokens that see some of the span: not wholly before it, nor past it by a window or more.
inline Range tokens_of_span(const AttentionTile& tile, size_t span_begin) {
  if (tile.tokens != nullptr) return {0, tile.num_tokens};  // in no order: each row is asked
  const size_t first = tile.first_position;
  const size_t last_position = span_begin + kSpanTokens - 1 + tile.window;
  return {span_begin > first ? span_begin - first : 0,
          tile.window == 0 ? tile.num_tokens : smaller(tile.num_tokens, last_position - first)};
}

template <class T>
void fold_rows(const Call& call, const SpanTiles<T>& span, size_t span_begin) {
  const AttentionTile& tile = *call.tile;
  const Range tokens = tokens_of_span(tile, span_begin);
  const Range rows{tokens.begin * tile.group, tokens.end * tile.group};
  for (size_t row_tile = rows.begin / call.at.row_tile; row_tile * call.at.row_tile < rows.end;
       ++row_tile) {
    fold_row_tile(call, span, span_begin, row_tile, rows);
  }
}

void begin_segment(const Call& call) {
  for (size_t row = 0; row < call.rows; ++row) {
    call.max_sum[2 * row] = kMinusInfinity;
    call.max_sum[2 * row + 1] = 0.0f;
  }
  for (size_t i = 0; i < call.rows * call.head_dim; i += kLanes) store(call.acc + i, set1(0.0f));
}

void fold_keys(const Call& call, KeyRange keys) {
  const AttentionTile& tile = *call.tile;
  if (keys.begin % kSegmentTokens == 0) begin_segment(call);
  const size_t seen = first_seen(tile, tile.first_position) / kSpanTokens * kSpanTokens;
  const size_t begin = greater(keys.begin, seen);
  const size_t end = smaller(keys.end, seen_end(tile));
  for (size_t span_begin = begin; span_begin < end; span_begin += kSpanTokens) {
    const SpanTiles<uint16_t> span = locate(tile, span_begin);
    if (call.rows <= kDirectRows) {
      fold_rows(call, span, span_begin);
      continue;
    }
    fold_rows(
        call,
        convert(span, call.head_dim, call.scratch + call.at.keys, call.scratch + call.at.values),
        span_begin);
  }
}

// ---- merging ----

// Merges a segment's (acc, max, sum) into (out, total). A sum of 0 says that the row saw none of
// it; any other sum is at least 1 (the greatest key weighs 1) or NaN.
inline void merge_segment(const float* acc, const float* max_sum, size_t head_dim, float* out,
                          float* total) {
  if (max_sum[1] == 0.0f) return;
  if (total[1] == 0.0f) {
    total[0] = max_sum[0];
    total[1] = max_sum[1];
    for (size_t d = 0; d < head_dim; d += kLanes) store(out + d, load(acc + d));
    return;
  }
  const float after = larger(total[0], max_sum[0]);
  const float old_factor = first_lane(exp2_flushed(set1(total[0] - after)));
  const float new_factor = first_lane(exp2_flushed(set1(max_sum[0] - after)));
  total[0] = after;
  total[1] = __builtin_fmaf(max_sum[1], new_factor, total[1] * old_factor);
  for (size_t d = 0; d < head_dim; d += kLanes) {
    store(out + d, fma(load(acc + d), set1(new_factor), mul(load(out + d), set1(old_factor))));
  }
}

inline void normalise(const float* total, size_t head_dim, float* out) {
  const float factor = 1.0f / total[1];
  for (size_t d = 0; d < head_dim; d += kLanes) store(out + d, mul(load(out + d), set1(factor)));
}

// ---- the table's functions ----

// Row tiles of q as [head_dim][rows of the tile]: one address feeds every broadcast of a step of d.
Call prepare(const AttentionTile& tile, float* scratch) {
  Call call;
  call.tile = &tile;
  call.rows = tile.num_tokens * tile.group;
  call.head_dim = tile.kv.head_dim;
  call.at = scratch_layout(call.rows, call.head_dim);
  call.scratch = scratch;
  call.acc = scratch + call.at.acc;
  call.max_sum = scratch + call.at.segment;
  float* q = scratch + call.at.q;
  for (size_t first = 0; first < call.rows; first += call.at.row_tile) {
    const size_t count = smaller(call.rows - first, call.at.row_tile);
    for (size_t r = 0; r < count; ++r) {
      const size_t token = (first + r) / tile.group;
      const size_t head = (first + r) % tile.group;
      const float* of_token =
          tile.tokens != nullptr ? tile.tokens[token].q : tile.q + token * tile.q_token_stride;
      const float* from = of_token + head * call.head_dim;
      for (size_t d = 0; d < call.head_dim; ++d) q[d * count + r] = from[d];
    }
    q += count * call.head_dim;
  }
  return call;
}

void store_kv(const KvView& kv, size_t position, const float* k, const float* v) noexcept {
  const size_t slot = position % kv.block_size;
  const size_t lane = slot % kKeyTile;
  uint16_t* const block =
      kv.base + static_cast<size_t>(kv.table[position / kv.block_size]) * kv.block_stride;
  const size_t head_size = kv.block_size * kv.head_dim;
  for (size_t head = 0; head < kv.num_kv_heads; ++head) {
    uint16_t* const keys = block + head * head_size + (slot - lane) * kv.head_dim + lane;
    uint16_t* const values = block + (kv.num_kv_heads + head) * head_size + slot * kv.head_dim;
    for (size_t d = 0; d < kv.head_dim; d += kLanes) {
      uint16_t halves[kLanes];
      store_half(halves, load(k + head * kv.head_dim + d));
      for (size_t i = 0; i < kLanes; ++i) keys[(d + i) * kKeyTile] = halves[i];
      store_half(values + d, load(v + head * kv.head_dim + d));
    }
  }
}

void attend_keys(const AttentionTile& tile, KeyRange keys, float* acc, float* max_sum,
                 float* scratch) noexcept {
  Call call = prepare(tile, scratch);
  call.acc = acc;
  call.max_sum = max_sum;
  fold_keys(call, keys);
}

void attend(const AttentionTile& tile, float* out, size_t out_token_stride,
            float* scratch) noexcept {
  const Call call = prepare(tile, scratch);
  float* const total = scratch + call.at.total;
  for (size_t i = 0; i < 2 * call.rows; ++i) total[i] = 0.0f;
  const size_t end = tile.first_position + tile.num_tokens;
  size_t segment = first_seen(tile, tile.first_position) / kSegmentTokens;
  for (; segment * kSegmentTokens < end; ++segment) {
    fold_keys(call, {segment * kSegmentTokens, (segment + 1) * kSegmentTokens});
    for (size_t row = 0; row < call.rows; ++row) {
      float* const to =
          out + row / tile.group * out_token_stride + row % tile.group * call.head_dim;
      merge_segment(call.acc + row * call.head_dim, call.max_sum + 2 * row, call.head_dim, to,
                    total + 2 * row);
    }
  }
  for (size_t row = 0; row < call.rows; ++row) {
    float* const to = out + row / tile.group * out_token_stride + row % tile.group * call.head_dim;
    normalise(total + 2 * row, call.head_dim, to);
  }
}

// A row that saw nothing at all comes out as zeros.
void merge(const float* acc, size_t acc_stride, const float* max_sum, size_t max_sum_stride,
           size_t num_segments, size_t head_dim, float* out) noexcept {
  float total[2] = {kMinusInfinity, 0.0f};
  for (size_t segment = 0; segment < num_segments; ++segment) {
    merge_segment(acc + segment * acc_stride, max_sum + segment * max_sum_stride, head_dim, out,
                  total);
  }
  if (total[1] == 0.0f) {
    for (size_t d = 0; d < head_dim; d += kLanes) store(out + d, set1(0.0f));
    return;
  }
  normalise(total, head_dim, out);
}
