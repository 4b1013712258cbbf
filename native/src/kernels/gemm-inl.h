// SPDX-License-Identifier: Apache-2.0
// The matrix product as text. An instruction set's gemm.cc includes this inside its own anonymous
// namespace, after its vector vocabulary, so that no function here is shared between object files.
//
// Lanes are output rows, so a sum over columns never crosses lanes, a block's scales are one vector
// and nothing depends on how many rows or tokens advance together: per (row, token) the float
// operations are those of scalar/gemm.cc, in that order, for every tile shape below.
//
// A vocabulary S gives:
//   S::kPanels             panels side by side in one vector: 1 for 8 lanes, 2 for 16
//   F, I                   vectors of 32-bit floats and of bytes / int16 / int32
//   zero, splat, fma, mul  float arithmetic; cvt: int32 to float, to nearest
//   bytes(p, stride)       32 bytes from each panel; widen16: 16 int8 from each, to int16
//   halves, bytes_f        8 halves / 8 unsigned bytes from each panel, to float
//   broadcast32(p)         the 32 bits at p in every lane
//   Dot<kBits>             sum over one block of codes of kBits bits (u8) times activations (s8),
//   by
//                          add<step 0..7> and total(); of 6-bit codes, with an int8 scale per 16
//                          columns, which HalfScales<6> holds (HalfScales of other widths is empty)
//   dot16(sum, w, a)       sum + pairwise int16 products
// A tile is NP vectors of rows by NC tokens, over all columns: K is never split.

using Bytes = const std::byte*;

template <class S, int kShiftLeft>
inline typename S::I shift16(typename S::I x) {
  if constexpr (kShiftLeft > 0) return S::template left16<kShiftLeft>(x);
  if constexpr (kShiftLeft < 0) return S::template right16<-kShiftLeft>(x);
  return x;
}

// Codes of columns [16 * kHalf, 16 * kHalf + 16) of block b: 4 vectors, 4 columns per 32-bit lane.
template <class S, WeightType kType, int kHalf>
inline void load_codes(Bytes panel, size_t stride, const PanelLayout& at, size_t b,
                       typename S::I* v) {
  constexpr int kBits = quant::code_bits(kType);
  const typename S::I nibble = S::splat8(0x0f);
  Bytes values = panel + at.values + 128 * b;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const typename S::I raw = S::bytes(values + 32 * j, stride);
    v[j] = S::bit_and(kHalf == 0 ? raw : S::template right16<4>(raw), nibble);
  }
  if constexpr (kBits == 5) {  // bit 4 * kHalf + j goes to bit 4
    const typename S::I high = S::bytes(panel + at.highs + 32 * b, stride);
    const typename S::I bit = S::splat8(0x10);
    constexpr int kLeft = kHalf == 0 ? 4 : 0;
    v[0] = S::bit_or(v[0], S::bit_and(shift16<S, kLeft>(high), bit));
    v[1] = S::bit_or(v[1], S::bit_and(shift16<S, kLeft - 1>(high), bit));
    v[2] = S::bit_or(v[2], S::bit_and(shift16<S, kLeft - 2>(high), bit));
    v[3] = S::bit_or(v[3], S::bit_and(shift16<S, kLeft - 3>(high), bit));
  }
  if constexpr (kBits == 6) {  // bits 2j, 2j + 1 go to bits 4, 5
    const typename S::I high = S::bytes(panel + at.highs + 64 * b + 32 * kHalf, stride);
    const typename S::I bits = S::splat8(0x30);
    v[0] = S::bit_or(v[0], S::bit_and(shift16<S, 4>(high), bits));
    v[1] = S::bit_or(v[1], S::bit_and(shift16<S, 2>(high), bits));
    v[2] = S::bit_or(v[2], S::bit_and(high, bits));
    v[3] = S::bit_or(v[3], S::bit_and(shift16<S, -2>(high), bits));
  }
}

// D and M of block b: w = D * q + M.
template <class S, WeightType kType>
inline void load_scales(Bytes panel, size_t stride, size_t b, typename S::F& d, typename S::F& m) {
  constexpr size_t kSize = quant::scale_bytes(kType);
  if constexpr (kType == WeightType::kQ4_0 || kType == WeightType::kQ5_0) {
    d = S::halves(panel + kSize * b, stride);
    m = S::mul(d, S::splat(kType == WeightType::kQ4_0 ? -8.0f : -16.0f));
  } else if constexpr (kType == WeightType::kQ4_1 || kType == WeightType::kQ5_1) {
    d = S::halves(panel + kSize * b, stride);
    m = S::halves(panel + kSize * b + 16, stride);
  } else if constexpr (kType == WeightType::kQ6_K) {
    d = S::halves(panel + kSize * (b / 8), stride);
    m = S::zero();
  } else {
    Bytes super = panel + kSize * (b / 8);
    Bytes six = super + 32 + 16 * (b % 8);
    d = S::mul(S::halves(super, stride), S::bytes_f(six, stride));
    m = S::negate(S::mul(S::halves(super + 16, stride), S::bytes_f(six + 8, stride)));
  }
}

