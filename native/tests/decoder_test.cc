// SPDX-License-Identifier: Apache-2.0
// The decoder under the sanitizers: loading, steps of every shape, refusals, reuse of blocks. What
// it computes is tested against float64 from Python; here a small model must only agree with
// itself.
#include "octavo/decoder.h"

#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "octavo/kv_pool.h"
#include "small_decoder.h"

using namespace octavo;
using namespace octavo::testing;

namespace {

// A token and its logprob: ids alone forgive small errors.
using Answer = std::vector<std::pair<int32_t, float>>;

std::pair<int32_t, float> sampled(const RowOutcome& outcome) {
  CHECK(outcome.error.empty());
  return {outcome.sampled->token_id, outcome.sampled->logprob};
}

// Greedy continuation of `ids` by `count` tokens, alone.
Answer generate(Decoder& decoder, size_t block_size, const std::vector<int32_t>& ids,
                size_t count) {
  Batch batch;
  batch.opened.push_back(open_row(0));
  const size_t num_blocks = (ids.size() + count + block_size - 1) / block_size;
  add_work(batch, {.row = 0, .samples = true}, ids, blocks_from(0, num_blocks));
  Answer out;
  for (size_t i = 0; i < count; ++i) {
    const std::vector<RowOutcome> outcomes = decoder.step(batch);
    CHECK_EQ(outcomes.size(), size_t{1});
    out.push_back(sampled(outcomes[0]));
    batch = Batch{};
    add_work(batch, {.row = 0, .start = ids.size() + i, .samples = true}, {}, {});
  }
  batch = Batch{};
  batch.closed = {0};
  decoder.step(batch);
  return out;
}

void check_refused(const std::function<void()>& call, const char* message) {
  try {
    call();
    CHECK(!"nothing was thrown");
  } catch (const std::invalid_argument& error) {
    if (std::strstr(error.what(), message) == nullptr) {
      std::fprintf(stderr, "wanted '%s' in '%s'\n", message, error.what());
      CHECK(!"another message");
    }
  }
}

}  // namespace

TEST(same_tokens_for_any_threads_and_blocks) {
  const std::vector<int32_t> ids = random_ids(3, 70);
  const Answer expected = generate(*make_decoder(1, 16, 64), 16, ids, 24);
  for (size_t num_threads : {2, 3, 8}) {
    for (size_t block_size : {8, 32}) {
      auto decoder = make_decoder(num_threads, block_size, 64);
      CHECK(generate(*decoder, block_size, ids, 24) == expected);
      CHECK(generate(*decoder, block_size, ids, 24) == expected);  // over its own old blocks
    }
  }
}

TEST(long_decodes_are_split_and_merged) {
  const std::vector<int32_t> ids = random_ids(4, 509);
  const Answer expected = generate(*make_decoder(1, 16, 64), 16, ids, 8);
  CHECK(generate(*make_decoder(4, 16, 64), 16, ids, 8) == expected);
}

// Rows whose tables begin alike read those blocks together. Three groups at once: all rows share 96
// tokens, rows 0-2 another 208 beyond them, and rows 6 and 7 nothing.
TEST(rows_that_share_blocks_answer_as_alone) {
  constexpr size_t kBlock = 16, kCount = 6;
  auto decoder = make_decoder(2, kBlock, 256);
  const std::vector<int32_t> common = random_ids(7, 304);
  const size_t num_shared[] = {304, 304, 304, 96, 96, 96, 0, 0};
  std::vector<std::vector<int32_t>> ids, tables;
  int32_t next_block = 19;
  for (size_t row = 0; row < 8; ++row) {
    std::vector<int32_t> own = random_ids(20 + row, 3 + 17 * row);
    ids.emplace_back(common.begin(), common.begin() + static_cast<ptrdiff_t>(num_shared[row]));
    ids[row].insert(ids[row].end(), own.begin(), own.end());
    std::vector<int32_t>& table = tables.emplace_back();
    for (size_t i = 0; i < num_shared[row] / kBlock; ++i) table.push_back(static_cast<int32_t>(i));
    const size_t needed = (ids[row].size() + kCount + kBlock - 1) / kBlock;
    while (table.size() < needed) table.push_back(next_block++);
  }
  Batch batch;
  batch.opened.push_back(open_row(0));
  add_work(batch, {.row = 0}, common,
           std::vector<int32_t>(tables[0].begin(), tables[0].begin() + 19));
  decoder->step(batch);
  batch = Batch{};
  batch.closed = {0};
  for (size_t row = 0; row < 8; ++row) {
    RowOpen open = open_row(row);
    open.num_computed = num_shared[row];
    open.blocks = tables[row];
    batch.opened.push_back(open);
    const std::vector<int32_t> rest(ids[row].begin() + static_cast<ptrdiff_t>(num_shared[row]),
                                    ids[row].end());
    add_work(batch, {.row = row, .start = num_shared[row], .samples = true}, rest, {});
  }
  std::vector<Answer> together(8);
  for (size_t i = 0; i < kCount; ++i) {
    const std::vector<RowOutcome> outcomes = decoder->step(batch);
    batch = Batch{};
    for (size_t row = 0; row < 8; ++row) {
      together[row].push_back(sampled(outcomes[row]));
      add_work(batch, {.row = row, .start = ids[row].size() + i, .samples = true}, {}, {});
    }
  }
  for (size_t row = 0; row < 8; ++row) {
    CHECK(generate(*make_decoder(1, kBlock, 64), kBlock, ids[row], kCount) == together[row]);
  }
}

