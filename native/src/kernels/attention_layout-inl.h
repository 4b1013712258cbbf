// SPDX-License-Identifier: Apache-2.0
// Where one call of an attention kernel keeps things in its scratch. Included inside an anonymous
// namespace, by the kernels of each instruction set and by attention_scratch.cc.
#pragma once

constexpr size_t kTilesPerSpan = kSpanTokens / kKeyTile;
// 6 rows x 2 vectors of accumulators + 2 of keys + 1 broadcast fill 15 of the 16 registers of AVX2.
constexpr size_t kRowTile = 6;
// Up to here every row fits one row tile, each half is
// converted once, and no copy in float32 is needed.
constexpr size_t kDirectRows = 8;

// Offsets in floats. Rows are (token, head) pairs in that order, padded to whole row tiles.
struct ScratchLayout {
  size_t row_tile;
  size_t num_row_tiles;
  size_t keys;     // [4][head_dim][8]: one span in float32; absent when direct
  size_t values;   // [32][head_dim]
  size_t q;        // [row tile][head_dim][rows of the tile]
  size_t weights;  // [row][32]: scores, then probabilities
  size_t segment;  // [row][2]: (max, sum) of the segment at hand
  size_t total;    // [row][2]: (max, sum) of the segments merged so far
  size_t acc;      // [row][head_dim] of the segment at hand; last, since attend_keys has its own
  size_t end;
};

inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

inline ScratchLayout scratch_layout(size_t rows, size_t head_dim) {
  constexpr size_t kLine = 16;  // floats in a cache line
  ScratchLayout at;
  const bool direct = rows <= kDirectRows;
  at.row_tile = direct ? rows : kRowTile;
  at.num_row_tiles = (rows + at.row_tile - 1) / at.row_tile;
  const size_t padded = at.num_row_tiles * at.row_tile;
  const size_t span = direct ? 0 : kSpanTokens * head_dim;
  at.keys = 0;
  at.values = at.keys + span;
  at.q = at.values + span;
  at.weights = at.q + round_up(rows * head_dim, kLine);
  at.segment = at.weights + padded * kSpanTokens;
  at.total = at.segment + round_up(2 * rows, kLine);
  at.acc = at.total + round_up(2 * rows, kLine);
  at.end = at.acc + rows * head_dim;
  return at;
}
