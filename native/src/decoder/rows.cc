// SPDX-License-Identifier: Apache-2.0
#include "decoder/rows.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

std::string indexed(const char* field, size_t idx) {
  return std::string(field) + "[" + std::to_string(idx) + "]";
}

void check_below(const std::string& field, size_t value, size_t limit) {
  if (value < limit) return;
  refuse(field + " must be in [0, " + std::to_string(limit) + "), got " + std::to_string(value));
}

// Comparisons are written so that NaN is refused too.
void check_sampling(const std::string& name, const SamplingSpec& spec, size_t vocab_size) {
  if (!(spec.temperature >= 0 && std::isfinite(spec.temperature))) {
    refuse(name + ".temperature must be finite and at least 0, got " +
           std::to_string(spec.temperature));
  }
  if (!(spec.top_p > 0 && spec.top_p <= 1)) {
    refuse(name + ".top_p must be in (0, 1], got " + std::to_string(spec.top_p));
  }
  if (!(spec.min_p >= 0 && spec.min_p <= 1)) {
    refuse(name + ".min_p must be in [0, 1], got " + std::to_string(spec.min_p));
  }
  if (spec.num_logprobs < -1 || spec.num_logprobs > static_cast<int64_t>(vocab_size)) {
    refuse(name + ".num_logprobs must be in [-1, " + std::to_string(vocab_size) + "], got " +
           std::to_string(spec.num_logprobs));
  }
  for (int32_t id : spec.banned_ids) {
    if (id < 0 || static_cast<size_t>(id) >= vocab_size) {
      refuse(name + ".banned_ids must be in [0, " + std::to_string(vocab_size) + "), got " +
             std::to_string(id));
    }
  }
}

}  // namespace

RowTable::RowTable(const RowLimits& limits)
    : limits_(limits),
      rows_(limits.num_rows),
      planned_(limits.num_rows),
      written_(limits.num_blocks) {}

void RowTable::check(const Batch& batch) {
  ++check_id_;
  check_sizes(batch);
  check_ids("new_blocks", batch.new_blocks, limits_.num_blocks);
  check_ids("token_ids", batch.token_ids, limits_.vocab_size);
  check_ids("targets", batch.targets, limits_.vocab_size);
  check_rows(batch);
  for (size_t i = 0; i < batch.copies.size(); ++i) {
    const BlockCopy& copy = batch.copies[i];
    const std::string name = indexed("copies", i);
    check_below(name + ".src", static_cast<uint32_t>(copy.src), limits_.num_blocks);
    check_below(name + ".dst", static_cast<uint32_t>(copy.dst), limits_.num_blocks);
    check_below(name + ".num_tokens", copy.num_tokens, limits_.block_size + 1);
  }
  const int32_t* new_blocks = batch.new_blocks.data();
  for (size_t i = 0; i < batch.work.size(); ++i) {
    check_work(batch, i, new_blocks);
    new_blocks += batch.work[i].num_new_blocks;
  }
}

// The flat arrays must be exactly what the work items claim of them. Each claim is bounded before
// it is summed, so the sums cannot wrap.
void RowTable::check_sizes(const Batch& batch) const {
  size_t num_tokens = 0, num_ids = 0, num_blocks = 0, num_targets = 0;
  for (size_t i = 0; i < batch.work.size(); ++i) {
    const RowWork& work = batch.work[i];
    const std::string name = indexed("work", i);
    if (work.num_tokens == 0) refuse(name + ".num_tokens must be at least 1");
    check_below(name + ".num_tokens", work.num_tokens, limits_.step_tokens_max + 1);
    check_below(name + ".num_new_blocks", work.num_new_blocks, batch.new_blocks.size() + 1);
    check_below(name + ".num_targets", work.num_targets, work.num_tokens + 1);
    if (work.num_token_ids != work.num_tokens &&
        (work.num_token_ids != 0 || work.num_tokens != 1)) {
      refuse(name + ".token_ids has " + std::to_string(work.num_token_ids) + " ids for " +
             std::to_string(work.num_tokens) + " tokens");
    }
    num_tokens += work.num_tokens;
    num_ids += work.num_token_ids;
    num_blocks += work.num_new_blocks;
    num_targets += work.num_targets;
    if (num_tokens > limits_.step_tokens_max) {
      refuse("work holds more than step_tokens_max = " + std::to_string(limits_.step_tokens_max) +
             " tokens");
    }
  }
  auto match = [](const char* field, size_t got, size_t want) {
    if (got == want) return;
    refuse(std::string(field) + " holds " + std::to_string(got) + " ids, work asks for " +
           std::to_string(want));
  };
  match("token_ids", batch.token_ids.size(), num_ids);
  match("new_blocks", batch.new_blocks.size(), num_blocks);
  match("targets", batch.targets.size(), num_targets);
}

