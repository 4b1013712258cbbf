// SPDX-License-Identifier: Apache-2.0
#include "decoder/rows.h"

#include <span>
#include <stdexcept>
#include <string>

#include "decoder/settings.h"

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

void check_ids(const std::string& field, std::span<const int32_t> ids, size_t limit) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<size_t>(ids[i]) < limit) continue;
    refuse(field + "[" + std::to_string(i) + "] must be in [0, " + std::to_string(limit) +
           "), got " + std::to_string(ids[i]));
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
  refusals_.clear();
  check_sizes(batch);
  check_ids("new_blocks", batch.new_blocks, limits_.num_blocks);
  check_rows(batch);
  check_moves(batch);
  check_has_work(batch);
  Pieces pieces{batch.token_ids.data(), batch.targets.data(), batch.new_blocks.data(),
                batch.replaced.data()};
  for (size_t i = 0; i < batch.work.size(); ++i) {
    const RowWork& work = batch.work[i];
    const std::string name = indexed("work", i);
    if (!planned_[work.row].has_failed) {
      check_work(name, work, pieces);
      refuse_row_unless(work.row, [&] { check_request(name, work, pieces); });
    }
    pieces.token_ids += work.num_token_ids;
    pieces.targets += work.num_targets;
    pieces.new_blocks += work.num_new_blocks;
    pieces.replaced += work.num_replaced;
  }
}

template <class Check>
void RowTable::refuse_row_unless(size_t row, Check check) {
  try {
    check();
  } catch (const std::invalid_argument& error) {
    planned_[row].has_failed = true;
    refusals_.push_back({row, error.what()});
  }
}

// The flat arrays must be exactly what the work items claim of them. Each claim is bounded before
// it is summed, so the sums cannot wrap.
void RowTable::check_sizes(const Batch& batch) const {
  size_t num_tokens = 0, num_ids = 0, num_blocks = 0, num_targets = 0, num_replaced = 0;
  size_t num_allowed = 0;
  for (size_t i = 0; i < batch.work.size(); ++i) {
    const RowWork& work = batch.work[i];
    const std::string name = indexed("work", i);
    check_tokens(name, work);
    check_below(name + ".num_new_blocks", work.num_new_blocks, batch.new_blocks.size() + 1);
    check_below(name + ".num_replaced", work.num_replaced, batch.replaced.size() + 1);
    check_below(name + ".num_allowed_bytes", work.num_allowed_bytes, batch.allowed.size() + 1);
    num_tokens += work.num_tokens;
    num_ids += work.num_token_ids;
    num_blocks += work.num_new_blocks;
    num_targets += work.num_targets;
    num_replaced += work.num_replaced;
    num_allowed += work.num_allowed_bytes;
    if (num_tokens > limits_.step_tokens_max) {
      refuse("work holds more than step_tokens_max = " + std::to_string(limits_.step_tokens_max) +
             " tokens");
    }
  }
  auto match = [](const char* field, size_t got, size_t want) {
    if (got == want) return;
    refuse(std::string(field) + " holds " + std::to_string(got) + " values, work asks for " +
           std::to_string(want));
  };
  match("token_ids", batch.token_ids.size(), num_ids);
  match("new_blocks", batch.new_blocks.size(), num_blocks);
  match("targets", batch.targets.size(), num_targets);
  match("replaced", batch.replaced.size(), num_replaced);
  match("allowed", batch.allowed.size(), num_allowed);
}

void RowTable::check_tokens(const std::string& name, const RowWork& work) const {
  if (work.logits_of && work.num_tokens != 0) {
    refuse(name + ".num_tokens must be 0 with logits_of, got " + std::to_string(work.num_tokens));
  }
  if (!work.logits_of && work.num_tokens == 0) refuse(name + ".num_tokens must be at least 1");
  check_below(name + ".num_tokens", work.num_tokens, limits_.step_tokens_max + 1);
  check_below(name + ".num_targets", work.num_targets, work.num_tokens + 1);
  if (work.num_token_ids != work.num_tokens && (work.num_token_ids != 0 || work.num_tokens != 1)) {
    refuse(name + ".token_ids has " + std::to_string(work.num_token_ids) + " ids for " +
           std::to_string(work.num_tokens) + " tokens");
  }
}

void RowTable::check_rows(const Batch& batch) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    planned_[i] = {.is_open = row.is_open,
                   .has_failed = row.has_failed(),
                   .num_computed = row.num_computed,
                   .has_last_token = row.last_token.has_value(),
                   .table = &row.table};
    if (row.sampling.needs_history()) planned_[i].num_known = row.history.size();
  }
  for (size_t i = 0; i < batch.closed.size(); ++i) {
    const size_t row = batch.closed[i];
    check_below(indexed("closed", i), row, rows_.size());
    if (!planned_[row].is_open) {
      refuse(indexed("closed", i) + ": row " + std::to_string(row) + " is not open");
    }
    planned_[row] = Planned{};
  }
  for (size_t i = 0; i < batch.opened.size(); ++i) {
    const RowOpen& open = batch.opened[i];
    const std::string name = indexed("opened", i);
    check_below(name + ".row", open.row, rows_.size());
    if (planned_[open.row].is_open) {
      refuse(name + ": row " + std::to_string(open.row) + " is open already");
    }
    check_table_of(name, open);
    planned_[open.row] = {
        .is_open = true, .num_computed = open.num_computed, .table = &open.blocks};
    if (open.sampling.needs_history()) planned_[open.row].num_known = open.history.size();
    refuse_row_unless(open.row, [&] { check_settings(name, open); });
  }
}

