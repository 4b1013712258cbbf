// SPDX-License-Identifier: Apache-2.0
// Q8_0: w = d * q, q in [-128, 127]; 8.5 bits per weight.
#pragma once
#include <cstddef>
#include <cstdint>

#include "octavo/weights.h"
#include "quant/half.h"

namespace octavo::quant {

struct Q8_0 {
  static constexpr WeightType kType = WeightType::kQ8_0;
  static constexpr size_t kElements = 32;
  static constexpr double kBitsPerWeight = 8.5;

  uint8_t d[2];  // half
  int8_t qs[32];

  void dequantize(float* out) const {
    const float scale = load_half(d);
    for (size_t i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(qs[i]);
  }
};
static_assert(sizeof(Q8_0) == 34);

}  // namespace octavo::quant
