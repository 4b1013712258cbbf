// SPDX-License-Identifier: Apache-2.0
// The AVX-VNNI vocabulary of gemm-inl.h: AVX2's, with fused integer dot products. Included after
// avx2/simd.h.

struct YmmVnni : Ymm {
  static I dot16(I sum, I w, I a) { return _mm256_dpwssd_avx_epi32(sum, w, a); }

  template <int kBits>
  struct HalfScales {};

  template <int kBits>
  struct Dot {  // vpdpbusd adds four products of u8 and s8 to an int32, exactly
    I sum;

    template <int kStep>
    void add(I codes, I a, const HalfScales<kBits>&) {
      sum = _mm256_dpbusd_avx_epi32(kStep == 0 ? _mm256_setzero_si256() : sum, codes, a);
    }
    I total() const { return sum; }
  };
};

// Q6_K: the int8 scales of both halves of one block as int32, and -32 times both, as pairs of
// int16.
template <>
struct YmmVnni::HalfScales<6> {
  I half[2];
  I correction;

  void load(const std::byte* p, size_t stride) {
    const I both = widen16(p, stride);  // lane r: S[r][0], S[r][1]
    half[0] = _mm256_srai_epi32(_mm256_slli_epi32(both, 16), 16);
    half[1] = _mm256_srai_epi32(both, 16);
    correction = _mm256_mullo_epi16(both, _mm256_set1_epi16(-32));
  }
};

template <>
struct YmmVnni::Dot<6> {
  I sum[2];

  template <int kStep>
  void add(I codes, I a, const HalfScales<6>&) {
    I& half = sum[kStep / 4];
    half = _mm256_dpbusd_avx_epi32(kStep % 4 == 0 ? _mm256_setzero_si256() : half, codes, a);
  }
  I total(const HalfScales<6>& scales, I half_sums) const {
    const I scaled = _mm256_add_epi32(_mm256_mullo_epi32(sum[0], scales.half[0]),
                                      _mm256_mullo_epi32(sum[1], scales.half[1]));
    return _mm256_dpwssd_avx_epi32(scaled, half_sums, scales.correction);
  }
};