// The first tokens to pass over a panel fetch the next: kLines cache lines of each panel of the
// group, at the same offset in the next group. A hint cannot fault, so the end of the matrix needs
// no care.
template <class S, int NP, int kLines>
inline void prefetch_next(Bytes p, size_t stride) {
  constexpr int kGroup = NP * static_cast<int>(S::kPanels);
#pragma GCC unroll 4
  for (int i = 0; i < kGroup; ++i) {
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line) {
      __builtin_prefetch(p + (kGroup + i) * stride + 64 * line);
    }
  }
}

struct TileA8 {  // of 4 tokens; the next 4 are `tile` lanes on
  const int8_t* a8;
  const float* scale;
  const float* sum;
  const int16_t* half_sum;
  size_t tile;
  bool prefetch;

  size_t lane(size_t b, int c) const { return (c / 4) * tile + 4 * b + c % 4; }
};

// One broadcast of 4 activations against the vectors of every panel.
template <class S, int NP, int NC, int kStep, class Dot, class HalfScales>
inline void dot_step(const int8_t* lane, const typename S::I (&v)[NP][4], int c,
                     const HalfScales (&scales)[NP], Dot (&dot)[NP][NC]) {
  const typename S::I a = S::broadcast32(lane + 4 * (kStep % 4));
#pragma GCC unroll 2
  for (int p = 0; p < NP; ++p) {
    dot[p][c].template add<kStep>(v[p][kStep % 4], a, scales[p]);
  }
}

template <class S, WeightType kType, int NP, int NC, int kHalf, class Dot, class HalfScales>
inline void dot_half(Bytes panel, size_t stride, const PanelLayout& at, size_t b, const TileA8& x,
                     const HalfScales (&scales)[NP], Dot (&dot)[NP][NC]) {
  typename S::I v[NP][4];
#pragma GCC unroll 2
  for (int p = 0; p < NP; ++p) {
    load_codes<S, kType, kHalf>(panel + p * S::kPanels * stride, stride, at, b, v[p]);
  }
#pragma GCC unroll 8
  for (int c = 0; c < NC; ++c) {
    const int8_t* lane = x.a8 + 32 * x.lane(b, c) + 16 * kHalf;
    dot_step<S, NP, NC, 4 * kHalf + 0>(lane, v, c, scales, dot);
    dot_step<S, NP, NC, 4 * kHalf + 1>(lane, v, c, scales, dot);
    dot_step<S, NP, NC, 4 * kHalf + 2>(lane, v, c, scales, dot);
    dot_step<S, NP, NC, 4 * kHalf + 3>(lane, v, c, scales, dot);
  }
}

