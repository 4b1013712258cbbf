// SPDX-License-Identifier: Apache-2.0
// The activation quantisers with AVX2 instructions; included inside an anonymous namespace like
// gemm-inl.h. The same operations as scalar/gemm.cc, where what happens to tiny and to non-finite
// inputs is written.

struct Step {  // q = round(x * inverse), x ~ q * scale
  float scale;
  float inverse;
};

inline Step step_for(uint32_t magnitude_bits, float levels) {
  if (magnitude_bits >= 0x7f800000u) return {__builtin_nanf(""), 0.0f};
  const float amplitude = __builtin_bit_cast(float, magnitude_bits);
  if (amplitude < 1e-30f) return {0.0f, 0.0f};
  return {amplitude / levels, levels / amplitude};
}

inline __m256i magnitude_bits(const float* x) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
}

inline uint32_t max_lane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

inline __m256i round8(const float* x, __m256 inverse) {  // to even: the default rounding mode
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

void quantize_a8(const float* x, size_t cols, size_t lane, int8_t* a8, float* scale, float* sum,
                 int16_t* half_sum) noexcept {
  for (size_t b = 0; b < cols / 32; ++b, x += 32) {
    const __m256i low = _mm256_max_epi32(magnitude_bits(x), magnitude_bits(x + 8));
    const __m256i high = _mm256_max_epi32(magnitude_bits(x + 16), magnitude_bits(x + 24));
    const Step step = step_for(max_lane(_mm256_max_epi32(low, high)), 127.0f);
    const size_t at = b * kTokenTile + lane;
    __m256i q = _mm256_setzero_si256();
    if (step.inverse != 0.0f) {
      const __m256 inverse = _mm256_set1_ps(step.inverse);
      const __m256i first = _mm256_packs_epi32(round8(x, inverse), round8(x + 8, inverse));
      const __m256i second = _mm256_packs_epi32(round8(x + 16, inverse), round8(x + 24, inverse));
      // Packing works within 128-bit halves; dwords 0 4 1 5 2 6 3 7 put columns back in order.
      q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second),
                                      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(a8 + at * 32), q);
    // Sums of 16: ones (u8) times q, widened; each 128-bit half is one half of the block.
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(1, 0, 3, 2)));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(2, 3, 0, 1)));
    const int32_t half0 = _mm_cvtsi128_si32(_mm256_castsi256_si128(sums));
    const int32_t half1 = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
    scale[at] = step.scale;
    sum[at] = step.scale * static_cast<float>(half0 + half1);
    half_sum[2 * at] = static_cast<int16_t>(half0);
    half_sum[2 * at + 1] = static_cast<int16_t>(half1);
  }
}

void quantize_a16(const float* x, size_t cols, size_t lane, int16_t* a16, float* scale) noexcept {
  const size_t body = cols - cols % 8;
  __m256i most = _mm256_setzero_si256();
  for (size_t k = 0; k < body; k += 8) most = _mm256_max_epi32(most, magnitude_bits(x + k));
  uint32_t bits = max_lane(most);
  for (size_t k = body; k < cols; ++k) {
    const uint32_t one = __builtin_bit_cast(uint32_t, x[k]) & 0x7fffffffu;
    bits = one > bits ? one : bits;
  }
  const Step step = step_for(bits, 32767.0f);
  int16_t* to = a16 + 2 * lane;  // columns 2i, 2i + 1 at 8i
  for (size_t k = 0; k < cols; k += 2) {
    uint32_t pair = 0;
    if (step.inverse != 0.0f) {
      const __m128 two = _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(x + k)));
      const __m128i q = _mm_cvtps_epi32(_mm_mul_ps(two, _mm_set1_ps(step.inverse)));
      pair = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_packs_epi32(q, q)));
    }
    __builtin_memcpy(to + 4 * k, &pair, sizeof pair);
  }
  scale[lane] = step.scale;
}