TEST(ragged_batches_and_copies) {
  auto decoder = make_decoder(3, 8, 64);
  const size_t lengths[] = {1, 7, 8, 9, 33, 100};
  Batch batch;
  int32_t block = 0;
  for (size_t row = 0; row < 6; ++row) {
    batch.opened.push_back(open_row(row));
    const size_t num_blocks = lengths[row] / 8 + 1;
    RowWork work{.row = row, .num_targets = lengths[row], .samples = true};
    const std::vector<int32_t> ids = random_ids(row, lengths[row]);
    batch.targets.insert(batch.targets.end(), ids.begin(), ids.end());
    add_work(batch, work, ids, blocks_from(block, num_blocks));
    block += static_cast<int32_t>(num_blocks);
  }
  const std::vector<RowOutcome> outcomes = decoder->step(batch);
  for (size_t row = 0; row < 6; ++row) {
    CHECK_EQ(outcomes[row].scored.size(), lengths[row]);
    CHECK(outcomes[row].sampled.has_value());
    CHECK_EQ(outcomes[row].sampled->top.size(), size_t{3});
  }
  Batch decode;
  for (int32_t i = 0; i < 8; ++i) decode.copies.push_back({0, 60, static_cast<size_t>(i)});
  for (size_t row = 0; row < 6; ++row) {
    add_work(decode, {.row = row, .start = lengths[row], .samples = true}, {}, {});
  }
  CHECK_EQ(decoder->step(decode).size(), size_t{6});
}

TEST(copied_slots_are_the_first_ones) {
  KvPool pool({{2, 16}, {1, 8}}, 3, 16);
  const size_t halves = KvPool::block_bytes({{2, 16}, {1, 8}}, 16) / 2;
  CHECK_EQ(halves, size_t{2 * 16 * (2 * 16 + 8)});
  const int32_t table[] = {0, 2};
  uint16_t* base = pool.view(0, table).base;
  for (size_t i = 0; i < halves; ++i) base[i] = static_cast<uint16_t>(i + 1);
  pool.copy_block(0, 2, 11);
  size_t num_copied = 0;
  for (size_t i = 0; i < halves; ++i) {
    const uint16_t got = base[2 * halves + i];
    CHECK(got == 0 || got == base[i]);
    num_copied += got != 0 ? 1 : 0;
  }
  CHECK_EQ(num_copied, size_t{11 * 2 * (2 * 16 + 8)});
  for (size_t i = 0; i < halves; ++i) CHECK_EQ(base[halves + i], uint16_t{0});
}

// Row 0 computes a prompt of 21 tokens into blocks 0, 1 and 2 of 8; rows 1 to 3 sample from its
// logits.
Batch forked_prompt(const std::vector<int32_t>& ids) {
  Batch batch;
  for (size_t row = 0; row < 4; ++row) {
    RowOpen open = open_row(row);
    open.sampling.temperature = 1.0f;
    open.sampling.sample_idx = static_cast<uint32_t>(row);
    if (row > 0) open.num_computed = ids.size();
    if (row > 0) open.blocks = {0, 1, 2};
    batch.opened.push_back(open);
  }
  add_work(batch, {.row = 0, .samples = true}, ids, {0, 1, 2});
  for (size_t row = 1; row < 4; ++row) {
    batch.work.push_back({.row = row, .start = ids.size(), .samples = true, .logits_of = 0});
  }
  return batch;
}

