// SPDX-License-Identifier: Apache-2.0
// Working memory of a step: reserved once, laid out side by side, never grown.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "octavo/kernels.h"
#include "octavo/memory.h"

namespace octavo {

// Collects what pointers want, then gives each its piece of one mapping. One mapping and not many:
// each would start on a page, and buffers that a small step walks together would fight for the same
// cache sets.
class Scratch {
 public:
  // `pointer` must stay where it is until commit().
  template <typename T>
  void want(T*& pointer, size_t count) {
    const size_t offset = bytes_;
    wants_.push_back(
        [&pointer, offset](std::byte* base) { pointer = reinterpret_cast<T*>(base + offset); });
    bytes_ += (count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
  }

  void commit() {
    mapping_ = Mapping(bytes_);
    for (const auto& give : wants_) give(mapping_.data());
    wants_.clear();
  }

  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlign = 64;
  size_t bytes_ = 0;
  std::vector<std::function<void(std::byte*)>> wants_;
  Mapping mapping_;
};

// The forms of one tensor that the matrices reading it ask for.
struct ActivationKinds {
  bool f32 = false;
  bool a8 = false;
  bool a16 = false;

  void add(WeightType type) {
    const ActivationKind kind = activation_kind(type);
    f32 |= kind == ActivationKind::kF32;
    a8 |= kind == ActivationKind::kA8;
    a16 |= kind == ActivationKind::kA16;
  }
};

// The input of a group of matrices for every token of a step, in up to three forms. The float rows
// always exist; the quantised forms are made from them token by token.
class ActivationBuffer {
 public:
  void reserve(Scratch& scratch, size_t cols_max, size_t tokens_max);

  float* row(size_t token, size_t cols) { return f32_ + token * cols; }

  // Quantises the float row of `token` into the forms of `kinds`.
  void quantize(const GemmKernels& kernels, size_t token, size_t cols, ActivationKinds kinds);

  // The a8 form of columns [col_begin, col_begin + num_cols) alone, both multiples of 32: a thread
  // that made these columns can quantise them without waiting for the rest of the row.
  void quantize_a8_columns(const GemmKernels& kernels, size_t token, size_t cols, size_t col_begin,
                           size_t num_cols, const float* x);

  Activations view(size_t cols) const;

 private:
  float* f32_ = nullptr;
  int8_t* a8_ = nullptr;
  float* a8_scale_ = nullptr;
  float* a8_sum_ = nullptr;
  int16_t* a8_half_sum_ = nullptr;
  int16_t* a16_ = nullptr;
  float* a16_scale_ = nullptr;
};

}  // namespace octavo
