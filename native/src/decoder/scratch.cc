// SPDX-License-Identifier: Apache-2.0
#include "decoder/scratch.h"

namespace octavo {
namespace {

constexpr size_t kBlock = 32;  // columns that share one a8 scale

}  // namespace

void ActivationBuffer::reserve(Scratch& scratch, size_t cols_max, size_t tokens_max) {
  const size_t tokens = (tokens_max + kTokenTile - 1) / kTokenTile * kTokenTile;
  const size_t blocks = (cols_max + kBlock - 1) / kBlock;
  scratch.want(f32_, tokens * cols_max);
  scratch.want(a8_, tokens * blocks * kBlock);
  scratch.want(a8_scale_, tokens * blocks);
  scratch.want(a8_sum_, tokens * blocks);
  scratch.want(a8_half_sum_, tokens * blocks * 2);
  scratch.want(a16_, tokens * (cols_max + 1));
  scratch.want(a16_scale_, tokens);
}

void ActivationBuffer::quantize(const GemmKernels& kernels, size_t token, size_t cols,
                                ActivationKinds kinds) {
  const float* x = row(token, cols);
  if (kinds.a8) quantize_a8_columns(kernels, token, cols, 0, cols, x);
  if (kinds.a16) {
    const size_t tile = token / kTokenTile;
    kernels.quantize_a16(x, cols, token % kTokenTile, a16_ + tile * kTokenTile * cols,
                         a16_scale_ + tile * kTokenTile);
  }
}

void ActivationBuffer::quantize_a8_columns(const GemmKernels& kernels, size_t token, size_t cols,
                                           size_t col_begin, size_t num_cols, const float* x) {
  const size_t block = (token / kTokenTile) * (cols / kBlock) + col_begin / kBlock;
  const size_t cell = block * kTokenTile;
  kernels.quantize_a8(x, num_cols, token % kTokenTile, a8_ + cell * kBlock, a8_scale_ + cell,
                      a8_sum_ + cell, a8_half_sum_ + cell * 2);
}

Activations ActivationBuffer::view(size_t cols) const {
  return Activations{.cols = cols,
                     .f32 = f32_,
                     .a8 = a8_,
                     .a8_scale = a8_scale_,
                     .a8_sum = a8_sum_,
                     .a8_half_sum = a8_half_sum_,
                     .a16 = a16_,
                     .a16_scale = a16_scale_};
}

}  // namespace octavo