void RowTable::check_settings(const std::string& name, const RowOpen& open) const {
  if (open.refusal) refuse(name + ": " + *open.refusal);
  check_sampling(name, open.sampling, limits_.vocab_size);
  check_ids(name + ".history", open.history, limits_.vocab_size);
  check_below(name + ".num_prompt", open.num_prompt, open.history.size() + 1);
}

// What a request asks for, of a work whose sizes are right.
void RowTable::check_request(const std::string& name, const RowWork& work,
                             const Pieces& pieces) const {
  check_ids(name + ".token_ids", {pieces.token_ids, work.num_token_ids}, limits_.vocab_size);
  check_ids(name + ".targets", {pieces.targets, work.num_targets}, limits_.vocab_size);
  const size_t mask_bytes = (limits_.vocab_size + 7) / 8;
  if (work.num_allowed_bytes != 0 && work.num_allowed_bytes != mask_bytes) {
    refuse(name + ".allowed must have " + std::to_string(mask_bytes) + " bytes, got " +
           std::to_string(work.num_allowed_bytes));
  }
  const std::optional<size_t> num_known = planned_[work.row].num_known;
  const size_t end = work.start + work.num_tokens;
  if (work.samples && num_known && *num_known != end) {
    refuse(name + " samples the token at position " + std::to_string(end) +
           ", but the row's history holds " + std::to_string(*num_known) + " tokens");
  }
}

void RowTable::check_table_of(const std::string& name, const RowOpen& open) const {
  check_ids(name + ".blocks", open.blocks, limits_.num_blocks);
  check_below(name + ".num_computed", open.num_computed, limits_.context_length + 1);
  if (open.num_computed > open.blocks.size() * limits_.block_size) {
    refuse(name + ".num_computed is " + std::to_string(open.num_computed) + ", but its " +
           std::to_string(open.blocks.size()) + " blocks hold " +
           std::to_string(limits_.block_size) + " tokens each");
  }
}

void RowTable::check_moves(const Batch& batch) const {
  auto check = [](const std::string& name, int32_t id, size_t limit) {
    check_below(name, static_cast<uint32_t>(id), limit);
  };
  if (limits_.num_swap_blocks == 0 && !(batch.swap_ins.empty() && batch.swap_outs.empty())) {
    refuse("the batch swaps " + std::to_string(batch.swap_ins.size()) + " blocks in and " +
           std::to_string(batch.swap_outs.size()) + " out, but there is no swap tier");
  }
  for (size_t i = 0; i < batch.swap_ins.size(); ++i) {
    check(indexed("swap_ins", i) + ".src", batch.swap_ins[i].src, limits_.num_swap_blocks);
    check(indexed("swap_ins", i) + ".dst", batch.swap_ins[i].dst, limits_.num_blocks);
  }
  for (size_t i = 0; i < batch.swap_outs.size(); ++i) {
    check(indexed("swap_outs", i) + ".src", batch.swap_outs[i].src, limits_.num_blocks);
    check(indexed("swap_outs", i) + ".dst", batch.swap_outs[i].dst, limits_.num_swap_blocks);
  }
  for (size_t i = 0; i < batch.copies.size(); ++i) {
    const std::string name = indexed("copies", i);
    check(name + ".src", batch.copies[i].src, limits_.num_blocks);
    check(name + ".dst", batch.copies[i].dst, limits_.num_blocks);
    check_below(name + ".num_tokens", batch.copies[i].num_tokens, limits_.block_size + 1);
  }
}

// Before any work is looked at alone, so that a fork finds the row it forks from wherever that
// stands in the batch.
void RowTable::check_has_work(const Batch& batch) {
  for (size_t i = 0; i < batch.work.size(); ++i) {
    const size_t row = batch.work[i].row;
    const std::string name = indexed("work", i);
    check_below(name + ".row", row, rows_.size());
    if (!planned_[row].is_open) refuse(name + ": row " + std::to_string(row) + " is closed");
    if (planned_[row].work != nullptr) {
      refuse(name + ": row " + std::to_string(row) + " has work already");
    }
    planned_[row].work = &batch.work[i];
  }
}

