// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of every position computed so far.
#pragma once
#include <cstddef>
#include <vector>

#include "octavo/decoder.h"
#include "octavo/memory.h"

namespace octavo {

// Invariant: positions below `num_ready` are filled. Addresses for the whole context are reserved
// at once and committed as positions are reached, so growing never moves a table or allocates.
class RopeTable {
 public:
  RopeTable(const RopeConfig& config, size_t context_length);

  void prepare(size_t num_positions);  // at most context_length

  const float* cos(size_t position) const { return values_ + position * 2 * num_pairs_; }
  const float* sin(size_t position) const { return cos(position) + num_pairs_; }
  size_t num_pairs() const { return num_pairs_; }
  RopePairing pairing() const { return config_.pairing; }
  size_t bytes() const { return mapping_.size(); }

 private:
  RopeConfig config_;
  size_t num_pairs_;
  size_t num_ready_ = 0;
  Mapping mapping_;
  float* values_ = nullptr;  // [position][cos, sin][num_pairs]
};

}  // namespace octavo
