// SPDX-License-Identifier: Apache-2.0
// Q4_1: w = d * q + m, q in [0, 15]; 5 bits per weight.
#pragma once
#include <cstddef>
#include <cstdint>

#include "octavo/weights.h"
#include "quant/half.h"

namespace octavo::quant {

struct Q4_1 {
  static constexpr WeightType kType = WeightType::kQ4_1;
  static constexpr size_t kElements = 32;
  static constexpr double kBitsPerWeight = 5.0;

  uint8_t d[2];    // half
  uint8_t m[2];    // half
  uint8_t qs[16];  // byte i: element i in the low nibble, element i + 16 in the high one

  void codes(size_t /*sub_block*/, uint8_t* out) const {
    for (size_t i = 0; i < 16; ++i) {
      out[i] = qs[i] & 0x0f;
      out[i + 16] = qs[i] >> 4;
    }
  }

  void dequantize(float* out) const {
    const float scale = load_half(d);
    const float min = load_half(m);
    for (size_t i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>(qs[i] & 0x0f) + min;
      out[i + 16] = scale * static_cast<float>(qs[i] >> 4) + min;
    }
  }
};
static_assert(sizeof(Q4_1) == 20);

}  // namespace octavo::quant
