// SPDX-License-Identifier: Apache-2.0
// Q6_K: 256 weights in 16 groups of 16, w = d * scale * (q - 32); 6.5625 bits per weight.
#pragma once
#include <cstddef>
#include <cstdint>

#include "octavo/weights.h"
#include "quant/half.h"

namespace octavo::quant {

struct Q6_K {
  static constexpr WeightType kType = WeightType::kQ6_K;
  static constexpr size_t kElements = 256;
  static constexpr double kBitsPerWeight = 6.5625;

  uint8_t ql[128];    // low nibbles; 64 bytes per 128 elements
  uint8_t qh[64];     // top two bits; 32 bytes per 128 elements
  int8_t scales[16];  // one per 16 elements
  uint8_t d[2];       // half

  // Within each 128 elements, quarter t (32 elements) has its nibbles in bytes 32 * (t % 2) of ql,
  // low ones for t < 2, and its top bits at bit 2t of the 32 bytes of qh.
  void codes(size_t sub_block, uint8_t* out) const {
    const size_t quarter = sub_block % 4;
    const uint8_t* low = ql + 64 * (sub_block / 4) + 32 * (quarter % 2);
    const uint8_t* high = qh + 32 * (sub_block / 4);
    const int low_shift = quarter < 2 ? 0 : 4;
    const size_t high_shift = 2 * quarter;
    for (size_t i = 0; i < 32; ++i) {
      const int top = (high[i] >> high_shift) & 3;
      out[i] = static_cast<uint8_t>(((low[i] >> low_shift) & 0x0f) | (top << 4));
    }
  }

  void dequantize(float* out) const {
    for (size_t sub = 0; sub < 8; ++sub) {
      uint8_t q[32];
      codes(sub, q);
      for (size_t i = 0; i < 32; ++i) {
        const float scale = load_half(d) * static_cast<float>(scales[2 * sub + i / 16]);
        out[32 * sub + i] = scale * static_cast<float>(q[i] - 32);
      }
    }
  }
};
static_assert(sizeof(Q6_K) == 210);

}  // namespace octavo::quant
