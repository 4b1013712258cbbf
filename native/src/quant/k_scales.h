// SPDX-License-Identifier: Apache-2.0
// The eight 6-bit scales and eight 6-bit mins that Q4_K and Q5_K squeeze into 12 bytes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace octavo::quant {

// Bytes 0-3 and 4-7 hold scales and mins of sub-blocks 0-3 in their low six bits. Sub-blocks 4-7
// have their low four bits in bytes 8-11 (scale in the low nibble, min in the high one) and their
// top two in the top two bits of bytes 0-3 (scale) and 4-7 (min).
inline uint8_t k_scale(const uint8_t* packed, size_t sub_block) {
  if (sub_block < 4) return packed[sub_block] & 0x3f;
  const int low = packed[sub_block + 4] & 0x0f;
  return static_cast<uint8_t>(low | ((packed[sub_block - 4] >> 6) << 4));
}

inline uint8_t k_min(const uint8_t* packed, size_t sub_block) {
  if (sub_block < 4) return packed[sub_block + 4] & 0x3f;
  const int low = packed[sub_block + 4] >> 4;
  return static_cast<uint8_t>(low | ((packed[sub_block] >> 6) << 4));
}

}  // namespace octavo::quant
