// SPDX-License-Identifier: Apache-2.0
// A row of logits as the sampler sees it: NaN turned to -inf, +inf to the greatest float, banned
// ids to -inf.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/sampler.h"

namespace octavo {

// The order of descending probability: equal logits go by ascending id. `logprob` may hold a logit.
inline bool likelier(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token_id < b.token_id);
}

constexpr float kRuledOut = -__builtin_huge_valf();
constexpr float kGreatestLogit = 0x1.fffffep+127f;

inline float sanitised(float logit) {
  const float above = logit > kRuledOut ? logit : kRuledOut;  // NaN compares false
  return above < kGreatestLogit ? above : kGreatestLogit;
}

class SanitisedLogits {
 public:
  static constexpr size_t kChunk = 1024;  // 4 KiB on the stack, in L1 for every pass over it

  // Ids outside the vocabulary are left out: they cannot be drawn anyway.
  SanitisedLogits(std::span<const float> logits, std::span<const int32_t> banned_ids);

  size_t size() const { return logits_.size(); }

  // f(first id, logits of the ids from there on) over the whole row, in order.
  template <class F>
  void for_each_chunk(F f) const {
    float chunk[kChunk];
    auto banned = banned_.begin();
    for (size_t begin = 0; begin < size(); begin += kChunk) {
      const size_t count = std::min(kChunk, size() - begin);
      for (size_t i = 0; i < count; ++i) chunk[i] = sanitised(logits_[begin + i]);
      for (; banned != banned_.end() && *banned < begin + count; ++banned) {
        chunk[*banned - begin] = kRuledOut;
      }
      f(begin, std::span<const float>(chunk, count));
    }
  }

  // The greatest logit, -inf if nothing can be drawn.
  float max(const VectorKernels& kernels) const;
  // The lowest id that has it.
  size_t argmax(const VectorKernels& kernels) const;

  // The `count` likeliest ids of those with logit >= floor (all if fewer), likeliest first, as (id,
  // logit). -inf never qualifies. O(size), plus sorting what is kept.
  void keep_top(const VectorKernels& kernels, size_t count, float floor,
                std::vector<TokenLogprob>& kept) const;

 private:
  std::span<const float> logits_;
  std::vector<size_t> banned_;  // ascending
};

}  // namespace octavo