template <class S, WeightType kType, int NP, int NC>
inline void tile_a8(Bytes panel, size_t stride, const PanelLayout& at, size_t num_blocks,
                    const TileA8& x, float* out, size_t out_stride) {
  constexpr int kBits = quant::code_bits(kType);
  using Dot = typename S::template Dot<kBits>;
  typename S::F acc[NP][NC];
#pragma GCC unroll 2
  for (int p = 0; p < NP; ++p) {
#pragma GCC unroll 8
    for (int c = 0; c < NC; ++c) acc[p][c] = S::zero();
  }
  for (size_t b = 0; b < num_blocks; ++b) {
    Dot dot[NP][NC];
    if (x.prefetch) prefetch_next<S, NP, 2>(panel + at.values + 128 * b, stride);
    typename S::template HalfScales<kBits> half_scales[NP];
    if constexpr (kBits == 6) {
      Bytes of_block = panel + quant::scale_bytes(kType) * (b / 8) + 16 + 16 * (b % 8);
#pragma GCC unroll 2
      for (int p = 0; p < NP; ++p) half_scales[p].load(of_block + p * S::kPanels * stride, stride);
    }
    dot_half<S, kType, NP, NC, 0>(panel, stride, at, b, x, half_scales, dot);
    dot_half<S, kType, NP, NC, 1>(panel, stride, at, b, x, half_scales, dot);
#pragma GCC unroll 2
    for (int p = 0; p < NP; ++p) {
      typename S::F d, m;
      load_scales<S, kType>(panel + p * S::kPanels * stride, stride, b, d, m);
#pragma GCC unroll 8
      for (int c = 0; c < NC; ++c) {
        typename S::I sum;
        if constexpr (kBits == 6) {
          sum = dot[p][c].total(half_scales[p], S::broadcast32(x.half_sum + 2 * x.lane(b, c)));
        } else {
          sum = dot[p][c].total();
        }
        acc[p][c] = S::fma(S::cvt(sum), S::mul(d, S::splat(x.scale[x.lane(b, c)])), acc[p][c]);
        if constexpr (kBits != 6) {
          acc[p][c] = S::fma(m, S::splat(x.sum[x.lane(b, c)]), acc[p][c]);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < NP; ++p) {
#pragma GCC unroll 8
    for (int c = 0; c < NC; ++c) {
      S::store(out + c * out_stride + p * S::kPanels * kPanelRows, acc[p][c]);
    }
  }
}

struct TileA16 {  // of 4 tokens; the next 4 are `tile` values on
  const int16_t* a16;
  const float* scale;
  size_t tile;
  bool prefetch;
};

// Q8_0. The token's scale is applied once, at the end: 32 products of 128 * 32767 stay below 2^27.
template <class S, int NP, int NC>
inline void tile_a16(Bytes panel, size_t stride, const PanelLayout& at, size_t num_blocks,
                     const TileA16& x, float* out, size_t out_stride) {
  typename S::F acc[NP][NC];
#pragma GCC unroll 2
  for (int p = 0; p < NP; ++p) {
#pragma GCC unroll 8
    for (int c = 0; c < NC; ++c) acc[p][c] = S::zero();
  }
  for (size_t b = 0; b < num_blocks; ++b) {
    Bytes values = panel + at.values + 256 * b;
    if (x.prefetch) prefetch_next<S, NP, 4>(values, stride);
    typename S::I sum[NP][NC] = {};
#pragma GCC unroll 4  // of 16: GCC hoists the loads of a full unrolling and spills them all
    for (int pair = 0; pair < 16; ++pair) {
#pragma GCC unroll 2
      for (int p = 0; p < NP; ++p) {
        const typename S::I w = S::widen16(values + p * S::kPanels * stride + 16 * pair, stride);
#pragma GCC unroll 8
        for (int c = 0; c < NC; ++c) {
          const int16_t* lane = x.a16 + (c / 4) * x.tile + 128 * b + 8 * pair + 2 * (c % 4);
          const typename S::I input = S::broadcast32(lane);
          sum[p][c] = S::dot16(sum[p][c], w, input);
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < NP; ++p) {
      const typename S::F d = S::halves(panel + p * S::kPanels * stride + 16 * b, stride);
#pragma GCC unroll 8
      for (int c = 0; c < NC; ++c) acc[p][c] = S::fma(S::cvt(sum[p][c]), d, acc[p][c]);
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < NP; ++p) {
#pragma GCC unroll 8
    for (int c = 0; c < NC; ++c) {
      S::store(out + c * out_stride + p * S::kPanels * kPanelRows,
               S::mul(acc[p][c], S::splat(x.scale[c])));
    }
  }
}

template <class S, WeightType kType, int NP, int NC>
inline void tile_plain(Bytes panel, size_t stride, size_t cols, const float* x, float* out,
                       size_t out_stride) {
  constexpr size_t kColumn = kPanelRows * (kType == WeightType::kF32 ? 4 : 2);
  typename S::F acc[NP][NC];
#pragma GCC unroll 2
  for (int p = 0; p < NP; ++p) {
#pragma GCC unroll 8
    for (int c = 0; c < NC; ++c) acc[p][c] = S::zero();
  }
  for (size_t k = 0; k < cols; ++k) {
    typename S::F w[NP];
#pragma GCC unroll 2
    for (int p = 0; p < NP; ++p) {
      Bytes column = panel + p * S::kPanels * stride + kColumn * k;
      if constexpr (kType == WeightType::kF32) w[p] = S::floats(column, stride);
      if constexpr (kType == WeightType::kF16) w[p] = S::halves(column, stride);
      if constexpr (kType == WeightType::kBF16) w[p] = S::bfloats(column, stride);
    }
#pragma GCC unroll 8
    for (int c = 0; c < NC; ++c) {
      const typename S::F input = S::splat(x[c * cols + k]);
#pragma GCC unroll 2
      for (int p = 0; p < NP; ++p) acc[p][c] = S::fma(w[p], input, acc[p][c]);
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < NP; ++p) {
#pragma GCC unroll 8
    for (int c = 0; c < NC; ++c) {
      S::store(out + c * out_stride + p * S::kPanels * kPanelRows, acc[p][c]);
    }
  }
}

// What stays the same while tiles of one call are walked.
struct Job {
  PanelLayout at;
  const Activations& x;
  size_t token_begin;
  float* out;
  size_t out_stride;
};

// One tile: NP vectors of panels from `panel` (the first of them is panel `idx`), NC tokens from
// `token`.
template <class S, WeightType kType, int NP, int NC>
inline void run_tile(const Job& job, Bytes panel, size_t idx, size_t token) {
  const size_t num_blocks = job.x.cols / 32;
  const size_t tile = token / kTokenTile;
  float* out = job.out + (token - job.token_begin) * job.out_stride + idx * kPanelRows;
  if constexpr (kType == WeightType::kQ8_0) {
    const size_t values = job.x.cols * kTokenTile;
    const TileA16 x{job.x.a16 + tile * values, job.x.a16_scale + tile * kTokenTile, values,
                    token == job.token_begin};
    tile_a16<S, NP, NC>(panel, job.at.bytes, job.at, num_blocks, x, out, job.out_stride);
  } else if constexpr (quant::code_bits(kType) == 0) {
    tile_plain<S, kType, NP, NC>(panel, job.at.bytes, job.x.cols, job.x.f32 + token * job.x.cols,
                                 out, job.out_stride);
  } else {
    const size_t lanes = num_blocks * kTokenTile;
    const size_t first = tile * lanes;
    const TileA8 x{job.x.a8 + first * 32,
                   job.x.a8_scale + first,
                   job.x.a8_sum + first,
                   job.x.a8_half_sum + first * 2,
                   lanes,
                   token == job.token_begin};
    tile_a8<S, kType, NP, NC>(panel, job.at.bytes, job.at, num_blocks, x, out, job.out_stride);
  }
}

// Panels outside, token tiles inside: a panel (3 to 20 KB) is read from memory once and stays in L1
// while all tokens pass over it.
template <class S, WeightType kType, int NP, int kMost = 4>
inline void run_tokens(const Job& job, Bytes panel, size_t idx, size_t token_end) {
  size_t token = job.token_begin;
  for (; token + kMost <= token_end; token += kMost) {
    run_tile<S, kType, NP, kMost>(job, panel, idx, token);
  }
  if constexpr (kMost == 8) {
    switch (token_end - token) {
      case 7:
        return run_tile<S, kType, NP, 7>(job, panel, idx, token);
      case 6:
        return run_tile<S, kType, NP, 6>(job, panel, idx, token);
      case 5:
        return run_tile<S, kType, NP, 5>(job, panel, idx, token);
      case 4:
        return run_tile<S, kType, NP, 4>(job, panel, idx, token);
      default:
        break;
    }
  }
  switch (token_end - token) {
    case 3:
      return run_tile<S, kType, NP, 3>(job, panel, idx, token);
    case 2:
      return run_tile<S, kType, NP, 2>(job, panel, idx, token);
    case 1:
      return run_tile<S, kType, NP, 1>(job, panel, idx, token);
    default:
      return;
  }
}

// The whole product for vectors of one panel: sixteen registers hold one panel by four tokens (4
// codes, 4 sums, 4 accumulators, temporaries). A single token takes two panels at once instead:
// they share its broadcasts and hide each other's latency.
template <class S, WeightType kType>
void gemm_narrow(const std::byte* panels, size_t num_panels, size_t cols, const Activations& x,
                 size_t token_begin, size_t token_end, float* out, size_t out_stride) noexcept {
  constexpr bool kPlain = quant::code_bits(kType) == 0 && kType != WeightType::kQ8_0;
  const Job job{quant::panel_layout(kType, cols), x, token_begin, out, out_stride};
  const std::byte* panel = panels + (kPlain ? job.at.values : 0);
  const bool pairs = kPlain || token_end - token_begin == 1;
  size_t idx = 0;
  for (; pairs && idx + 2 <= num_panels; idx += 2, panel += 2 * job.at.bytes) {
    if constexpr (kPlain) {
      run_tokens<S, kType, 2>(job, panel, idx, token_end);
    } else {
      run_tile<S, kType, 2, 1>(job, panel, idx, token_begin);
    }
  }
  for (; idx < num_panels; ++idx, panel += job.at.bytes) {
    run_tokens<S, kType, 1>(job, panel, idx, token_end);
  }
}
