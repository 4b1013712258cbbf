// SPDX-License-Identifier: Apache-2.0
// The oracle and the fallback: every product written out, lanes in a plain loop. What the
// arithmetic of a matrix product *is* stands here; the other tables only advance more of it at a
// time.
//
// Per row and token, blocks of 32 columns in order:
//   4 and 5-bit types   acc = fma(float(sum q * a), D * scale, acc); acc = fma(M, scale_sum, acc)
//   Q6_K                acc = fma(float(sum over halves S[h] * (sum q * a - 32 * half_sum[h])),
//                                 D * scale, acc)
//   Q8_0                acc = fma(float(sum q * a16), D, acc); out = acc * token_scale
// and column by column for plain types: acc = fma(w, x, acc). Integer sums are exact in int32.
#include <algorithm>
#include <bit>
#include <cmath>

#include "octavo/kernels.h"
#include "quant/half.h"
#include "quant/panel_codes.h"
#include "quant/panel_layout.h"

namespace octavo::scalar {
namespace {

using quant::PanelLayout;

struct Block {  // 8 rows x 32 columns
  uint8_t codes[kPanelRows][32];
  float d[kPanelRows];
  float m[kPanelRows];
  int8_t half_scale[kPanelRows][2];  // Q6_K
};

template <WeightType kType>
void load_block(const std::byte* panel, const PanelLayout& at, size_t b, Block& out) {
  for (size_t r = 0; r < kPanelRows; ++r) {
    quant::get_codes(kType, at, b, r, panel, out.codes[r]);
    if constexpr (kType == WeightType::kQ6_K) {
      const std::byte* scales = panel + b / 8 * quant::scale_bytes(kType);
      out.d[r] = quant::load_half(scales + 2 * r);
      for (size_t h = 0; h < 2; ++h) {
        out.half_scale[r][h] = static_cast<int8_t>(scales[16 + 16 * (b % 8) + 2 * r + h]);
      }
    } else {
      const quant::BlockScale scale = quant::get_scale(kType, b, r, panel);
      out.d[r] = scale.d[0];
      out.m[r] = scale.m;
    }
  }
}

int32_t dot16(const uint8_t* codes, const int8_t* a) {
  int32_t sum = 0;
  for (size_t k = 0; k < 16; ++k) sum += codes[k] * a[k];
  return sum;
}

template <WeightType kType>
void add_block(const Block& w, const Activations& x, size_t token, size_t b, float* acc) {
  const size_t lane = ((token / kTokenTile) * (x.cols / 32) + b) * kTokenTile + token % kTokenTile;
  const int8_t* a = x.a8 + lane * 32;
  const float scale = x.a8_scale[lane];
  for (size_t r = 0; r < kPanelRows; ++r) {
    const int32_t low = dot16(w.codes[r], a);
    const int32_t high = dot16(w.codes[r] + 16, a + 16);
    if constexpr (kType == WeightType::kQ6_K) {
      const int16_t* half_sum = x.a8_half_sum + lane * 2;
      const int32_t sum = w.half_scale[r][0] * (low - 32 * half_sum[0]) +
                          w.half_scale[r][1] * (high - 32 * half_sum[1]);
      acc[r] = std::fma(static_cast<float>(sum), w.d[r] * scale, acc[r]);
    } else {
      acc[r] = std::fma(static_cast<float>(low + high), w.d[r] * scale, acc[r]);
      acc[r] = std::fma(w.m[r], x.a8_sum[lane], acc[r]);
    }
  }
}

template <WeightType kType>
void gemm_a8(const std::byte* panels, size_t num_panels, size_t cols, const Activations& x,
             size_t token_begin, size_t token_end, float* out, size_t out_stride) noexcept {
  const PanelLayout at = quant::panel_layout(kType, cols);
  for (size_t p = 0; p < num_panels; ++p, panels += at.bytes, out += kPanelRows) {
    for (size_t t = token_begin; t < token_end; ++t) {
      std::fill_n(out + (t - token_begin) * out_stride, kPanelRows, 0.0f);
    }
    for (size_t b = 0; b < cols / 32; ++b) {
      Block block;
      load_block<kType>(panels, at, b, block);
      for (size_t t = token_begin; t < token_end; ++t) {
        add_block<kType>(block, x, t, b, out + (t - token_begin) * out_stride);
      }
    }
  }
}

void gemm_q8_0(const std::byte* panels, size_t num_panels, size_t cols, const Activations& x,
               size_t token_begin, size_t token_end, float* out, size_t out_stride) noexcept {
  const PanelLayout at = quant::panel_layout(WeightType::kQ8_0, cols);
  for (size_t p = 0; p < num_panels; ++p, panels += at.bytes, out += kPanelRows) {
    const int8_t* values = reinterpret_cast<const int8_t*>(panels + at.values);
    for (size_t t = token_begin; t < token_end; ++t) {
      const int16_t* a = x.a16 + (t / kTokenTile) * cols * kTokenTile + (t % kTokenTile) * 2;
      float acc[kPanelRows] = {};
      for (size_t b = 0; b < cols / 32; ++b) {
        int32_t sum[kPanelRows] = {};
        for (size_t k = 32 * b; k < 32 * b + 32; k += 2) {
          const int8_t* w = values + 8 * k;
          const int16_t* pair = a + k * kTokenTile;
          for (size_t r = 0; r < kPanelRows; ++r) {
            sum[r] += w[2 * r] * pair[0] + w[2 * r + 1] * pair[1];
          }
        }
        for (size_t r = 0; r < kPanelRows; ++r) {
          const float d = quant::load_half(panels + 16 * b + 2 * r);
          acc[r] = std::fma(static_cast<float>(sum[r]), d, acc[r]);
        }
      }
      for (size_t r = 0; r < kPanelRows; ++r) {
        out[(t - token_begin) * out_stride + r] = acc[r] * x.a16_scale[t];
      }
    }
  }
}

template <WeightType kType>
float plain_weight(const std::byte* values, size_t idx) {
  if constexpr (kType == WeightType::kF32) {
    return std::bit_cast<float>(quant::load_u32(values + 4 * idx));
  } else {
    const uint16_t bits = quant::load_u16(values + 2 * idx);
    return kType == WeightType::kF16 ? quant::half_to_float(bits) : quant::bfloat_to_float(bits);
  }
}

template <WeightType kType>
void gemm_plain(const std::byte* panels, size_t num_panels, size_t cols, const Activations& x,
                size_t token_begin, size_t token_end, float* out, size_t out_stride) noexcept {
  const PanelLayout at = quant::panel_layout(kType, cols);
  for (size_t p = 0; p < num_panels; ++p, panels += at.bytes, out += kPanelRows) {
    for (size_t t = token_begin; t < token_end; ++t) {
      float acc[kPanelRows] = {};
      for (size_t k = 0; k < cols; ++k) {
        const float input = x.f32[t * cols + k];
        for (size_t r = 0; r < kPanelRows; ++r) {
          acc[r] = std::fma(plain_weight<kType>(panels + at.values, 8 * k + r), input, acc[r]);
        }
      }
      std::copy_n(acc, kPanelRows, out + (t - token_begin) * out_stride);
    }
  }
}

// The largest magnitude, by the bits: for non-negative floats integer order is float order, and
// infinities and NaNs come out on top instead of getting lost in a comparison.
uint32_t max_magnitude_bits(const float* x, size_t n) {
  uint32_t most = 0;
  for (size_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return most;
}

struct Step {  // of a quantiser: q = round(x * inverse), x ~ q * scale
  float scale;
  float inverse;
};

// Amplitudes below 1e-30 quantise to zero: their inverse would overflow. A non-finite input gives
// scale NaN and q 0, so that it shows in every output of its token and in no other token's.
Step step_for(uint32_t magnitude_bits, float levels) {
  if (magnitude_bits >= 0x7f800000u) return {std::bit_cast<float>(0x7fc00000u), 0.0f};
  const float amplitude = std::bit_cast<float>(magnitude_bits);
  if (amplitude < 1e-30f) return {0.0f, 0.0f};
  return {amplitude / levels, levels / amplitude};
}

// Half to even; |x * inverse| <= levels * (1 + 2 eps), so the result is within the levels.
int32_t round_to_int(float x, const Step& step) {
  if (step.inverse == 0.0f) return 0;
  return static_cast<int32_t>(std::nearbyint(x * step.inverse));
}

void quantize_a8(const float* x, size_t cols, size_t lane, int8_t* a8, float* scale, float* sum,
                 int16_t* half_sum) noexcept {
  for (size_t b = 0; b < cols / 32; ++b, x += 32) {
    const Step step = step_for(max_magnitude_bits(x, 32), 127.0f);
    const size_t at = b * kTokenTile + lane;
    int32_t halves[2] = {0, 0};
    for (size_t k = 0; k < 32; ++k) {
      const int32_t q = round_to_int(x[k], step);
      a8[at * 32 + k] = static_cast<int8_t>(q);
      halves[k / 16] += q;
    }
    scale[at] = step.scale;
    sum[at] = step.scale * static_cast<float>(halves[0] + halves[1]);
    half_sum[2 * at] = static_cast<int16_t>(halves[0]);
    half_sum[2 * at + 1] = static_cast<int16_t>(halves[1]);
  }
}

void quantize_a16(const float* x, size_t cols, size_t lane, int16_t* a16, float* scale) noexcept {
  const Step step = step_for(max_magnitude_bits(x, cols), 32767.0f);
  for (size_t k = 0; k < cols; ++k) {
    a16[(k / 2) * 2 * kTokenTile + 2 * lane + k % 2] =
        static_cast<int16_t>(round_to_int(x[k], step));
  }
  scale[lane] = step.scale;
}

}  // namespace

extern const GemmKernels kGemm;
constinit const GemmKernels kGemm{
    .f32 = gemm_plain<WeightType::kF32>,
    .f16 = gemm_plain<WeightType::kF16>,
    .bf16 = gemm_plain<WeightType::kBF16>,
    .q8_0 = gemm_q8_0,
    .q4_0 = gemm_a8<WeightType::kQ4_0>,
    .q4_1 = gemm_a8<WeightType::kQ4_1>,
    .q5_0 = gemm_a8<WeightType::kQ5_0>,
    .q5_1 = gemm_a8<WeightType::kQ5_1>,
    .q4_k = gemm_a8<WeightType::kQ4_K>,
    .q5_k = gemm_a8<WeightType::kQ5_K>,
    .q6_k = gemm_a8<WeightType::kQ6_K>,
    .quantize_a8 = quantize_a8,
    .quantize_a16 = quantize_a16,
};

}  // namespace octavo::scalar
