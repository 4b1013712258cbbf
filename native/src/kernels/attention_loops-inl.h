// SPDX-License-Identifier: Apache-2.0
// The two long loops of attention: a span's keys against rows of queries, and its values into rows
// of accumulators. Included inside octavo::<isa>::{anonymous} by attention-inl.h, which says what
// they compute; here is how many outputs advance together, which changes no bit.
#pragma once

constexpr size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
constexpr size_t greater(size_t a, size_t b) { return a > b ? a : b; }

// Keys [begin, end) of a span, counted from its first position; empty if begin >= end.
struct Range {
  size_t begin;
  size_t end;
};

// One tile of 8 keys and values per entry; entries outside the tiles in use are not set.
template <class T>
struct SpanTiles {
  const T* keys[kTilesPerSpan];
  const T* values[kTilesPerSpan];
  Range tiles;
};

// ---- scores ----

// `W` is Narrow, one tile of 8 keys, or Wide, as many as the instruction set has lanes for.
template <class W, int kRows, int kVectors, class T>
inline void score_tiles(const float* q, const T* const* keys, size_t head_dim, float* weights) {
  typename W::Vector acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = W::splat(0.0f);
  }
  const T* tile[kVectors * W::kTiles];
  for (size_t t = 0; t < kVectors * W::kTiles; ++t) tile[t] = keys[t];
  for (size_t d = 0; d < head_dim; ++d) {
    typename W::Vector k[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) k[v] = W::gather(tile + v * W::kTiles, d * kKeyTile);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename W::Vector x = W::splat(q[d * kRows + r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = W::add_product(x, k[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      W::write(weights + r * kSpanTokens + v * W::kTiles * kKeyTile, acc[r][v]);
    }
  }
}

// Accumulators that fit the registers beside the keys, for a given number of rows.
template <class W, int kRows>
constexpr int vectors_beside() {
  if (W::kRegisters == 32) return kRows <= 6 ? 4 : 2;
  return kRows <= 3 ? 4 : kRows <= 6 ? 2 : 1;
}

template <int kRows, class T>
void score_rows(const float* q, const SpanTiles<T>& span, size_t head_dim, float* weights) {
  constexpr int kVectors = vectors_beside<Wide, kRows>();
  constexpr size_t kTiles = smaller(kVectors * Wide::kTiles, kTilesPerSpan);
  size_t t = span.tiles.begin;
  for (; t + kTiles <= span.tiles.end; t += kTiles) {
    score_tiles<Wide, kRows, kTiles / Wide::kTiles>(q, span.keys + t, head_dim,
                                                    weights + t * kKeyTile);
  }
  if constexpr (kTiles > 2) {
    for (; t + 2 <= span.tiles.end; t += 2) {
      score_tiles<Wide, kRows, 2 / Wide::kTiles>(q, span.keys + t, head_dim,
                                                 weights + t * kKeyTile);
    }
  }
  for (; t < span.tiles.end; ++t) {
    score_tiles<Narrow, kRows, 1>(q, span.keys + t, head_dim, weights + t * kKeyTile);
  }
}

template <class T>
void score(size_t rows, const float* q, const SpanTiles<T>& span, size_t head_dim, float* weights) {
  switch (rows) {
    case 1:
      return score_rows<1>(q, span, head_dim, weights);
    case 2:
      return score_rows<2>(q, span, head_dim, weights);
    case 3:
      return score_rows<3>(q, span, head_dim, weights);
    case 4:
      return score_rows<4>(q, span, head_dim, weights);
    case 5:
      return score_rows<5>(q, span, head_dim, weights);
    case 6:
      return score_rows<6>(q, span, head_dim, weights);
    case 7:
      return score_rows<7>(q, span, head_dim, weights);
    default:
      return score_rows<8>(q, span, head_dim, weights);
  }
}

// ---- values ----

template <class W, int kRows, int kVectors, class T>
inline void add_values(const SpanTiles<T>& span, Range seen, size_t dim, size_t head_dim,
                       const float* weights, const float* rescale, float* acc) {
  constexpr size_t kWidth = W::kTiles * kLanes;
  typename W::Vector sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = W::times(W::read(acc + r * head_dim + dim + v * kWidth), W::splat(rescale[r]));
    }
  }
  for (size_t begin = seen.begin; begin < seen.end;) {
    const size_t t = begin / kKeyTile;
    const size_t end = smaller(seen.end, (t + 1) * kKeyTile);
    const T* row = span.values[t] + (begin - t * kKeyTile) * head_dim + dim;
    for (size_t key = begin; key < end; ++key, row += head_dim) {
      typename W::Vector x[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = W::read(row + v * kWidth);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename W::Vector p = W::splat(weights[r * kSpanTokens + key]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[r][v] = W::add_product(p, x[v], sum[r][v]);
      }
    }
    begin = end;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      W::write(acc + r * head_dim + dim + v * kWidth, sum[r][v]);
    }
  }
}

template <int kRows, class T>
void accumulate_rows(const SpanTiles<T>& span, Range seen, size_t head_dim, const float* weights,
                     const float* rescale, float* acc) {
  constexpr int kVectors = vectors_beside<Wide, kRows>();
  constexpr size_t kWidth = Wide::kTiles * kLanes;
  size_t dim = 0;
  for (; dim + kVectors * kWidth <= head_dim; dim += kVectors * kWidth) {
    add_values<Wide, kRows, kVectors>(span, seen, dim, head_dim, weights, rescale, acc);
  }
  if constexpr (kVectors > 2) {
    for (; dim + 2 * kWidth <= head_dim; dim += 2 * kWidth) {
      add_values<Wide, kRows, 2>(span, seen, dim, head_dim, weights, rescale, acc);
    }
  }
  for (; dim < head_dim; dim += kLanes) {
    add_values<Narrow, kRows, 1>(span, seen, dim, head_dim, weights, rescale, acc);
  }
}

template <class T>
void accumulate(size_t rows, const SpanTiles<T>& span, Range seen, size_t head_dim,
                const float* weights, const float* rescale, float* acc) {
  switch (rows) {
    case 1:
      return accumulate_rows<1>(span, seen, head_dim, weights, rescale, acc);
    case 2:
      return accumulate_rows<2>(span, seen, head_dim, weights, rescale, acc);
    case 3:
      return accumulate_rows<3>(span, seen, head_dim, weights, rescale, acc);
    case 4:
      return accumulate_rows<4>(span, seen, head_dim, weights, rescale, acc);
    case 5:
      return accumulate_rows<5>(span, seen, head_dim, weights, rescale, acc);
    case 6:
      return accumulate_rows<6>(span, seen, head_dim, weights, rescale, acc);
    case 7:
      return accumulate_rows<7>(span, seen, head_dim, weights, rescale, acc);
    default:
      return accumulate_rows<8>(span, seen, head_dim, weights, rescale, acc);
  }
}
