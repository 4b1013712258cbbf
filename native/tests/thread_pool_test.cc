// SPDX-License-Identifier: Apache-2.0
#include "octavo/thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <vector>

#include "check.h"

namespace octavo {
namespace {

constexpr size_t kTeams[] = {1, 2, 3, 8};

TEST(every_thread_runs_a_region_once) {
  for (size_t team : kTeams) {
    ThreadPool pool(team);
    std::vector<size_t> runs(team);
    auto body = [&](size_t idx) noexcept { ++runs[idx]; };
    for (int i = 0; i < 200; ++i) pool.run(body);
    for (size_t count : runs) CHECK_EQ(count, size_t{200});
  }
}

// Each round every thread writes its own cell and, past the barrier, reads its neighbour's: plain
// memory, so a missing happens-before edge is a wrong sum here and a report under TSan.
void rotate_sums(size_t team, uint32_t spin_us, int num_rounds) {
  ThreadPool pool(team, spin_us);
  std::vector<uint64_t> cells(team * 16), sums(team * 16);
  auto body = [&](size_t idx) noexcept {
    for (int round = 1; round <= num_rounds; ++round) {
      cells[idx * 16] = static_cast<uint64_t>(round) * (idx + 1);
      pool.barrier(idx);
      sums[idx * 16] += cells[(idx + 1) % team * 16];
      pool.barrier(idx);
    }
  };
  pool.run(body);
  const auto total = static_cast<uint64_t>(num_rounds) * (num_rounds + 1) / 2;
  for (size_t idx = 0; idx < team; ++idx) CHECK_EQ(sums[idx * 16], total * ((idx + 1) % team + 1));
}

TEST(a_barrier_publishes_what_was_written_before_it) {
  for (size_t team : kTeams) rotate_sums(team, 50, 300);
}

TEST(waiters_that_park_at_once_still_wake) {
  for (size_t team : kTeams) rotate_sums(team, 0, 300);
}

TEST(an_idle_team_wakes_after_parking) {
  ThreadPool pool(3, 1);
  size_t runs[3] = {};
  auto body = [&](size_t idx) noexcept { ++runs[idx]; };
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run(body);
  }
  for (size_t count : runs) CHECK_EQ(count, size_t{5});
}

TEST(two_teams_do_not_disturb_each_other) {
  ThreadPool a(2), b(3);
  size_t runs_a[2] = {}, runs_b[3] = {};
  auto body_a = [&](size_t idx) noexcept { ++runs_a[idx]; };
  auto body_b = [&](size_t idx) noexcept { ++runs_b[idx]; };
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) b.run(body_b);
  });
  for (int i = 0; i < 100; ++i) a.run(body_a);
  other.join();
  for (size_t count : runs_a) CHECK_EQ(count, size_t{100});
  for (size_t count : runs_b) CHECK_EQ(count, size_t{100});
}

TEST(no_threads_is_refused) { CHECK_THROWS(ThreadPool(0), std::invalid_argument); }

TEST(shares_cover_all_units_in_order) {
  for (size_t count : {0, 1, 7, 18, 1000}) {
    for (size_t parts : kTeams) {
      size_t next = 0;
      for (size_t idx = 0; idx < parts; ++idx) {
        const Share share = share_of(count, parts, idx);
        CHECK_EQ(share.begin, next);
        CHECK(share.end - share.begin <= count / parts + 1);
        next = share.end;
      }
      CHECK_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace octavo

CHECK_MAIN()
