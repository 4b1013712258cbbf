// SPDX-License-Identifier: Apache-2.0
// The one seam between operators and instruction sets: tables of plain functions.
//
// Contract of every function here: noexcept, no allocation, no threads, no reads or writes past
// what is named (the tests name exactly what they allocate, and `make test-sanitize` runs them),
// outputs alias no inputs unless said. For the same inputs every table gives the same bits: each is
// the same sequence of float32 operations per output, and only how many outputs advance together
// differs. Reductions use a fixed tree of 8 lanes (element i in lane i % 8, lanes added as
// ((0+4)+(2+6))+((1+5)+(3+7))), so the scalar table can and does reproduce it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "octavo/weights.h"

namespace octavo {

// Activations of a batch, in whichever forms its consumers want (others null; the four a8 arrays
// come together, and so do the two a16 ones). Tokens are tiled by 4: token t is lane t % 4 of tile
// t / 4; a last tile may be partly unused.
struct Activations {
  size_t cols = 0;
  const float* f32 = nullptr;            // [token][cols], row-major
  const int8_t* a8 = nullptr;            // [tile][cols / 32][4][32]
  const float* a8_scale = nullptr;       // [tile][cols / 32][4]
  const float* a8_sum = nullptr;         // [tile][cols / 32][4]: scale * sum of the block's 32 q
  const int16_t* a8_half_sum = nullptr;  // [tile][cols / 32][4][2]: sum of q over each half of 16
  const int16_t* a16 = nullptr;          // [tile][cols / 2][4][2]
  const float* a16_scale = nullptr;      // [tile][4]
};

struct GemmKernels {
  // out[t * out_stride + r] = sum over k of W[r, k] * x[t, k], for tokens [token_begin, token_end)
  // (t counts from token_begin in `out`; token_begin is a multiple of 4) and all 8 * num_panels
  // rows. K is never split; cols is a multiple of the type's block.
  using GemmFn = void (*)(const std::byte* panels, size_t num_panels, size_t cols,
                          const Activations& x, size_t token_begin, size_t token_end, float* out,
                          size_t out_stride) noexcept;
  GemmFn f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k;

  // One token's float row into its lane of a tile. `x` [cols]; pointers are to the tile's first
  // byte. a8: cols multiple of 32; scale = amax / 127, q = round-half-even(x * (127 / amax)). A
  // block with amax < 1e-30 gets scale 0, q 0; one with an infinity or NaN gets scale NaN, q 0, so
  // that every output of that token, and of no other, is NaN.
  void (*quantize_a8)(const float* x, size_t cols, size_t lane, int8_t* a8, float* scale,
                      float* sum, int16_t* half_sum) noexcept;
  // a16: cols even; scale = amax / 32767, over the whole row; otherwise as a8.
  void (*quantize_a16)(const float* x, size_t cols, size_t lane, int16_t* a16,
                       float* scale) noexcept;
};

GemmKernels::GemmFn gemm_for(const GemmKernels& kernels, WeightType type);

// One query tile against one KV head. Keys are read in absolute spans of 32 positions and segments
// of 256; each row (a token and a head) folds its spans into (max, sum, acc) by online softmax,
// restarts at every segment, and segments merge in index order. What a row computes depends on its
// own position and window alone, so it is the same alone, in any chunk, and for every block size.
constexpr size_t kSpanTokens = 32;
constexpr size_t kSegmentTokens = 256;
constexpr size_t kKeyTile = 8;  // tokens interleaved in one tile of keys

// Layout of one block in one layer: keys [kv_head][block_size / 8][head_dim][8], then
// values [kv_head][block_size][head_dim], IEEE half precision.
struct KvView {
  uint16_t* base = nullptr;        // of this layer's pool
  size_t block_stride = 0;         // halves from one block to the next
  const int32_t* table = nullptr;  // block ids of the sequence
  size_t block_size = 0;           // tokens, a multiple of 8
  size_t num_kv_heads = 0;
  size_t head_dim = 0;  // a multiple of 8, at most 256
};

// One token of a tile whose tokens belong to several sequences.
struct QueryToken {
  const float* q = nullptr;  // head h at q + h * head_dim; unscaled
  size_t position = 0;
};

// Part of one segment. `begin` is a multiple of kSpanTokens; so is `end`, or nothing is seen past
// it.
struct KeyRange {
  size_t begin = 0;
  size_t end = 0;
};

struct AttentionTile {
  KvView kv;
  size_t kv_head = 0;
  size_t group = 1;           // query heads that share this KV head
  size_t first_position = 0;  // of token 0; token i stands i further and sees keys up to itself
  size_t num_tokens = 1;
  // Not null: token i is tokens[i] instead, of some sequence whose table agrees with kv.table on
  // all keys that are read; first_position is the least of the positions, and no key that is read
  // stands there or later. `q` and `q_token_stride` are not looked at. For attend_keys only.
  const QueryToken* tokens = nullptr;
  size_t window = 0;         // 0: all; else keys in (position - window, position]
  const float* q = nullptr;  // token i, head h at q + i * q_token_stride + h * head_dim; unscaled
  size_t q_token_stride = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none; else score = cap * tanh(score / cap)
};

struct AttentionKernels {
  // Writes k and v (float32 [num_kv_heads * head_dim] each) of the token at `position` into its
  // slot.
  void (*store_kv)(const KvView& kv, size_t position, const float* k, const float* v) noexcept;

