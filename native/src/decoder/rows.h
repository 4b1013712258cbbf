// SPDX-License-Identifier: Apache-2.0
// The rows of a worker: one per live sequence.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "octavo/decoder.h"

namespace octavo {

struct Row {
  bool is_open = false;
  std::vector<int32_t> table;  // block ids, in order of position
  std::optional<size_t>
      num_computed;  // nothing until the first work: a cached prefix sets the start
  std::optional<int32_t> last_token;  // sampled last and not yet computed
  bool has_failed = false;            // until it is closed, all that it asks for is an error
  SamplingSpec sampling;
};

struct RowLimits {
  size_t num_rows = 0;
  size_t num_blocks = 0;
  size_t block_size = 0;
  size_t step_tokens_max = 0;
  size_t context_length = 0;
  size_t vocab_size = 0;
};

// Invariant: every block id in a table is inside the pool, and a row's tokens fit its table.
class RowTable {
 public:
  explicit RowTable(const RowLimits& limits);

  // Throws std::invalid_argument that names the field, having changed nothing, unless `batch` fits
  // the rows as they are now.
  void check(const Batch& batch);

  // Applies what check() has accepted: rows closed and opened, tables grown.
  void apply(const Batch& batch);

  const Row& row(size_t idx) const { return rows_[idx]; }

  // After the step: the work has been computed; `sampled` continues the row, if the row sampled.
  void advance(const RowWork& work, std::optional<int32_t> sampled);

  // The same for a row whose work failed. Its next work may be planned already, by someone who
  // could not know: it must still fit the row, or the whole batch of its neighbours would be
  // refused.
  void fail(const RowWork& work);

 private:
  void check_rows(const Batch& batch);
  void check_sizes(const Batch& batch) const;
  void check_work(const Batch& batch, size_t idx, const int32_t* new_blocks);
  void check_writes(const std::string& name, const RowWork& work, const Row* row,
                    const int32_t* new_blocks);
  void check_ids(const char* field, const std::vector<int32_t>& ids, size_t limit) const;

  RowLimits limits_;
  std::vector<Row> rows_;
  // Scratch of check(), kept to allocate once. State of each row as the batch would leave it.
  enum class Planned : uint8_t { kClosed, kKept, kOpened, kWorked };
  std::vector<Planned> planned_;
  std::vector<uint32_t> written_;  // per block: the check that last saw it written
  uint32_t check_id_ = 0;
};

}  // namespace octavo