void RowTable::check_work(const std::string& name, const RowWork& work, const Pieces& pieces) {
  const Planned& row = planned_[work.row];
  if (work.start != row.num_computed) {
    refuse(name + ".start is " + std::to_string(work.start) + ", but row " +
           std::to_string(work.row) + " has " + std::to_string(row.num_computed) +
           " tokens computed");
  }
  if (work.logits_of) {
    check_fork(name, work);
  } else {
    if (work.num_token_ids == 0 && !row.has_last_token) {
      refuse(name + ".token_ids is empty, but row " + std::to_string(work.row) +
             " has no sampled token to continue from");
    }
    check_below(name + ".start", work.start, limits_.context_length);
    check_below(name + ".start + num_tokens", work.start + work.num_tokens,
                limits_.context_length + 1);
  }
  check_table(name, work, pieces);
}

void RowTable::check_fork(const std::string& name, const RowWork& work) const {
  const size_t parent_row = *work.logits_of;
  check_below(name + ".logits_of", parent_row, rows_.size());
  const RowWork* parent = planned_[parent_row].work;
  const std::string of = name + ".logits_of: row " + std::to_string(parent_row);
  if (!work.samples) refuse(name + ".samples must be true with logits_of");
  if (parent == nullptr || parent->num_tokens == 0) refuse(of + " computes nothing here");
  if (!parent->samples) refuse(of + " does not sample here");
  // A parent that failed may be anywhere; this row will fail with it.
  if (planned_[parent_row].has_failed) return;
  if (parent->start + parent->num_tokens != work.start) {
    refuse(of + " ends at token " + std::to_string(parent->start + parent->num_tokens) +
           ", but this one starts at " + std::to_string(work.start));
  }
}

// The table must reach the last token, and no two rows may write to one block in one step: the
// second would overwrite the first, or read what the first is writing.
void RowTable::check_table(const std::string& name, const RowWork& work, const Pieces& pieces) {
  const std::vector<int32_t>& table = *planned_[work.row].table;
  const std::span replaced(pieces.replaced, work.num_replaced);
  for (size_t i = 0; i < replaced.size(); ++i) {
    const std::string entry = name + "." + indexed("replaced", i);
    check_below(entry + ".table_idx", replaced[i].table_idx, table.size());
    check_below(entry + ".block", static_cast<uint32_t>(replaced[i].block), limits_.num_blocks);
  }
  const size_t num_blocks = table.size() + work.num_new_blocks;
  const size_t end = work.start + work.num_tokens;
  if (end > num_blocks * limits_.block_size) {
    refuse(name + " ends at token " + std::to_string(end) + ", but its block table holds " +
           std::to_string(num_blocks) + " blocks of " + std::to_string(limits_.block_size));
  }
  if (work.num_tokens == 0) return;
  for (size_t i = work.start / limits_.block_size; i * limits_.block_size < end; ++i) {
    int32_t block = i < table.size() ? table[i] : pieces.new_blocks[i - table.size()];
    for (const Replacement& entry : replaced) {
      if (entry.table_idx == i) block = entry.block;
    }
    if (written_[block] == check_id_) {
      refuse(name + " writes to block " + std::to_string(block) + ", which other work writes too");
    }
    written_[block] = check_id_;
  }
}

void RowTable::apply(const Batch& batch) {
  for (size_t idx : batch.closed) rows_[idx] = Row{};
  for (const RowOpen& open : batch.opened) {
    Row& row = rows_[open.row];
    row = Row{};
    row.is_open = true;
    row.sampling = open.sampling;
    row.num_computed = open.num_computed;
    row.table = open.blocks;
  }
  for (const Refusal& refusal : refusals_) rows_[refusal.row].failure = refusal.reason;
  for (const RowOpen& open : batch.opened) {
    Row& row = rows_[open.row];
    if (row.has_failed() || !row.sampling.needs_history()) continue;
    row.history = TokenHistory(open.history, open.num_prompt);
  }
  const int32_t* new_blocks = batch.new_blocks.data();
  const Replacement* replaced = batch.replaced.data();
  for (const RowWork& work : batch.work) {
    Row& row = rows_[work.row];
    const std::span entries(replaced, work.num_replaced);
    const int32_t* blocks = new_blocks;
    new_blocks += work.num_new_blocks;
    replaced += work.num_replaced;
    if (row.has_failed()) continue;  // its work was not checked, and will not run
    for (const Replacement& entry : entries) row.table[entry.table_idx] = entry.block;
    row.table.insert(row.table.end(), blocks, blocks + work.num_new_blocks);
  }
}

void RowTable::abandon(const Batch& batch) {
  for (size_t idx : batch.closed) {
    if (idx < rows_.size()) rows_[idx] = Row{};
  }
  for (const RowOpen& open : batch.opened) {
    if (open.row >= rows_.size()) continue;
    rows_[open.row] = Row{};
    rows_[open.row].is_open = true;
    fail(open.row);
  }
  for (const RowWork& work : batch.work) {
    if (work.row < rows_.size() && rows_[work.row].is_open) fail(work.row);
  }
}

void RowTable::advance(const RowWork& work, std::optional<int32_t> sampled) {
  Row& row = rows_[work.row];
  if (sampled && row.sampling.needs_history()) row.history.append(*sampled);
  row.num_computed = work.start + work.num_tokens;
  row.last_token = sampled;
}

}  // namespace octavo