  // Whole rows: all segments, merged and normalised. out: as q, with out_token_stride.
  // scratch: attention_scratch_floats(tile) floats, 64-byte aligned.
  void (*attend)(const AttentionTile& tile, float* out, size_t out_token_stride,
                 float* scratch) noexcept;

  // Keys of one segment folded into rows: unnormalised acc [token][head][head_dim], and (max, sum)
  // [token][head][2]. Where keys.begin is the segment's first, the rows begin anew; elsewhere they
  // go on from what acc and max_sum hold. So a segment may be folded in parts, by different tiles,
  // to the same bits. A row that has seen none of a segment has max -inf, sum 0, acc 0.
  void (*attend_keys)(const AttentionTile& tile, KeyRange keys, float* acc, float* max_sum,
                      float* scratch) noexcept;

  // Merges segments in index order exactly as `attend` does: acc [segments][head_dim] with stride,
  // max_sum [segments][2] with stride, for one row. out [head_dim].
  void (*merge)(const float* acc, size_t acc_stride, const float* max_sum, size_t max_sum_stride,
                size_t num_segments, size_t head_dim, float* out) noexcept;
};

size_t attention_scratch_floats(const AttentionTile& tile);

struct VectorKernels {
  // out[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * weight[i]; out may be x. weight null: ones.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float eps, float* out) noexcept;
  void (*add)(float* x, const float* y, size_t n) noexcept;  // x += y
  void (*scale)(float* x, float factor, size_t n) noexcept;  // x *= factor
  void (*silu_mul)(const float* gate, const float* up, size_t n, float* out) noexcept;
  void (*gelu_tanh_mul)(const float* gate, const float* up, size_t n, float* out) noexcept;
  // Turns the first 2 * num_pairs dims of one head in place.
  void (*rope_interleaved)(float* head, const float* cos, const float* sin,
                           size_t num_pairs) noexcept;
  void (*rope_halves)(float* head, const float* cos, const float* sin, size_t num_pairs) noexcept;
  void (*soft_cap)(float* x, float cap, size_t n) noexcept;  // x = cap * tanh(x / cap)
  size_t (*argmax)(const float* x, size_t n) noexcept;       // lowest index among equals; NaN loses
  float (*max)(const float* x, size_t n) noexcept;           // NaN loses; -inf if all are
  // Sum of exp(x - max) by the 8-lane tree; 0 for what is below -126 ln 2.
  float (*sum_exp)(const float* x, float max, size_t n) noexcept;
};

enum CpuFeature : uint32_t {
  kSse42 = 1u << 0,
  kAvx2 = 1u << 1,
  kFma = 1u << 2,
  kF16c = 1u << 3,
  kBmi2 = 1u << 4,
  kAvxVnni = 1u << 5,
  kAvx512 = 1u << 6,  // F, BW, VL and DQ
  kAvx512Vnni = 1u << 7,
  kNeonDotProd = 1u << 8,
  kNeonI8mm = 1u << 9,
};
uint32_t cpu_features();  // what the CPU *and* the operating system provide

struct KernelTable {
  std::string_view name;  // what OCTAVO_ISA, `octavo doctor` and every benchmark row call it
  uint32_t required;      // CpuFeature bits
  const GemmKernels* gemm;
  const AttentionKernels* attention;
  const VectorKernels* vector;
};

std::span<const KernelTable* const> compiled_kernels();  // best first; ends with "scalar"

// The best table that `features` can run, or the one named `forced`. Throws std::invalid_argument,
// listing the choices, for a name that is unknown or cannot run here: a typo must not turn a
// benchmark of one table into a benchmark of another.
const KernelTable& select_kernels(uint32_t features, std::optional<std::string_view> forced);

}  // namespace octavo
