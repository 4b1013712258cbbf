// SPDX-License-Identifier: Apache-2.0
// Eight float lanes in AVX2, FMA and F16C. Same bits as scalar/lanes-inl.h, operation by operation.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace octavo::avx2 {
namespace {

constexpr size_t kLanes = 8;

using V = __m256;
using Mask = __m256;

inline V load(const float* p) { return _mm256_loadu_ps(p); }
inline V load(const uint16_t* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}
inline void store(float* p, V a) { _mm256_storeu_ps(p, a); }
inline void store_half(uint16_t* p, V a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
inline V set1(float x) { return _mm256_set1_ps(x); }
inline V iota() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
inline float first_lane(V a) { return _mm256_cvtss_f32(a); }

inline V add(V a, V b) { return _mm256_add_ps(a, b); }
inline V sub(V a, V b) { return _mm256_sub_ps(a, b); }
inline V mul(V a, V b) { return _mm256_mul_ps(a, b); }
inline V div(V a, V b) { return _mm256_div_ps(a, b); }
inline V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
inline V max(V a, V b) { return _mm256_max_ps(a, b); }
inline V min(V a, V b) { return _mm256_min_ps(a, b); }
inline V abs(V a) { return _mm256_andnot_ps(set1(-0.0f), a); }
inline V copy_sign(V magnitude, V sign) {
  return _mm256_or_ps(abs(magnitude), _mm256_and_ps(set1(-0.0f), sign));
}
inline Mask less(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline V select(Mask mask, V yes, V no) { return _mm256_blendv_ps(no, yes, mask); }
inline V power_of_two(V biased) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(biased), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000)));
}
inline V swap_pairs(V a) { return _mm256_permute_ps(a, 0xb1); }
inline V load_twice(const float* p) {
  const __m256 four = _mm256_castps128_ps256(_mm_loadu_ps(p));
  return _mm256_permutevar8x32_ps(four, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
inline float sum_lanes(V a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float larger(float a, float b) {
  return _mm_cvtss_f32(_mm_max_ss(_mm_set_ss(a), _mm_set_ss(b)));
}
inline float max_lanes(V a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

}  // namespace
}  // namespace octavo::avx2
