// SPDX-License-Identifier: Apache-2.0
// Q5_0: w = d * (q - 16), q in [0, 31]; 5.5 bits per weight.
#pragma once
#include <cstddef>
#include <cstdint>

#include "octavo/weights.h"
#include "quant/half.h"

namespace octavo::quant {

struct Q5_0 {
  static constexpr WeightType kType = WeightType::kQ5_0;
  static constexpr size_t kElements = 32;
  static constexpr double kBitsPerWeight = 5.5;

  uint8_t d[2];    // half
  uint8_t qh[4];   // little-endian word: bit i is the fifth bit of element i
  uint8_t qs[16];  // byte i: element i in the low nibble, element i + 16 in the high one

  void codes(size_t /*sub_block*/, uint8_t* out) const {
    const uint32_t high = load_u32(qh);
    for (size_t i = 0; i < 16; ++i) {
      out[i] = static_cast<uint8_t>((qs[i] & 0x0f) | (((high >> i) & 1) << 4));
      out[i + 16] = static_cast<uint8_t>((qs[i] >> 4) | (((high >> (i + 16)) & 1) << 4));
    }
  }

  void dequantize(float* out) const {
    const float scale = load_half(d);
    uint8_t q[32];
    codes(0, q);
    for (size_t i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(q[i] - 16);
  }
};
static_assert(sizeof(Q5_0) == 22);

}  // namespace octavo::quant
