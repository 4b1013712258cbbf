// SPDX-License-Identifier: Apache-2.0
// Where the parts of one packed panel lie. Kernels of every instruction set include this file, so
// it holds constants and static functions only: nothing here may become a symbol that a linker
// merges.
//
// A panel is 8 rows over all columns: three regions, each starting on a cache line. With B = cols /
// 32 blocks and S = cols / 256 super-blocks, row r in lane r:
//
//   type        scales                                                  highs   values
//   Q4_0 Q5_0   B x { D[8] half }                                       below   below
//   Q4_1 Q5_1   B x { D[8] half, M[8] half }
//   Q4_K Q5_K   S x { D[8] half, Dmin[8] half, 8 x { S[8] u8, M[8] u8 } }
//   Q6_K        S x { D[8] half, 8 x { S[8][2] i8 } }
//   Q8_0        B x { D[8] half }                                       -       B x 16 x [8][2] i8
//   F32 F16 BF16  -                                                     -       cols x [8]
//
// values of 4, 5 and 6-bit codes: B x 4 vectors of 32 bytes; byte 4r + i of vector j holds the low
// nibble of code k = 4j + i of row r in its low half and that of code k = 16 + 4j + i in its high
// half. highs: bit j of byte 4r + i is the fifth bit of code k = 4j + i, j in [0, 8) (5-bit types,
// 32 bytes a block); bits 2j and 2j + 1 are the top bits of code k = 16h + 4j + i, j in [0, 4), in
// the h-th of two vectors of 32 bytes (6-bit type).
#pragma once
#include <cstddef>
#include <cstdint>

#include "octavo/weights.h"

namespace octavo::quant {

struct PanelLayout {
  size_t highs = 0;  // byte offsets from the panel's start; scales are at 0
  size_t values = 0;
  size_t bytes = 0;  // of the whole panel, a multiple of 64
};

// Bits of one code; 0 for types whose values are not split into nibbles.
[[maybe_unused]] static constexpr int code_bits(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
    case WeightType::kQ4_K:
      return 4;
    case WeightType::kQ5_0:
    case WeightType::kQ5_1:
    case WeightType::kQ5_K:
      return 5;
    case WeightType::kQ6_K:
      return 6;
    default:
      return 0;
  }
}

// Bytes of the scales of one block (32 or 256 columns) of 8 rows.
[[maybe_unused]] static constexpr size_t scale_bytes(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
    case WeightType::kQ5_0:
    case WeightType::kQ8_0:
      return 16;
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
      return 32;
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
      return 32 + 8 * 16;
    case WeightType::kQ6_K:
      return 16 + 8 * 16;
    default:
      return 0;
  }
}

[[maybe_unused]] static constexpr bool is_k_quant(WeightType type) {
  return type == WeightType::kQ4_K || type == WeightType::kQ5_K || type == WeightType::kQ6_K;
}

[[maybe_unused]] static constexpr size_t value_bytes(WeightType type, size_t cols) {
  switch (type) {
    case WeightType::kF32:
      return cols * 32;
    case WeightType::kF16:
    case WeightType::kBF16:
      return cols * 16;
    case WeightType::kQ8_0:
      return cols * 8;
    default:
      return cols * 4;
  }
}

[[maybe_unused]] static constexpr PanelLayout panel_layout(WeightType type, size_t cols) {
  constexpr size_t kLine = 64;
  const size_t num_scales = cols / (is_k_quant(type) ? 256 : 32);
  const int bits = code_bits(type);
  const size_t high_bytes = bits <= 4 ? 0 : static_cast<size_t>(bits - 4) * cols;
  PanelLayout at;
  at.highs = (num_scales * scale_bytes(type) + kLine - 1) / kLine * kLine;
  at.values = (at.highs + high_bytes + kLine - 1) / kLine * kLine;
  at.bytes = (at.values + value_bytes(type, cols) + kLine - 1) / kLine * kLine;
  return at;
}

}  // namespace octavo::quant
