// SPDX-License-Identifier: Apache-2.0
#include "decoder/attention_plan.h"

#include <cstdint>
#include <vector>

#include "check.h"
#include "decoder/forward.h"

namespace octavo {
namespace {

constexpr size_t kBlock = 16;
constexpr size_t kThreads = 2;

AttentionPlan make_plan(size_t window, size_t cells_max = 1000) {
  return AttentionPlan(
      {.num_kv_heads = 8, .block_size = kBlock, .cells_max = cells_max, .window = window});
}

// Sequences that each decode the token at `position`; their tables agree on `num_common` blocks.
struct Decodes {
  std::vector<std::vector<int32_t>> tables;
  StepInput input;

  Decodes(size_t num_sequences, size_t position, size_t num_common) {
    const size_t num_blocks = position / kBlock + 1;
    for (size_t i = 0; i < num_sequences; ++i) {
      std::vector<int32_t>& table = tables.emplace_back();
      for (size_t b = 0; b < num_blocks; ++b) {
        table.push_back(static_cast<int32_t>(b < num_common ? b : (i + 1) * num_blocks + b));
      }
    }
    for (size_t i = 0; i < num_sequences; ++i) {
      input.runs.push_back({tables[i].data(), position, 1, i});
      input.tokens.push_back({0, i, position});
    }
  }
};

TEST(sequences_that_begin_alike_read_that_together) {
  const Decodes decodes(4, 40 * kBlock, 32);
  AttentionPlan plan = make_plan(0);
  plan.make(decodes.input, kThreads);
  CHECK_EQ(plan.members().size(), size_t{4});
  CHECK_EQ(plan.shared().size(), size_t{2});  // 512 keys are two segments
  for (const QueryTile& tile : plan.tiles()) {
    CHECK(tile.kind == QueryTile::Kind::kRest);
    CHECK_EQ(tile.keys.begin, 32 * kBlock);
  }
}

TEST(what_no_layer_sees_any_more_is_not_shared) {
  const size_t window = 64;
  // The first block is hidden from position window + kBlock - 1 on.
  for (const size_t position : {window + kBlock - 1, 40 * kBlock}) {
    const Decodes decodes(16, position, position / kBlock);
    AttentionPlan plan = make_plan(window);
    plan.make(decodes.input, kThreads);
    CHECK_EQ(plan.shared().size(), size_t{0});
    CHECK_EQ(plan.tiles().size(), size_t{16});
  }
  const Decodes before(16, window + kBlock - 2, 4);
  AttentionPlan plan = make_plan(window);
  plan.make(before.input, kThreads);
  CHECK_EQ(plan.shared().size(), size_t{1});
}

TEST(who_the_cells_are_enough_for_share) {
  const Decodes decodes(16, 40 * kBlock, 32);  // 3 segments each
  for (const size_t cells_max : {2, 5, 6, 8, 9, 47, 48}) {
    AttentionPlan plan = make_plan(0, cells_max);
    plan.make(decodes.input, kThreads);
    const size_t num_fitting = cells_max / 3;
    CHECK_EQ(plan.members().size(), num_fitting > 1 ? num_fitting : 0);
    CHECK_EQ(plan.tiles().size(), size_t{16});
    for (const size_t run : plan.members()) CHECK(plan.cell(run, 2) < cells_max);
  }
}

}  // namespace
}  // namespace octavo

CHECK_MAIN()