void RowTable::check_ids(const char* field, const std::vector<int32_t>& ids, size_t limit) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<size_t>(ids[i]) < limit) continue;
    refuse(indexed(field, i) + " must be in [0, " + std::to_string(limit) + "), got " +
           std::to_string(ids[i]));
  }
}

void RowTable::check_rows(const Batch& batch) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    planned_[i] = rows_[i].is_open ? Planned::kKept : Planned::kClosed;
  }
  for (size_t i = 0; i < batch.closed.size(); ++i) {
    const size_t row = batch.closed[i];
    check_below(indexed("closed", i), row, rows_.size());
    if (planned_[row] != Planned::kKept) {
      refuse(indexed("closed", i) + ": row " + std::to_string(row) + " is not open");
    }
    planned_[row] = Planned::kClosed;
  }
  for (size_t i = 0; i < batch.opened.size(); ++i) {
    const size_t row = batch.opened[i].row;
    const std::string name = indexed("opened", i);
    check_below(name + ".row", row, rows_.size());
    if (planned_[row] != Planned::kClosed) {
      refuse(name + ": row " + std::to_string(row) + " is open already");
    }
    check_sampling(name, batch.opened[i].sampling, limits_.vocab_size);
    planned_[row] = Planned::kOpened;
  }
}

void RowTable::check_work(const Batch& batch, size_t idx, const int32_t* new_blocks) {
  const RowWork& work = batch.work[idx];
  const std::string name = indexed("work", idx);
  check_below(name + ".row", work.row, rows_.size());
  const Planned planned = planned_[work.row];
  if (planned == Planned::kClosed)
    refuse(name + ": row " + std::to_string(work.row) + " is closed");
  if (planned == Planned::kWorked) {
    refuse(name + ": row " + std::to_string(work.row) + " has work already");
  }
  planned_[work.row] = Planned::kWorked;

  const Row* row = planned == Planned::kKept ? &rows_[work.row] : nullptr;  // null: just opened
  if (row != nullptr && row->num_computed && work.start != *row->num_computed) {
    refuse(name + ".start is " + std::to_string(work.start) + ", but row " +
           std::to_string(work.row) + " has " + std::to_string(*row->num_computed) +
           " tokens computed");
  }
  if (work.num_token_ids == 0 && (row == nullptr || !row->last_token)) {
    refuse(name + ".token_ids is empty, but row " + std::to_string(work.row) +
           " has no sampled token to continue from");
  }
  check_below(name + ".start", work.start, limits_.context_length);
  check_below(name + ".start + num_tokens", work.start + work.num_tokens,
              limits_.context_length + 1);
  check_writes(name, work, row, new_blocks);
}

// The table must reach the last token, and no two rows may write to one block in one step: the
// second would overwrite the first, or read what the first is writing.
void RowTable::check_writes(const std::string& name, const RowWork& work, const Row* row,
                            const int32_t* new_blocks) {
  const size_t num_old = row != nullptr ? row->table.size() : 0;
  const size_t num_blocks = num_old + work.num_new_blocks;
  const size_t end = work.start + work.num_tokens;
  if (end > num_blocks * limits_.block_size) {
    refuse(name + " ends at token " + std::to_string(end) + ", but its block table holds " +
           std::to_string(num_blocks) + " blocks of " + std::to_string(limits_.block_size));
  }
  for (size_t i = work.start / limits_.block_size; i * limits_.block_size < end; ++i) {
    const int32_t block = i < num_old ? row->table[i] : new_blocks[i - num_old];
    if (written_[block] == check_id_) {
      refuse(name + " writes to block " + std::to_string(block) + ", which other work writes too");
    }
    written_[block] = check_id_;
  }
}

void RowTable::apply(const Batch& batch) {
  for (size_t idx : batch.closed) rows_[idx] = Row{};
  for (const RowOpen& open : batch.opened) {
    rows_[open.row].is_open = true;
    rows_[open.row].sampling = open.sampling;
  }
  const int32_t* new_blocks = batch.new_blocks.data();
  for (const RowWork& work : batch.work) {
    std::vector<int32_t>& table = rows_[work.row].table;
    table.insert(table.end(), new_blocks, new_blocks + work.num_new_blocks);
    new_blocks += work.num_new_blocks;
  }
}

void RowTable::advance(const RowWork& work, std::optional<int32_t> sampled) {
  Row& row = rows_[work.row];
  row.num_computed = work.start + work.num_tokens;
  row.last_token = sampled;
}

void RowTable::fail(const RowWork& work) {
  advance(work, 0);  // any id will do: nobody sees what comes of it
  rows_[work.row].has_failed = true;
}

}  // namespace octavo