TEST(forks_swaps_and_replaced_blocks) {
  auto decoder = make_decoder(3, 8, 16);
  decoder->create_swap(4, std::nullopt);
  const std::vector<int32_t> ids = random_ids(9, 21);
  std::vector<std::vector<RowOutcome>> outcomes;
  outcomes.push_back(decoder->step(forked_prompt(ids)));
  // Row 3 leaves for the swap tier, rows 1 and 2 get last blocks of their own, row 0 keeps its own.
  Batch decode;
  decode.closed = {3};
  decode.swap_outs = {{2, 3}};
  for (size_t row = 0; row < 3; ++row) {
    RowWork work{.row = row, .start = 21, .samples = true};
    if (row > 0) {
      work.num_replaced = 1;
      decode.replaced.push_back({2, static_cast<int32_t>(10 + row)});
      decode.copies.push_back({2, static_cast<int32_t>(10 + row), 5});
    }
    add_work(decode, work, {}, {});
  }
  outcomes.push_back(decoder->step(decode));
  Batch back;
  back.opened.push_back(forked_prompt(ids).opened[3]);
  back.opened[0].blocks = {0, 1, 7};
  back.swap_ins = {{3, 7}};
  add_work(back, {.row = 3, .start = 21, .samples = true}, {outcomes[0][3].sampled->token_id}, {});
  outcomes.push_back(decoder->step(back));
  for (const std::vector<RowOutcome>& step : outcomes) {
    for (const RowOutcome& outcome : step) CHECK(outcome.error.empty());
  }
  CHECK_EQ(decoder->swap_totals().blocks_out, size_t{1});
  CHECK_EQ(decoder->swap_totals().blocks_in, size_t{1});
  // Each row alone: the same two tokens.
  for (size_t row = 0; row < 4; ++row) {
    auto alone = make_decoder(1, 8, 3);
    Batch batch;
    batch.opened.push_back(forked_prompt(ids).opened[row]);
    batch.opened[0].num_computed = 0;
    batch.opened[0].blocks.clear();
    add_work(batch, {.row = row, .samples = true}, ids, {0, 1, 2});
    CHECK_EQ(alone->step(batch)[0].sampled->token_id, outcomes[0][row].sampled->token_id);
    Batch next;
    add_work(next, {.row = row, .start = 21, .samples = true}, {}, {});
    const RowOutcome& got = row < 3 ? outcomes[1][row] : outcomes[2][0];
    CHECK_EQ(alone->step(next)[0].sampled->token_id, got.sampled->token_id);
  }
}

TEST(an_abandoned_batch_fails_its_rows_and_no_others) {
  auto decoder = make_decoder(2, 8, 16);
  Batch first;
  first.opened = {open_row(0), open_row(1)};
  add_work(first, {.row = 0, .samples = true}, {1, 2, 3}, {0});
  add_work(first, {.row = 1, .samples = true}, {1, 2, 3}, {1});
  decoder->step(first);
  Batch bad;
  bad.closed = {SIZE_MAX};
  bad.opened = {open_row(2), open_row(SIZE_MAX)};
  add_work(bad, {.row = 1, .start = 3, .samples = true}, {}, {99});
  bad.work.push_back({.row = SIZE_MAX});
  CHECK_THROWS(decoder->step(bad), std::invalid_argument);
  decoder->abandon(bad);
  Batch next;
  add_work(next, {.row = 0, .start = 3, .samples = true}, {}, {});
  add_work(next, {.row = 1, .start = 4, .samples = true}, {}, {});
  add_work(next, {.row = 2, .start = 50, .samples = true}, {}, {2});
  next.work.push_back({.row = 3, .start = 5, .samples = true, .logits_of = 1});
  next.opened = {open_row(3)};
  next.opened[0].num_computed = 5;
  next.opened[0].blocks = {4};
  const std::vector<RowOutcome> outcomes = decoder->step(next);
  CHECK(outcomes[0].error.empty());
  CHECK(outcomes[0].sampled.has_value());
  for (size_t i = 1; i < 4; ++i) CHECK_EQ(outcomes[i].error, "the row failed in an earlier step");
}

