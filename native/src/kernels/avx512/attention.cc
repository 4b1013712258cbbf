// SPDX-License-Identifier: Apache-2.0
// The eight lanes of AVX2, and sixteen in the two long loops. Each lane computes what it computes
// there, so the bits are the same.
#include "kernels/avx2/lanes-inl.h"
#include "octavo/kernels.h"

namespace octavo::avx512 {
namespace {

using namespace octavo::avx2;
#include "kernels/narrow-inl.h"

struct Wide {
  using Vector = __m512;
  static constexpr size_t kTiles = 2;
  static constexpr int kRegisters = 32;

  static __m512 gather(const float* const* tiles, size_t offset) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(tiles[0] + offset)),
                              _mm256_loadu_ps(tiles[1] + offset), 1);
  }
  static __m512 gather(const uint16_t* const* tiles, size_t offset) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tiles[0] + offset));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tiles[1] + offset));
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1));
  }
  static __m512 read(const float* from) { return _mm512_loadu_ps(from); }
  static __m512 read(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void write(float* to, __m512 a) { _mm512_storeu_ps(to, a); }
  static __m512 splat(float x) { return _mm512_set1_ps(x); }
  static __m512 times(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
  static __m512 add_product(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
};

#include "kernels/attention-inl.h"
}  // namespace

extern const AttentionKernels kAttention;
constinit const AttentionKernels kAttention{store_kv, attend, attend_keys, merge};

}  // namespace octavo::avx512
