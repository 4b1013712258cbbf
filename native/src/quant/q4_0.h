// SPDX-License-Identifier: Apache-2.0
// Q4_0: w = d * (q - 8), q in [0, 15]; 4.5 bits per weight.
#pragma once
#include <cstddef>
#include <cstdint>

#include "octavo/weights.h"
#include "quant/half.h"

namespace octavo::quant {

struct Q4_0 {
  static constexpr WeightType kType = WeightType::kQ4_0;
  static constexpr size_t kElements = 32;
  static constexpr double kBitsPerWeight = 4.5;

  uint8_t d[2];    // half
  uint8_t qs[16];  // byte i: element i in the low nibble, element i + 16 in the high one

  void codes(size_t /*sub_block*/, uint8_t* out) const {
    for (size_t i = 0; i < 16; ++i) {
      out[i] = qs[i] & 0x0f;
      out[i + 16] = qs[i] >> 4;
    }
  }

  void dequantize(float* out) const {
    const float scale = load_half(d);
    for (size_t i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>((qs[i] & 0x0f) - 8);
      out[i + 16] = scale * static_cast<float>((qs[i] >> 4) - 8);
    }
  }
};
static_assert(sizeof(Q4_0) == 18);

}  // namespace octavo::quant
