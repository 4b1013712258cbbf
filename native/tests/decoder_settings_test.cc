// SPDX-License-Identifier: Apache-2.0
// What a request asks for fails its own row at most, and never reaches memory that is not its own.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <new>
#include <span>
#include <vector>

#include "check.h"
#include "octavo/decoder.h"
#include "small_decoder.h"

using namespace octavo;
using namespace octavo::testing;

namespace {

std::atomic<size_t> refused_size = 0;  // the next allocation of so many bytes fails

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  size_t refused = size;
  if (size != 0 && refused_size.compare_exchange_strong(refused, 0)) throw std::bad_alloc();
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

TEST(wild_requests_fail_their_row_and_reach_no_memory) {
  const std::function<void(Batch&)> spoils[] = {
      [](Batch& b) { b.token_ids[0] = INT32_MIN; },
      [](Batch& b) { b.work[0].num_targets = 1, b.targets = {INT32_MAX}; },
      [](Batch& b) { b.work[0].num_allowed_bytes = 1, b.allowed = {255}; },
      [](Batch& b) { b.opened[0].sampling.temperature = NAN; },
      [](Batch& b) { b.opened[0].sampling.allowed_ids = {INT32_MIN}; },
      [](Batch& b) { b.opened[0].sampling.logit_bias = {{INT32_MAX, 1.0f}}; },
      [](Batch& b) { b.opened[0].sampling.bad_words = {{1, 2}, {-1}}; },
      [](Batch& b) { b.opened[0].sampling.presence_penalty = 1.0f; },  // and no history
      [](Batch& b) {
        b.opened[0].sampling.presence_penalty = 1.0f;
        b.opened[0].history = {INT32_MIN};
      },
      [](Batch& b) { b.opened[0].num_prompt = SIZE_MAX; },
      [](Batch& b) { b.opened[0].refusal = "it cannot be spelt"; },
  };
  for (const auto& spoil : spoils) {
    auto decoder = make_decoder(2, 8, 4);
    Batch batch;
    batch.opened = {open_row(0), open_row(1)};
    add_work(batch, {.row = 0, .samples = true}, {4}, {0});
    add_work(batch, {.row = 1, .samples = true}, {4}, {1});
    spoil(batch);
    const std::vector<RowOutcome> outcomes = decoder->step(batch);
    CHECK(!outcomes[0].error.empty());
    CHECK(!outcomes[0].sampled.has_value());
    CHECK(outcomes[1].error.empty());
    Batch next;
    add_work(next, {.row = 0, .start = 1, .samples = true}, {}, {});
    add_work(next, {.row = 1, .start = 1, .samples = true}, {}, {});
    CHECK_EQ(decoder->step(next)[0].error, "the row failed in an earlier step");
  }
}

// Histories grow on whichever thread draws; masks are pieces of one array.
TEST(settings_are_of_their_row_alone) {
  const std::vector<int32_t> ids = random_ids(3, 9);
  const auto run = [&](size_t num_threads, std::span<const size_t> rows) {
    auto decoder = make_decoder(num_threads, 8, 40);
    std::vector<int32_t> sampled;
    for (size_t t = 0; t < 6; ++t) {
      Batch batch;
      for (const size_t row : rows) {
        if (t == 0) {
          RowOpen open = open_row(row);
          open.sampling.repetition_penalty = 1.0f + 0.1f * static_cast<float>(row % 3);
          open.sampling.frequency_penalty = 0.5f;
          open.sampling.bad_words = {{static_cast<int32_t>(row)}};
          open.history = ids;
          open.num_prompt = ids.size();
          batch.opened.push_back(open);
        }
        RowWork work{.row = row, .start = t == 0 ? 0 : ids.size() + t - 1, .samples = true};
        if ((row + t) % 2 == 0) {
          work.num_allowed_bytes = kVocab / 8;
          for (size_t i = 0; i < kVocab / 8; ++i) batch.allowed.push_back(uint8_t(0x5a + row));
        }
        const auto first = static_cast<int32_t>(row * 2);
        if (t == 0) {
          add_work(batch, work, ids, {first, first + 1});
        } else {
          add_work(batch, work, {}, {});
        }
      }
      for (const RowOutcome& outcome : decoder->step(batch)) {
        CHECK_EQ(outcome.error, "");
        if (outcome.sampled) sampled.push_back(outcome.sampled->token_id);
      }
    }
    return sampled;
  };
  const size_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<int32_t> together = run(3, rows);
  CHECK_EQ(together.size(), size_t{48});
  for (const size_t row : rows) {
    const std::vector<int32_t> alone = run(1, std::span(rows).subspan(row, 1));
    for (size_t t = 0; t < alone.size(); ++t) CHECK_EQ(alone[t], together[t * 8 + row]);
  }
}

TEST(memory_that_runs_out_in_a_draw_costs_its_row_and_is_called_so) {
  auto decoder = make_decoder(2, 8, 4);
  Batch batch;
  batch.opened = {open_row(0), open_row(1)};
  batch.opened[0].sampling.logit_bias = {{1, 0.5f}};  // the first to need logits of its own
  add_work(batch, {.row = 0, .samples = true}, {4}, {0});
  add_work(batch, {.row = 1, .samples = true}, {4}, {1});
  refused_size = kVocab * sizeof(float);
  const std::vector<RowOutcome> outcomes = decoder->step(batch);
  CHECK_EQ(refused_size.exchange(0), size_t{0});
  CHECK_EQ(outcomes[0].error, "out of memory for the token at position 1");
  CHECK(outcomes[1].error.empty());
}

CHECK_MAIN()
