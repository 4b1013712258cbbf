// SPDX-License-Identifier: Apache-2.0
// Eight float lanes in portable C++: the definition that every other lanes-inl.h must match bit for
// bit. Each lane operation is one correctly rounded IEEE operation. max and min return their second
// operand when either is NaN, as x86 does: callers rely on it to let a NaN through a clamp, or to
// drop it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace octavo::scalar {
namespace {

constexpr size_t kLanes = 8;

struct V {
  float at[kLanes];
};
struct Mask {
  bool at[kLanes];
};

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Round to nearest, ties to even; overflow becomes infinity, a NaN keeps its top bits and turns
// quiet.
inline uint16_t half_of_float(float x) {
  const uint32_t bits = bits_of(x);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and above
  uint32_t kept;       // the result's 15 bits before rounding
  uint32_t remainder;  // what is cut off, and half a unit of it
  uint32_t tie;
  if (magnitude >= 0x38800000u) {  // 2^-14: normal halves
    kept = (magnitude - 0x38000000u) >> 13;
    remainder = magnitude & 0x1fffu;
    tie = 0x1000u;
  } else {
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return sign;  // below 2^-25, half of the smallest half
    const uint32_t shift = 126 - exponent;
    const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    kept = significand >> shift;
    remainder = significand & ((1u << shift) - 1);
    tie = 1u << (shift - 1);
  }
  // A carry out of the fraction moves into the exponent, up to infinity: the encoding is monotonic.
  if (remainder > tie || (remainder == tie && (kept & 1u))) ++kept;
  return static_cast<uint16_t>(sign | kept);
}

template <class F>
inline V each(F f) {
  V out;
  for (size_t i = 0; i < kLanes; ++i) out.at[i] = f(i);
  return out;
}

inline V load(const float* p) {
  return each([&](size_t i) { return p[i]; });
}
inline V load(const uint16_t* halves) {
  return each([&](size_t i) { return quant::half_to_float(halves[i]); });
}
inline void store(float* p, V a) { std::memcpy(p, a.at, sizeof a.at); }
inline void store_half(uint16_t* p, V a) {
  for (size_t i = 0; i < kLanes; ++i) p[i] = half_of_float(a.at[i]);
}
inline V set1(float x) {
  return each([&](size_t) { return x; });
}
inline V iota() {
  return each([](size_t i) { return static_cast<float>(i); });
}
inline float first_lane(V a) { return a.at[0]; }

inline V add(V a, V b) {
  return each([&](size_t i) { return a.at[i] + b.at[i]; });
}
inline V sub(V a, V b) {
  return each([&](size_t i) { return a.at[i] - b.at[i]; });
}
inline V mul(V a, V b) {
  return each([&](size_t i) { return a.at[i] * b.at[i]; });
}
inline V div(V a, V b) {
  return each([&](size_t i) { return a.at[i] / b.at[i]; });
}
inline V fma(V a, V b, V c) {
  return each([&](size_t i) { return __builtin_fmaf(a.at[i], b.at[i], c.at[i]); });
}
inline V max(V a, V b) {
  return each([&](size_t i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
}
inline V min(V a, V b) {
  return each([&](size_t i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; });
}
inline V abs(V a) {
  return each([&](size_t i) { return float_of(bits_of(a.at[i]) & 0x7fffffffu); });
}
inline V copy_sign(V magnitude, V sign) {
  return each([&](size_t i) {
    return float_of((bits_of(magnitude.at[i]) & 0x7fffffffu) | (bits_of(sign.at[i]) & 0x80000000u));
  });
}
inline Mask less(V a, V b) {  // false where either is NaN
  Mask mask;
  for (size_t i = 0; i < kLanes; ++i) mask.at[i] = a.at[i] < b.at[i];
  return mask;
}
inline V select(Mask mask, V yes, V no) {
  return each([&](size_t i) { return mask.at[i] ? yes.at[i] : no.at[i]; });
}
// 2^n, -126 <= n <= 127, from n + 1.5 * 2^23, whose low bits are n.
inline V power_of_two(V biased) {
  return each([&](size_t i) { return float_of((bits_of(biased.at[i]) << 23) + 0x3f800000u); });
}
inline V swap_pairs(V a) {
  return each([&](size_t i) { return a.at[i ^ 1]; });
}
inline V load_twice(const float* p) {  // p[0] p[0] p[1] p[1] .. p[3]
  return each([&](size_t i) { return p[i / 2]; });
}
inline float sum_lanes(V a) {
  const float* x = a.at;
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
inline float larger(float a, float b) { return a > b ? a : b; }
inline float max_lanes(V a) {
  const float* x = a.at;
  return larger(larger(larger(x[0], x[4]), larger(x[2], x[6])),
                larger(larger(x[1], x[5]), larger(x[3], x[7])));
}

}  // namespace
}  // namespace octavo::scalar
