// SPDX-License-Identifier: Apache-2.0
#include "decoder/rope.h"

#include <algorithm>
#include <cmath>

namespace octavo {

RopeTable::RopeTable(const RopeConfig& config, size_t context_length)
    : config_(config),
      num_pairs_(config.inv_freq.size()),
      mapping_(std::max<size_t>(64, context_length * 2 * num_pairs_ * sizeof(float))),
      values_(reinterpret_cast<float*>(mapping_.data())) {}

// In double: at position 100 000 a float angle is wrong by up to 0.004 radians, more than the
// rounding of everything else in a head.
void RopeTable::prepare(size_t num_positions) {
  for (; num_ready_ < num_positions; ++num_ready_) {
    float* cos = values_ + num_ready_ * 2 * num_pairs_;
    float* sin = cos + num_pairs_;
    for (size_t i = 0; i < num_pairs_; ++i) {
      const double angle = static_cast<double>(num_ready_) * config_.inv_freq[i];
      cos[i] = static_cast<float>(std::cos(angle) * config_.magnitude);
      sin[i] = static_cast<float>(std::sin(angle) * config_.magnitude);
    }
  }
}

}  // namespace octavo
