// SPDX-License-Identifier: Apache-2.0
// One row's codes in and out of a panel, 32 at a time, four codes per 32-bit word.
#pragma once
#include <cstddef>
#include <cstdint>

#include "octavo/weights.h"
#include "quant/half.h"
#include "quant/panel_layout.h"

namespace octavo::quant {

constexpr uint32_t kNibbles = 0x0f0f0f0fu;
constexpr uint32_t kOnes = 0x01010101u;

inline void put_codes(WeightType type, const PanelLayout& at, size_t block, size_t row,
                      const uint8_t* codes, std::byte* panel) {
  std::byte* values = panel + at.values + 128 * block + 4 * row;
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t low = load_u32(codes + 4 * j) & kNibbles;
    const uint32_t high = load_u32(codes + 16 + 4 * j) & kNibbles;
    store_u32(values + 32 * j, low | (high << 4));
  }
  const int bits = code_bits(type);
  if (bits == 5) {
    uint32_t fifth = 0;
    for (size_t j = 0; j < 8; ++j) fifth |= ((load_u32(codes + 4 * j) >> 4) & kOnes) << j;
    store_u32(panel + at.highs + 32 * block + 4 * row, fifth);
  } else if (bits == 6) {
    for (size_t h = 0; h < 2; ++h) {
      uint32_t top = 0;
      for (size_t j = 0; j < 4; ++j) {
        top |= ((load_u32(codes + 16 * h + 4 * j) >> 4) & (3 * kOnes)) << (2 * j);
      }
      store_u32(panel + at.highs + 64 * block + 32 * h + 4 * row, top);
    }
  }
}

inline void get_codes(WeightType type, const PanelLayout& at, size_t block, size_t row,
                      const std::byte* panel, uint8_t* codes) {
  const std::byte* values = panel + at.values + 128 * block + 4 * row;
  uint32_t words[8];
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t both = load_u32(values + 32 * j);
    words[j] = both & kNibbles;
    words[j + 4] = (both >> 4) & kNibbles;
  }
  const int bits = code_bits(type);
  if (bits == 5) {
    const uint32_t fifth = load_u32(panel + at.highs + 32 * block + 4 * row);
    for (size_t j = 0; j < 8; ++j) words[j] |= ((fifth >> j) & kOnes) << 4;
  } else if (bits == 6) {
    for (size_t j = 0; j < 8; ++j) {
      const uint32_t top = load_u32(panel + at.highs + 64 * block + 32 * (j / 4) + 4 * row);
      words[j] |= ((top >> (2 * (j % 4))) & (3 * kOnes)) << 4;
    }
  }
  for (size_t j = 0; j < 8; ++j) store_u32(codes + 4 * j, words[j]);
}

// What one block of 32 codes q of one row means: w = d * q + m; Q6_K has its own d per half and m =
// 0, with q counted from -32.
struct BlockScale {
  float d[2];
  float m;
};

inline BlockScale get_scale(WeightType type, size_t block, size_t row, const std::byte* scales) {
  const size_t size = scale_bytes(type);
  const std::byte* at = scales + (is_k_quant(type) ? block / 8 : block) * size;
  const float d = load_half(at + 2 * row);
  switch (type) {
    case WeightType::kQ4_0:
      return {{d, d}, -8.0f * d};
    case WeightType::kQ5_0:
      return {{d, d}, -16.0f * d};
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
      return {{d, d}, load_half(at + 16 + 2 * row)};
    case WeightType::kQ4_K:
    case WeightType::kQ5_K: {
      const std::byte* six = at + 32 + 16 * (block % 8);
      const float scale = d * static_cast<float>(six[row]);
      return {{scale, scale}, -(load_half(at + 16 + 2 * row) * static_cast<float>(six[8 + row]))};
    }
    case WeightType::kQ6_K: {
      const std::byte* two = at + 16 + 16 * (block % 8) + 2 * row;
      return {{d * static_cast<float>(static_cast<int8_t>(two[0])),
               d * static_cast<float>(static_cast<int8_t>(two[1]))},
              0.0f};
    }
    default:
      return {{d, d}, 0.0f};
  }
}

}  // namespace octavo::quant
