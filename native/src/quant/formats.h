// SPDX-License-Identifier: Apache-2.0
// Every block format, and one place that turns a WeightType into one of them.
#pragma once
#include <stdexcept>
#include <string>

#include "octavo/weights.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace octavo::quant {

// Unquantised elements, in the shape of a block format.
template <WeightType kTensorType, size_t kBytes>
struct Plain {
  static constexpr WeightType kType = kTensorType;
  static constexpr size_t kElements = 1;
  static constexpr double kBitsPerWeight = 8.0 * kBytes;

  uint8_t bytes[kBytes];

  float value() const {
    if constexpr (kType == WeightType::kF32) return std::bit_cast<float>(load_u32(bytes));
    if constexpr (kType == WeightType::kF16) return load_half(bytes);
    if constexpr (kType == WeightType::kBF16) return bfloat_to_float(load_u16(bytes));
  }
  void dequantize(float* out) const { *out = value(); }
};

using F32 = Plain<WeightType::kF32, 4>;
using F16 = Plain<WeightType::kF16, 2>;
using BF16 = Plain<WeightType::kBF16, 2>;

// Calls visitor.template operator()<Format>() for the format of `type`.
template <typename Visitor>
decltype(auto) visit_format(WeightType type, Visitor&& visitor) {
  switch (type) {
    case WeightType::kF32:
      return visitor.template operator()<F32>();
    case WeightType::kF16:
      return visitor.template operator()<F16>();
    case WeightType::kBF16:
      return visitor.template operator()<BF16>();
    case WeightType::kQ4_0:
      return visitor.template operator()<Q4_0>();
    case WeightType::kQ4_1:
      return visitor.template operator()<Q4_1>();
    case WeightType::kQ5_0:
      return visitor.template operator()<Q5_0>();
    case WeightType::kQ5_1:
      return visitor.template operator()<Q5_1>();
    case WeightType::kQ8_0:
      return visitor.template operator()<Q8_0>();
    case WeightType::kQ4_K:
      return visitor.template operator()<Q4_K>();
    case WeightType::kQ5_K:
      return visitor.template operator()<Q5_K>();
    case WeightType::kQ6_K:
      return visitor.template operator()<Q6_K>();
  }
  throw std::invalid_argument("tensor type " + std::to_string(static_cast<uint32_t>(type)) +
                              " is not one that octavo computes with");
}

}  // namespace octavo::quant
