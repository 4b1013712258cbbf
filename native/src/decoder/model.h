// SPDX-License-Identifier: Apache-2.0
// The weights of one decoder, slot by slot.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/decoder.h"
#include "octavo/memory.h"
#include "octavo/thread_pool.h"

namespace octavo {

// What a slot must hold; a vector has one row. Null: the configuration has no use for the slot.
struct SlotShape {
  size_t rows = 0;
  size_t cols = 0;
  bool is_matrix = false;
};
std::optional<SlotShape> slot_shape(const DecoderConfig& config, Slot slot,
                                    std::optional<size_t> layer_idx);

// The tensors of one layer, or of the model itself. Owns nothing.
class SlotSet {
 public:
  const PackedMatrix& matrix(Slot slot) const { return matrices_[static_cast<size_t>(slot)]; }
  const float* vector(Slot slot) const { return vectors_[static_cast<size_t>(slot)]; }
  bool holds(Slot slot) const { return matrix(slot).panels != nullptr || vector(slot) != nullptr; }

 private:
  friend class Model;
  std::array<PackedMatrix, kNumSlots> matrices_{};
  std::array<const float*, kNumSlots> vectors_{};
};

// Invariant: a filled slot has the shape that the configuration gives it, and is filled once.
class Model {
 public:
  explicit Model(const DecoderConfig& config);

  void load_matrix(Slot slot, std::optional<size_t> layer_idx, WeightType type, size_t rows,
                   size_t cols, std::span<const std::byte> data, ThreadPool& pool);
  void load_vector(Slot slot, std::optional<size_t> layer_idx, std::span<const float> values);
  void check_complete() const;

  const SlotSet& top() const { return top_; }
  const SlotSet& layer(size_t idx) const { return layers_[idx]; }
  const PackedMatrix& output() const {
    return top_.matrix(config_.tied_output ? Slot::kEmbedding : Slot::kOutput);
  }
  size_t bytes() const;

 private:
  SlotSet& target(Slot slot, std::optional<size_t> layer_idx);
  std::byte* take(size_t bytes);

  const DecoderConfig& config_;
  SlotSet top_;
  std::vector<SlotSet> layers_;
  std::vector<Arena> arenas_;  // only the last one still has room
};

}  // namespace octavo
