// SPDX-License-Identifier: Apache-2.0
// The AVX-512 vocabulary of gemm-inl.h: 16 lanes, two panels to a vector. Included inside an
// anonymous namespace; needs <immintrin.h> and the kernel contracts before it.

struct Zmm {
  using F = __m512;
  using I = __m512i;
  static constexpr size_t kPanels = 2;

  static F zero() { return _mm512_setzero_ps(); }
  static F splat(float x) { return _mm512_set1_ps(x); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F negate(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
  static F cvt(I x) { return _mm512_cvtepi32_ps(x); }
  static void store(float* to, F x) { _mm512_storeu_ps(to, x); }

  static I splat8(char x) { return _mm512_set1_epi8(x); }
  static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  template <int kBits>
  static I left16(I x) {
    return _mm512_slli_epi16(x, kBits);
  }
  template <int kBits>
  static I right16(I x) {
    return _mm512_srli_epi16(x, kBits);
  }

  static __m128i load16(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static __m256i load32(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static __m256i two16(const std::byte* p, size_t stride) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(p)), load16(p + stride), 1);
  }
  static I bytes(const std::byte* p, size_t stride) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(load32(p)), load32(p + stride), 1);
  }
  static I widen16(const std::byte* p, size_t stride) {
    return _mm512_cvtepi8_epi16(two16(p, stride));
  }
  static F halves(const std::byte* p, size_t stride) { return _mm512_cvtph_ps(two16(p, stride)); }
  static F bytes_f(const std::byte* p, size_t stride) {
    const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i second = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + stride));
    return cvt(_mm512_cvtepu8_epi32(_mm_unpacklo_epi64(first, second)));
  }
  static F floats(const std::byte* p, size_t stride) {
    return _mm512_castsi512_ps(bytes(p, stride));
  }
  static F bfloats(const std::byte* p, size_t stride) {
    const I wide = _mm512_cvtepu16_epi32(two16(p, stride));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static I broadcast32(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
  }

  static I dot16(I sum, I w, I a) { return _mm512_dpwssd_epi32(sum, w, a); }

  template <int kBits>
  struct HalfScales {};

  template <int kBits>
  struct Dot {  // vpdpbusd adds four products of u8 and s8 to an int32, exactly
    I sum;

    template <int kStep>
    void add(I codes, I a, const HalfScales<kBits>&) {
      sum = _mm512_dpbusd_epi32(kStep == 0 ? _mm512_setzero_si512() : sum, codes, a);
    }
    I total() const { return sum; }
  };
};

// Q6_K: the int8 scales of both halves of one block as int32, and -32 times both, as pairs of
// int16, for the correction by the activations' own sums.
template <>
struct Zmm::HalfScales<6> {
  I half[2];
  I correction;

  void load(const std::byte* p, size_t stride) {
    const I both = widen16(p, stride);  // lane r: S[r][0], S[r][1]
    half[0] = _mm512_srai_epi32(_mm512_slli_epi32(both, 16), 16);
    half[1] = _mm512_srai_epi32(both, 16);
    correction = _mm512_mullo_epi16(both, _mm512_set1_epi16(-32));
  }
};

template <>
struct Zmm::Dot<6> {
  I sum[2];

  template <int kStep>
  void add(I codes, I a, const HalfScales<6>&) {
    I& half = sum[kStep / 4];
    half = _mm512_dpbusd_epi32(kStep % 4 == 0 ? _mm512_setzero_si512() : half, codes, a);
  }
  I total(const HalfScales<6>& scales, I half_sums) const {
    const I scaled = _mm512_add_epi32(_mm512_mullo_epi32(sum[0], scales.half[0]),
                                      _mm512_mullo_epi32(sum[1], scales.half[1]));
    return _mm512_dpwssd_epi32(scaled, half_sums, scales.correction);
  }
};
