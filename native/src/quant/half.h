// SPDX-License-Identifier: Apache-2.0
// Sixteen-bit floats and unaligned little-endian loads, in plain integer arithmetic.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

namespace octavo::quant {

static_assert(std::endian::native == std::endian::little, "GGUF data is little-endian");

inline uint16_t load_u16(const void* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

inline uint32_t load_u32(const void* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

inline void store_u16(void* p, uint16_t value) { std::memcpy(p, &value, sizeof value); }
inline void store_u32(void* p, uint32_t value) { std::memcpy(p, &value, sizeof value); }

// IEEE half to float32, exact; a signalling NaN becomes quiet, as the hardware converters do.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  // Zero or subnormal: mantissa * 2^-24, exact in float32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline float bfloat_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline float load_half(const void* p) { return half_to_float(load_u16(p)); }

}  // namespace octavo::quant
