// SPDX-License-Identifier: Apache-2.0
#include "octavo/thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <vector>

#include "check.h"

namespace octavo {
namespace {

constexpr size_t kTeams[] = {1, 2, 3, 8};

TEST(every_thread_of_the_team_runs_a_region_once) {
  for (size_t size : kTeams) {
    ThreadPool pool(size);
    std::vector<size_t> runs(size), wanted(size);
    auto body = [&](size_t idx) noexcept { ++runs[idx]; };
    for (int i = 0; i < 200; ++i) {
      pool.run(body);
      for (size_t idx = 0; idx < pool.team(); ++idx) ++wanted[idx];
    }
    CHECK_EQ(wanted[0], size_t{200});
    CHECK(runs == wanted);
  }
}

// Each round every thread writes its own cell and, past the barrier, reads its neighbour's: plain
// memory, so a missing happens-before edge is a wrong sum here and a report under TSan.
void rotate_sums(size_t size, uint32_t spin_us, int num_rounds) {
  ThreadPool pool(size, spin_us);
  std::vector<uint64_t> cells(size * 16), sums(size * 16);
  auto body = [&](size_t idx) noexcept {
    const size_t team = pool.team();
    for (int round = 1; round <= num_rounds; ++round) {
      cells[idx * 16] = static_cast<uint64_t>(round) * (idx + 1);
      pool.barrier(idx);
      sums[idx * 16] += cells[(idx + 1) % team * 16];
      pool.barrier(idx);
    }
  };
  pool.run(body);
  const auto total = static_cast<uint64_t>(num_rounds) * (num_rounds + 1) / 2;
  const size_t team = pool.team();
  CHECK_EQ(team, size);  // a fresh pool has seen no stall
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
  size_t runs[3] = {}, wanted[3] = {};
  auto body = [&](size_t idx) noexcept { ++runs[idx]; };
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run(body);
    for (size_t idx = 0; idx < pool.team(); ++idx) ++wanted[idx];
  }
  for (size_t idx = 0; idx < 3; ++idx) CHECK_EQ(runs[idx], wanted[idx]);
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
  CHECK_EQ(runs_a[0], size_t{100});
  CHECK_EQ(runs_b[0], size_t{100});
  CHECK(runs_a[1] <= 100 && runs_b[1] <= 100 && runs_b[2] <= 100);
}

// The region after a stall runs on fewer threads, and still does all of its units.
TEST(a_shrunken_team_shares_out_everything) {
  ThreadPool pool(2);
  auto stall = [](size_t idx) noexcept {
    if (idx == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  pool.run(stall);
  std::vector<int> done(101);
  auto body = [&](size_t idx) noexcept {
    const Share share = pool.share(done.size(), idx);
    for (size_t i = share.begin; i < share.end; ++i) ++done[i];
  };
  pool.run(body);
  CHECK_EQ(pool.team(), size_t{1});
  CHECK(done == std::vector<int>(101, 1));
}

constexpr uint64_t kMs = 1'000'000;

TEST(a_stalled_region_halves_the_team_and_a_pause_later_it_is_tried_again) {
  TeamSize team(8);
  CHECK_EQ(team.choose(0), size_t{8});
  team.observe(10 * kMs, 10 * kMs, 6 * kMs);
  CHECK_EQ(team.choose(11 * kMs), size_t{4});
  team.observe(21 * kMs, 10 * kMs, 6 * kMs);
  CHECK_EQ(team.choose(22 * kMs), size_t{2});
  CHECK_EQ(team.choose(60 * kMs), size_t{2});  // the second failure waits 40 ms
  CHECK_EQ(team.choose(61 * kMs), size_t{4});
  CHECK_EQ(team.choose(61 * kMs), size_t{8});
}

TEST(a_team_never_falls_below_one_and_pauses_are_bounded) {
  TeamSize team(2);
  uint64_t now = 0;
  for (int i = 0; i < 20; ++i) {
    team.observe(now, 10 * kMs, 10 * kMs);
    CHECK_EQ(team.choose(now), size_t{1});
    now += 2000 * kMs;
    CHECK_EQ(team.choose(now), size_t{2});
  }
}

TEST(short_or_small_stalls_and_calm_change_nothing) {
  TeamSize team(4);
  team.observe(1 * kMs, kMs / 2, kMs / 4);    // half a region, but too short to mean anything
  team.observe(20 * kMs, 10 * kMs, 4 * kMs);  // long, but not half of the region
  CHECK_EQ(team.choose(20 * kMs), size_t{4});
  team.observe(30 * kMs, 10 * kMs, 10 * kMs);
  CHECK_EQ(team.choose(51 * kMs), size_t{4});
  team.observe(2000 * kMs, 10 * kMs, 0);  // a calm second: the next failure is a first one
  team.observe(2010 * kMs, 10 * kMs, 10 * kMs);
  CHECK_EQ(team.choose(2031 * kMs), size_t{4});
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
