// SPDX-License-Identifier: Apache-2.0
#include "sampler/sanitised_logits.h"

#include <cmath>

namespace octavo {

SanitisedLogits::SanitisedLogits(std::span<const float> logits, std::span<const int32_t> banned_ids)
    : logits_(logits) {
  banned_.reserve(banned_ids.size());
  for (const int32_t id : banned_ids) {
    if (id >= 0 && static_cast<size_t>(id) < logits.size()) banned_.push_back(id);
  }
  std::sort(banned_.begin(), banned_.end());
}

float SanitisedLogits::max(const VectorKernels& kernels) const {
  if (banned_.empty()) return sanitised(kernels.max(logits_.data(), size()));
  float best = kRuledOut;
  for_each_chunk([&](size_t, std::span<const float> chunk) {
    best = std::max(best, kernels.max(chunk.data(), chunk.size()));
  });
  return best;
}

size_t SanitisedLogits::argmax(const VectorKernels& kernels) const {
  if (banned_.empty()) return kernels.argmax(logits_.data(), size());
  float best = kRuledOut;
  size_t best_id = 0;
  for_each_chunk([&](size_t begin, std::span<const float> chunk) {
    const size_t i = kernels.argmax(chunk.data(), chunk.size());
    if (chunk[i] > best) {
      best = chunk[i];
      best_id = begin + i;
    }
  });
  return best_id;
}

void SanitisedLogits::keep_top(const VectorKernels& kernels, size_t count, float floor,
                               std::vector<TokenLogprob>& kept) const {
  kept.clear();
  if (count == 0) return;
  const auto shrink = [&] {
    std::nth_element(kept.begin(), kept.begin() + (count - 1), kept.end(), likelier);
    kept.resize(count);
  };
  // Each shrink raises the bar, and at least `limit - count` ids must pass it before the next.
  const size_t limit = 2 * count + kChunk;
  float bar = std::max(floor, -kGreatestLogit);
  for_each_chunk([&](size_t begin, std::span<const float> chunk) {
    if (kernels.max(chunk.data(), chunk.size()) < bar) return;
    for (size_t i = 0; i < chunk.size(); ++i) {
      if (chunk[i] >= bar) kept.push_back({static_cast<int32_t>(begin + i), chunk[i]});
    }
    if (kept.size() <= limit) return;
    shrink();
    // Ids still to come are higher, so an equal logit among them loses.
    bar = std::nextafter(kept[count - 1].logprob, __builtin_huge_valf());
  });
  if (kept.size() > count) shrink();
  std::sort(kept.begin(), kept.end(), likelier);
}

}  // namespace octavo
