// SPDX-License-Identifier: Apache-2.0
// How the queries of a step are cut into pieces of work for attention.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/kernels.h"

namespace octavo {

struct StepInput;
struct TokenRun;

// One piece of work, done for every KV head in turn.
struct QueryTile {
  enum class Kind : uint8_t {
    kWhole,    // tokens of one run, with all that they see
    kSegment,  // one token, one segment into a cell
    kRest,     // one token, from keys.begin on: its cells before that have been filled
    kShared,   // tokens of several runs, each its only one, part of one segment into cells
  };
  Kind kind = Kind::kWhole;
  size_t run_idx = 0;     // kShared: whose block table names the keys
  size_t offset = 0;      // kWhole: from the run's first token; kShared: the first of members()
  size_t num_tokens = 1;  // kShared: members
  KeyRange keys = {};     // all but kWhole
};

// Decides speed and nothing else: a row computes the same in any tile, since segments are folded
// from their beginning and merged in order however their keys are shared out.
//
// Sequences whose tables begin with the same blocks (a system prompt, samples of one prompt) read
// those once together; then each reads the rest of its own. Cells, one per run and segment, carry a
// row's state from one piece to the next.
class AttentionPlan {
 public:
  struct Limits {
    size_t num_kv_heads;  // the least of all layers
    size_t block_size;
    size_t cells_max;
    size_t window;  // the widest of all layers; 0: some layer sees everything
  };

  explicit AttentionPlan(const Limits& limits) : limits_(limits) {}

  void make(const StepInput& input, size_t num_threads);

  // Filled before any of tiles() begins.
  std::span<const QueryTile> shared() const { return shared_; }
  // In the order of their cost, the dearest first.
  std::span<const QueryTile> tiles() const { return tiles_; }
  // Runs cut into kSegment tiles: merged when all of tiles() are done.
  std::span<const size_t> split_runs() const { return split_runs_; }
  // Runs of the kShared tiles.
  std::span<const size_t> members() const { return members_; }
  size_t cell(size_t run_idx, size_t segment) const { return first_cell_[run_idx] + segment; }

  static constexpr size_t kQueryTokensMax = 32;  // of one tile: keys are converted once for all

 private:
  // Single-token runs that begin with the same block, not yet in a group.
  struct Candidate {
    size_t run_idx;
    size_t num_common;  // keys in common with the first of them
  };

  bool may_share(const TokenRun& run) const;
  void share_prefixes(const StepInput& input);
  bool share_with_first(const StepInput& input, std::vector<Candidate>& bucket);
  void add_group(std::span<const Candidate> group, size_t num_keys);
  size_t common_keys(const TokenRun& a, const TokenRun& b) const;
  bool take_cells(size_t run_idx, const TokenRun& run);

  Limits limits_;
  std::vector<QueryTile> shared_;
  std::vector<QueryTile> tiles_;
  std::vector<size_t> split_runs_;
  std::vector<size_t> members_;
  std::vector<size_t> first_cell_;  // per run
  std::vector<size_t> own_begin_;   // per run: keys before this are read in shared tiles
  std::vector<size_t> order_;
  std::vector<Candidate> bucket_;
  size_t num_cells_ = 0;
};

// Segments that the last token of a run sees.
size_t num_segments(const TokenRun& run);

}  // namespace octavo
