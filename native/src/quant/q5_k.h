// SPDX-License-Identifier: Apache-2.0
// Q5_K: 256 weights in 8 sub-blocks of 32, w = d * scale * q - dmin * min; 5.5 bits per weight.
#pragma once
#include <cstddef>
#include <cstdint>

#include "octavo/weights.h"
#include "quant/half.h"
#include "quant/k_scales.h"

namespace octavo::quant {

struct Q5_K {
  static constexpr WeightType kType = WeightType::kQ5_K;
  static constexpr size_t kElements = 256;
  static constexpr double kBitsPerWeight = 5.5;

  uint8_t d[2];     // half
  uint8_t dmin[2];  // half
  uint8_t scales[12];
  uint8_t qh[32];   // bit s of byte i: fifth bit of element i of sub-block s
  uint8_t qs[128];  // 32 bytes carry two sub-blocks: the even one in the low nibbles

  void codes(size_t sub_block, uint8_t* out) const {
    const uint8_t* source = qs + 32 * (sub_block / 2);
    const int shift = sub_block % 2 == 0 ? 0 : 4;
    for (size_t i = 0; i < 32; ++i) {
      const int high = (qh[i] >> sub_block) & 1;
      out[i] = static_cast<uint8_t>(((source[i] >> shift) & 0x0f) | (high << 4));
    }
  }

  void dequantize(float* out) const {
    for (size_t sub = 0; sub < 8; ++sub) {
      const float scale = load_half(d) * static_cast<float>(k_scale(scales, sub));
      const float min = load_half(dmin) * static_cast<float>(k_min(scales, sub));
      uint8_t q[32];
      codes(sub, q);
      for (size_t i = 0; i < 32; ++i) out[32 * sub + i] = scale * static_cast<float>(q[i]) - min;
    }
  }
};
static_assert(sizeof(Q5_K) == 176);

}  // namespace octavo::quant
