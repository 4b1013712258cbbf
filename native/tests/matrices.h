// SPDX-License-Identifier: Apache-2.0
// Random weights of every format and quantised activations, for tests and benchmarks.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/kernels.h"
#include "octavo/weights.h"
#include "quant/formats.h"

namespace octavo::testing {

inline constexpr WeightType kAllTypes[] = {WeightType::kF32,  WeightType::kF16,  WeightType::kBF16,
                                           WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                           WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
                                           WeightType::kQ5_K, WeightType::kQ6_K};

inline const char* type_name(WeightType type) {
  constexpr const char* kNames[] = {"f32",  "f16",  "bf16", "q8_0", "q4_0", "q4_1",
                                    "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"};
  for (size_t i = 0; i < std::size(kAllTypes); ++i) {
    if (kAllTypes[i] == type) return kNames[i];
  }
  return "?";
}

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((bits() >> 32) * n >> 32); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  float symmetric() { return static_cast<float>(2.0 * uniform() - 1.0); }

  // A half of magnitude [2^-9, 2^-3), either sign: no format's product over or underflows.
  uint16_t half() {
    return static_cast<uint16_t>((below(2) << 15) | ((6 + below(6)) << 10) | below(1024));
  }

 private:
  uint64_t state_;
};

template <typename Format>
void randomize(Format& block, Random& random) {
  auto* bytes = reinterpret_cast<uint8_t*>(&block);
  for (size_t i = 0; i < sizeof(Format); ++i) bytes[i] = static_cast<uint8_t>(random.bits());
  if constexpr (requires { block.d; }) quant::store_u16(block.d, random.half());
  if constexpr (requires { block.m; }) quant::store_u16(block.m, random.half());
  if constexpr (requires { block.dmin; }) quant::store_u16(block.dmin, random.half());
  if constexpr (Format::kType == WeightType::kF16) quant::store_u16(&block, random.half());
  if constexpr (Format::kType == WeightType::kBF16) {
    quant::store_u16(&block,
                     static_cast<uint16_t>(std::bit_cast<uint32_t>(random.symmetric()) >> 16));
  }
  if constexpr (Format::kType == WeightType::kF32) {
    quant::store_u32(&block, std::bit_cast<uint32_t>(random.symmetric()));
  }
}

inline std::vector<std::byte> random_rows(WeightType type, size_t rows, size_t cols,
                                          Random& random) {
  std::vector<std::byte> out(rows * row_bytes(type, cols));
  quant::visit_format(type, [&]<typename Format>() {
    for (size_t at = 0; at < out.size(); at += sizeof(Format)) {
      randomize(*reinterpret_cast<Format*>(out.data() + at), random);
    }
  });
  return out;
}

inline std::vector<std::byte> packed(WeightType type, const std::vector<std::byte>& file,
                                     size_t rows, size_t cols) {
  std::vector<std::byte> out(packed_bytes(type, rows, cols));
  pack_rows(type, file.data(), 0, rows, cols, out.data());
  return out;
}

inline std::vector<float> random_floats(size_t n, Random& random) {
  std::vector<float> out(n);
  for (float& x : out) x = 3.0f * random.symmetric() * random.symmetric();
  return out;
}

// A batch in every form. Unused lanes of the last tile hold garbage on purpose.
class Batch {
 public:
  Batch(const GemmKernels& kernels, const std::vector<float>& x, size_t cols)
      : num_tokens_(x.size() / cols), f32_(x) {
    const size_t num_tiles = (num_tokens_ + kTokenTile - 1) / kTokenTile;
    view_.cols = cols;
    view_.f32 = f32_.data();
    if (cols % 2 == 0) quantize_a16(kernels, num_tiles);
    if (cols % 32 == 0) quantize_a8(kernels, num_tiles);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const Activations& view() const { return view_; }
  size_t num_tokens() const { return num_tokens_; }

  // The value that the kernels for `kind` see in place of x[token][k].
  double seen(ActivationKind kind, size_t token, size_t k) const {
    const size_t tile = token / kTokenTile, lane = token % kTokenTile, cols = view_.cols;
    if (kind == ActivationKind::kF32) return f32_[token * cols + k];
    if (kind == ActivationKind::kA16) {
      const size_t at = ((tile * (cols / 2) + k / 2) * kTokenTile + lane) * 2 + k % 2;
      return static_cast<double>(a16_[at]) * a16_scale_[token];
    }
    const size_t at = (tile * (cols / 32) + k / 32) * kTokenTile + lane;
    return static_cast<double>(a8_[at * 32 + k % 32]) * a8_scale_[at];
  }

 private:
  void quantize_a8(const GemmKernels& kernels, size_t num_tiles) {
    const size_t cols = view_.cols, blocks = cols / 32 * kTokenTile;  // per tile
    a8_.assign(num_tiles * blocks * 32, 77);
    a8_scale_.assign(num_tiles * blocks, 1e30f);
    a8_sum_.assign(num_tiles * blocks, 1e30f);
    a8_half_sum_.assign(num_tiles * blocks * 2, 31000);
    for (size_t t = 0; t < num_tokens_; ++t) {
      const size_t at = t / kTokenTile * blocks;
      kernels.quantize_a8(f32_.data() + t * cols, cols, t % kTokenTile, a8_.data() + at * 32,
                          a8_scale_.data() + at, a8_sum_.data() + at, a8_half_sum_.data() + at * 2);
    }
    view_.a8 = a8_.data();
    view_.a8_scale = a8_scale_.data();
    view_.a8_sum = a8_sum_.data();
    view_.a8_half_sum = a8_half_sum_.data();
  }

  void quantize_a16(const GemmKernels& kernels, size_t num_tiles) {
    const size_t cols = view_.cols;
    a16_.assign(num_tiles * cols * kTokenTile, 30000);
    a16_scale_.assign(num_tiles * kTokenTile, 1e30f);
    for (size_t t = 0; t < num_tokens_; ++t) {
      const size_t tile = t / kTokenTile;
      kernels.quantize_a16(f32_.data() + t * cols, cols, t % kTokenTile,
                           a16_.data() + tile * cols * kTokenTile,
                           a16_scale_.data() + tile * kTokenTile);
    }
    view_.a16 = a16_.data();
    view_.a16_scale = a16_scale_.data();
  }

  size_t num_tokens_;
  std::vector<float> f32_;
  std::vector<int8_t> a8_;
  std::vector<float> a8_scale_, a8_sum_, a16_scale_;
  std::vector<int16_t> a8_half_sum_, a16_;
  Activations view_;
};

}  // namespace octavo::testing