TEST(wild_numbers_never_reach_memory) {
  auto decoder = make_decoder(1, 8, 4);
  Batch good;
  good.opened.push_back(open_row(0));
  add_work(good, {.row = 0}, {1, 2, 3}, {0});
  decoder->step(good);
  const size_t huge = SIZE_MAX;
  auto refuse = [&](const char* message, const std::function<void(Batch&)>& spoil) {
    Batch batch;
    add_work(batch, {.row = 0, .start = 3}, {4}, {});
    spoil(batch);
    check_refused([&] { decoder->step(batch); }, message);
  };
  refuse("work[0].row", [&](Batch& b) { b.work[0].row = huge; });
  refuse("work[0].start", [&](Batch& b) { b.work[0].start = huge; });
  refuse("work[0].num_tokens", [&](Batch& b) { b.work[0].num_tokens = huge; });
  refuse("token_ids", [&](Batch& b) { b.work[0].num_token_ids = huge; });
  refuse("work[0].num_new_blocks", [&](Batch& b) { b.work[0].num_new_blocks = huge; });
  refuse("work[0].num_targets", [&](Batch& b) { b.work[0].num_targets = huge; });
  refuse("token_ids holds", [&](Batch& b) { b.token_ids.clear(); });
  refuse("work[0].num_allowed_bytes", [&](Batch& b) { b.work[0].num_allowed_bytes = huge; });
  refuse("allowed holds", [&](Batch& b) { b.allowed = {1}; });
  refuse("new_blocks holds", [&](Batch& b) { b.new_blocks = {1}; });
  refuse("copies[0].src", [&](Batch& b) { b.copies.push_back({INT32_MIN, 0, 1}); });
  refuse("copies[0].dst", [&](Batch& b) { b.copies.push_back({0, INT32_MAX, 1}); });
  refuse("copies[0].num_tokens", [&](Batch& b) { b.copies.push_back({0, 1, huge}); });
  refuse("opened[0].blocks[0]", [&](Batch& b) {
    b.opened = {open_row(1)};
    b.opened[0].blocks = {INT32_MIN};
  });
  refuse("opened[0].num_computed", [&](Batch& b) {
    b.opened = {open_row(1)};
    b.opened[0].num_computed = huge;
  });
  refuse("no swap tier", [&](Batch& b) { b.swap_ins = {{0, 0}}; });
  refuse("work[0].num_replaced", [&](Batch& b) { b.work[0].num_replaced = huge; });
  refuse("replaced holds", [&](Batch& b) { b.replaced = {{0, 1}}; });
  auto replace = [](Batch& b, size_t table_idx, int32_t block) {
    b.work[0].num_replaced = 1;
    b.replaced = {{table_idx, block}};
  };
  refuse("replaced[0].table_idx", [&](Batch& b) { replace(b, huge, 1); });
  refuse("replaced[0].block", [&](Batch& b) { replace(b, 0, INT32_MIN); });
  refuse("work[0].logits_of", [&](Batch& b) {
    b.work[0] = {.row = 0, .start = 3, .samples = true, .logits_of = huge};
    b.token_ids.clear();
  });
  refuse("closed[0]", [&](Batch& b) { b.closed = {huge}; });
  refuse("opened[0]", [&](Batch& b) { b.opened = {open_row(huge)}; });
  Batch still_good;
  add_work(still_good, {.row = 0, .start = 3, .samples = true}, {4}, {});
  CHECK(decoder->step(still_good)[0].sampled.has_value());
}

TEST(calls_out_of_order) {
  Decoder decoder(tiny_config(), 1, std::nullopt);
  auto check_order = [](const std::function<void()>& call) {
    try {
      call();
      CHECK(!"nothing was thrown");
    } catch (const std::runtime_error&) {
    }
  };
  check_order([&] { decoder.step({}); });
  check_order([&] { decoder.create_kv(1, 8, 1, 1); });
  check_order([&] { decoder.finish_loading(); });
  load_all(decoder, tiny_config());
  check_order([&] { decoder.finish_loading(); });
  check_order([&] { decoder.step({}); });
  decoder.create_kv(1, 8, 1, 1);
  check_order([&] { decoder.create_kv(1, 8, 1, 1); });
  CHECK(decoder.step({}).empty());
}

CHECK_MAIN()
