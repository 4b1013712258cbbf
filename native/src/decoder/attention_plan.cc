// SPDX-License-Identifier: Apache-2.0
#include "decoder/attention_plan.h"

#include <algorithm>

#include "decoder/forward.h"

namespace octavo {
namespace {

constexpr size_t kQueryTokensMin = 4;
constexpr size_t kItemsPerThread =
    4;  // items are claimed one by one; this many even out their costs
constexpr size_t kSplitSegments = 2;  // a context shorter than this many segments is never split
// Keys that a group must save its members from reading. A shared tile costs one barrier a layer and
// a copy of its rows' state, about what reading a hundred keys does.
constexpr size_t kSavedKeysMin = 128;

// Keys that the queries of a tile read: what orders the tiles, longest first.
size_t cost(const TokenRun& run, const QueryTile& tile) {
  switch (tile.kind) {
    case QueryTile::Kind::kSegment:
      return kSegmentTokens;
    case QueryTile::Kind::kRest:
      return run.start + 1 - tile.keys.begin;
    default:
      return (run.start + tile.offset + tile.num_tokens) * tile.num_tokens;
  }
}

}  // namespace

size_t num_segments(const TokenRun& run) {
  return (run.start + run.num_tokens - 1) / kSegmentTokens + 1;
}

void AttentionPlan::make(const StepInput& input, size_t num_threads) {
  const std::vector<TokenRun>& runs = input.runs;
  shared_.clear();
  tiles_.clear();
  split_runs_.clear();
  members_.clear();
  first_cell_.assign(runs.size(), 0);
  own_begin_.assign(runs.size(), 0);
  num_cells_ = 0;
  share_prefixes(input);

  const size_t items_wanted = kItemsPerThread * num_threads;
  const bool may_split = runs.size() * limits_.num_kv_heads < items_wanted;
  size_t tile_tokens = kQueryTokensMax;
  while (tile_tokens > kQueryTokensMin &&
         input.tokens.size() / tile_tokens * limits_.num_kv_heads < items_wanted) {
    tile_tokens /= 2;
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const TokenRun& run = runs[i];
    if (own_begin_[i] > 0) {
      tiles_.push_back({QueryTile::Kind::kRest, i, 0, 1, {own_begin_[i], run.start + 1}});
      continue;
    }
    const size_t segments = num_segments(run);
    const bool splits = may_split && run.num_tokens == 1 && segments >= kSplitSegments;
    if (splits && take_cells(i, run)) {
      for (size_t s = 0; s < segments; ++s) {
        const KeyRange keys{s * kSegmentTokens, (s + 1) * kSegmentTokens};
        tiles_.push_back({QueryTile::Kind::kSegment, i, 0, 1, keys});
      }
      split_runs_.push_back(i);
      continue;
    }
    for (size_t offset = 0; offset < run.num_tokens; offset += tile_tokens) {
      const size_t count = std::min(tile_tokens, run.num_tokens - offset);
      tiles_.push_back({.run_idx = i, .offset = offset, .num_tokens = count});
    }
  }
  std::stable_sort(tiles_.begin(), tiles_.end(), [&](const QueryTile& a, const QueryTile& b) {
    return cost(runs[a.run_idx], a) > cost(runs[b.run_idx], b);
  });
}

bool AttentionPlan::take_cells(size_t run_idx, const TokenRun& run) {
  const size_t count = num_segments(run);
  if (num_cells_ + count > limits_.cells_max) return false;
  first_cell_[run_idx] = num_cells_;
  num_cells_ += count;
  return true;
}

// A table behind whose first block every layer's window has moved may begin with the null block,
// and to have that in common saves nothing: nobody reads it.
bool AttentionPlan::may_share(const TokenRun& run) const {
  const bool has_slid = limits_.window > 0 && run.start + 1 >= limits_.window + limits_.block_size;
  return run.num_tokens == 1 && run.start >= kSpanTokens && !has_slid;
}

// Decoding runs fall into buckets by their first block; runs of one bucket share something.
void AttentionPlan::share_prefixes(const StepInput& input) {
  const std::vector<TokenRun>& runs = input.runs;
  order_.clear();
  for (size_t i = 0; i < runs.size(); ++i) {
    if (may_share(runs[i])) order_.push_back(i);
  }
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return runs[a].table[0] < runs[b].table[0]; });
  for (size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
    bucket_.clear();
    for (; end < order_.size() && runs[order_[end]].table[0] == runs[order_[begin]].table[0];
         ++end) {
      bucket_.push_back({order_[end], 0});
    }
    while (bucket_.size() > 1) {
      if (!share_with_first(input, bucket_)) bucket_.erase(bucket_.begin());
    }
  }
}

// Forms the group of the bucket's first run that saves the most reads of all that the cells are
// enough for, and takes it out. False when none saves enough.
bool AttentionPlan::share_with_first(const StepInput& input, std::vector<Candidate>& bucket) {
  const TokenRun& first = input.runs[bucket[0].run_idx];
  size_t num_cells = num_cells_ + num_segments(first);
  if (num_cells >= limits_.cells_max) return false;  // before tables are compared in vain
  for (Candidate& other : bucket) {
    other.num_common = common_keys(first, input.runs[other.run_idx]);
  }
  std::stable_sort(bucket.begin() + 1, bucket.end(), [](const Candidate& a, const Candidate& b) {
    return a.num_common > b.num_common;
  });
  size_t best = 0, best_saved = 0;
  for (size_t i = 1; i < bucket.size(); ++i) {
    num_cells += num_segments(input.runs[bucket[i].run_idx]);
    if (num_cells > limits_.cells_max) break;
    const size_t saved = bucket[i].num_common * i;
    if (saved >= std::max(best_saved, kSavedKeysMin)) {
      best = i;
      best_saved = saved;
    }
  }
  if (best == 0) return false;
  for (size_t i = 0; i <= best; ++i) {
    take_cells(bucket[i].run_idx, input.runs[bucket[i].run_idx]);
  }
  add_group({bucket.data(), best + 1}, bucket[best].num_common);
  bucket.erase(bucket.begin(), bucket.begin() + static_cast<ptrdiff_t>(best + 1));
  return true;
}

void AttentionPlan::add_group(std::span<const Candidate> group, size_t num_keys) {
  const size_t first_member = members_.size();
  for (const Candidate& candidate : group) {
    members_.push_back(candidate.run_idx);
    own_begin_[candidate.run_idx] = num_keys;
  }
  for (size_t begin = 0; begin < num_keys; begin += kSegmentTokens) {
    const KeyRange keys{begin, std::min(begin + kSegmentTokens, num_keys)};
    for (size_t i = 0; i < group.size(); i += kQueryTokensMax) {
      const size_t count = std::min(kQueryTokensMax, group.size() - i);
      shared_.push_back(
          {QueryTile::Kind::kShared, group[0].run_idx, first_member + i, count, keys});
    }
  }
}

// Keys before both tokens that lie in the same slots, in whole spans.
size_t AttentionPlan::common_keys(const TokenRun& a, const TokenRun& b) const {
  const size_t limit = std::min(a.start, b.start);
  const size_t num_blocks = limit / limits_.block_size + 1;
  size_t same = 0;
  while (same < num_blocks && a.table[same] == b.table[same]) ++same;
  return std::min(same * limits_.block_size, limit) / kSpanTokens * kSpanTokens;
}

}  // namespace octavo
