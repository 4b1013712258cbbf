// SPDX-License-Identifier: Apache-2.0
// The AVX2 vocabulary of gemm-inl.h: 8 lanes, one panel to a vector. Included inside an anonymous
// namespace; needs <immintrin.h> and the kernel contracts before it.

struct Ymm {
  using F = __m256;
  using I = __m256i;
  static constexpr size_t kPanels = 1;

  static F zero() { return _mm256_setzero_ps(); }
  static F splat(float x) { return _mm256_set1_ps(x); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F negate(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  static F cvt(I x) { return _mm256_cvtepi32_ps(x); }
  static void store(float* to, F x) { _mm256_storeu_ps(to, x); }

  static I splat8(char x) { return _mm256_set1_epi8(x); }
  static I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  static I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
  template <int kBits>
  static I left16(I x) {
    return _mm256_slli_epi16(x, kBits);
  }
  template <int kBits>
  static I right16(I x) {
    return _mm256_srli_epi16(x, kBits);
  }

  static __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static I bytes(const std::byte* p, size_t /*stride*/) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static I widen16(const std::byte* p, size_t /*stride*/) {
    return _mm256_cvtepi8_epi16(load16(p));
  }
  static F halves(const std::byte* p, size_t /*stride*/) { return _mm256_cvtph_ps(load16(p)); }
  static F bytes_f(const std::byte* p, size_t /*stride*/) {
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return cvt(_mm256_cvtepu8_epi32(eight));
  }
  static F floats(const std::byte* p, size_t /*stride*/) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
  static F bfloats(const std::byte* p, size_t /*stride*/) {
    const __m256i wide = _mm256_cvtepu16_epi32(load16(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static I broadcast32(const void* p) {
    return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
  }

  static I dot16(I sum, I w, I a) { return _mm256_add_epi32(sum, _mm256_madd_epi16(w, a)); }

  // Keeps GCC from turning a chain of additions into a tree, whose many partial sums it would
  // spill: the 4-bit product loses 8 % by that.
  static void in_order(I& sum) { __asm__("" : "+x"(sum)); }

  template <int kBits>
  struct HalfScales {};

  // maddubs adds two products of a code and an activation in [-127, 127] into an int16, saturating.
  // As many of those fit an int16 as are added before the widening multiply: of 4-bit codes all 8
  // of a block (8 * 2 * 15 * 127 = 30 480), of 5-bit codes 4 (31 496). The widening multiply runs
  // on the port that the products need, so fewer of them is what makes narrow codes faster than
  // 8-bit ones.
  template <int kBits>
  struct Dot {
    static constexpr int kRun = kBits == 4 ? 8 : 4;
    I run;
    I wide;

    template <int kStep>
    void add(I codes, I a, const HalfScales<kBits>&) {
      const I products = _mm256_maddubs_epi16(codes, a);
      run = kStep % kRun == 0 ? products : _mm256_add_epi16(run, products);
      in_order(run);
      if constexpr (kStep % kRun == kRun - 1) {
        const I sum = _mm256_madd_epi16(run, _mm256_set1_epi16(1));
        wide = kStep < kRun ? sum : _mm256_add_epi32(wide, sum);
        in_order(wide);
      }
    }
    I total() const { return wide; }
  };
};

// Q6_K: the int8 scales of both halves of one block, each twice per lane so that the widening
// multiply applies it, and -32 times both for the correction by the activations' own sums.
template <>
struct Ymm::HalfScales<6> {
  I half[2];
  I correction;

  void load(const std::byte* p, size_t stride) {
    const I both = widen16(p, stride);  // lane r: S[r][0], S[r][1]
    half[0] = _mm256_or_si256(_mm256_slli_epi32(both, 16),
                              _mm256_and_si256(both, _mm256_set1_epi32(0xffff)));
    half[1] = _mm256_or_si256(_mm256_srli_epi32(both, 16),
                              _mm256_and_si256(both, _mm256_set1_epi32(-0x10000)));
    correction = _mm256_mullo_epi16(both, _mm256_set1_epi16(-32));
  }
};

template <>
struct Ymm::Dot<6> {  // 2 * 2 * 63 * 127 = 32 004: two maddubs fit
  I run;
  I wide;

  template <int kStep>
  void add(I codes, I a, const HalfScales<6>& scales) {
    const I products = _mm256_maddubs_epi16(codes, a);
    run = kStep % 2 == 0 ? products : _mm256_add_epi16(run, products);
    in_order(run);
    if constexpr (kStep % 2 == 1) {
      const I sum = _mm256_madd_epi16(run, scales.half[kStep / 4]);
      wide = kStep < 2 ? sum : _mm256_add_epi32(wide, sum);
      in_order(wide);
    }
  }
  I total(const HalfScales<6>& scales, I half_sums) const {
    return _mm256_add_epi32(wide, _mm256_madd_epi16(half_sums, scales.correction));
  }
};
