// SPDX-License-Identifier: Apache-2.0
// The rows of a worker: one per live sequence.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/decoder.h"

namespace octavo {

struct Row {
  bool is_open = false;
  std::vector<int32_t> table;         // block ids, in order of position
  size_t num_computed = 0;            // tokens that the table's slots hold
  std::optional<int32_t> last_token;  // sampled last and not yet computed
  std::string failure;  // not empty: until it is closed, its work is not run and answers this
  SamplingSpec sampling;
  TokenHistory history;  // kept if the settings need it

  bool has_failed() const { return !failure.empty(); }
};

struct RowLimits {
  size_t num_rows = 0;
  size_t num_blocks = 0;
  size_t block_size = 0;
  size_t num_swap_blocks = 0;
  size_t step_tokens_max = 0;
  size_t context_length = 0;
  size_t vocab_size = 0;
};

constexpr const char* kFailedBefore = "the row failed in an earlier step";

// Invariant: every block id in a table is inside the pool, and a row's tokens fit its table, unless
// the row has failed.
class RowTable {
 public:
  explicit RowTable(const RowLimits& limits);

  // Throws std::invalid_argument that names the field, having changed nothing, unless `batch` fits
  // the rows as they are now. What only one row can be hurt by is no reason to throw: that row will
  // have failed once the batch is applied.
  void check(const Batch& batch);

  // Applies what check() has accepted: rows closed and opened, table entries replaced and appended,
  // rows failed that it refused.
  void apply(const Batch& batch);

  // Applies of a batch that check() need not have accepted what can be: rows closed and opened; and
  // every row that is opened or has work fails.
  void abandon(const Batch& batch);

  const Row& row(size_t idx) const { return rows_[idx]; }
  void set_num_swap_blocks(size_t num_swap_blocks) { limits_.num_swap_blocks = num_swap_blocks; }

  // After the step: the work has been computed; `sampled` continues the row, if the row sampled.
  // Throws std::bad_alloc, having changed nothing, if there is no memory to remember it.
  void advance(const RowWork& work, std::optional<int32_t> sampled);

  // The row's work failed. Its next work may be planned already, by someone who could not know:
  // nothing is asked of that any more, or the whole batch of its neighbours would be refused.
  void fail(size_t row_idx) { rows_[row_idx].failure = kFailedBefore; }

 private:
  // A row as the batch would leave it.
  struct Planned {
    bool is_open = false;
    bool has_failed = false;
    size_t num_computed = 0;
    bool has_last_token = false;
    std::optional<size_t> num_known = {};  // tokens in its history, if it keeps one
    const std::vector<int32_t>* table = nullptr;
    const RowWork* work = nullptr;
  };
  // The pieces of the batch's arrays that belong to one work.
  struct Pieces {
    const int32_t* token_ids;
    const int32_t* targets;
    const int32_t* new_blocks;
    const Replacement* replaced;
  };
  struct Refusal {
    size_t row;
    std::string reason;
  };

  void check_rows(const Batch& batch);
  void check_table_of(const std::string& name, const RowOpen& open) const;
  void check_settings(const std::string& name, const RowOpen& open) const;
  void check_request(const std::string& name, const RowWork& work, const Pieces& pieces) const;
  template <class Check>
  void refuse_row_unless(size_t row, Check check);
  void check_moves(const Batch& batch) const;
  void check_sizes(const Batch& batch) const;
  void check_tokens(const std::string& name, const RowWork& work) const;
  void check_has_work(const Batch& batch);
  void check_work(const std::string& name, const RowWork& work, const Pieces& pieces);
  void check_fork(const std::string& name, const RowWork& work) const;
  void check_table(const std::string& name, const RowWork& work, const Pieces& pieces);

  RowLimits limits_;
  std::vector<Row> rows_;
  // Scratch of check(), kept to allocate once.
  std::vector<Planned> planned_;
  std::vector<Refusal> refusals_;
  std::vector<uint32_t> written_;  // per block: the check that last saw it written
  uint32_t check_id_ = 0;
};

}  // namespace octavo
