// SPDX-License-Identifier: Apache-2.0
// A team of threads that runs one region at a time, all together.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace octavo {

// The half-open share [begin, end) of `count` units that belongs to one of `parts` threads; sizes
// differ by at most one.
struct Share {
  size_t begin, end;
};
inline Share share_of(size_t count, size_t parts, size_t idx) {
  return {count * idx / parts, count * (idx + 1) / parts};
}

// How many threads of a team to use while somebody else wants the same cores.
//
// A barrier waits for the slowest thread, so one thread that the system has descheduled for a
// time slice (3-4 ms) stops all the others, a hundred times a step: beside one busy process two
// threads were measured 15 times slower than one. Hence congestion control: a region that spent
// most of its time stalled halves the team, and after a pause, twice as long each time it fails,
// a doubled team is tried again.
//
// Invariant: 1 <= team <= size. Not thread-safe; the caller of the regions owns it.
class TeamSize {
 public:
  explicit TeamSize(size_t size) : size_(size), team_(size) {}

  // The team for a region that begins at `now_ns`.
  size_t choose(uint64_t now_ns);

  // What the region took, and for how much of it the caller waited past its spinning.
  void observe(uint64_t now_ns, uint64_t region_ns, uint64_t stalled_ns);

 private:
  size_t size_;
  size_t team_;
  uint64_t pause_ns_ = 0;  // before the next try; 0: nothing has stalled lately
  uint64_t next_try_ns_ = 0;
  uint64_t calm_since_ns_ = 0;
};

// Invariant: between regions every worker waits for its epoch to move; inside a region the first
// `team()` threads run the same function, and `barrier` is reached by all of them equally often.
//
// Waiting spins for spin_us (between regions four times as long, see thread_pool.cc) and then parks
// in the kernel (futex), so an idle engine costs nothing and a descheduled peer does not burn its
// own time slice. One thread may call `run` at a time.
class ThreadPool {
 public:
  using Region = void (*)(void* context, size_t thread_idx) noexcept;

  // num_threads counts the caller, who is thread 0; num_threads - 1 workers are started.
  explicit ThreadPool(size_t num_threads, uint32_t spin_us = 50);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t size() const { return num_threads_; }

  // Threads that take part in the region in progress, thread_idx < team(): all of them, fewer
  // while the machine is busy. What a region computes must not depend on it.
  size_t team() const { return team_; }

  // A thread's share of `count` units in the region in progress. Never share by size(): threads
  // that are not in the team would take theirs with them.
  Share share(size_t count, size_t thread_idx) const { return share_of(count, team_, thread_idx); }

  // Runs `region` once on every thread of the team; returns when all have finished.
  void run(Region region, void* context);

  // The same for a callable void(size_t thread_idx) noexcept; nothing is copied or allocated.
  template <typename F>
  void run(F& body) {
    run([](void* context, size_t idx) noexcept { (*static_cast<F*>(context))(idx); }, &body);
  }

  // Waits until every thread of the team is here; only inside a region. Memory written before it by
  // any thread is visible to all after it.
  void barrier(size_t thread_idx);

 private:
  // One counter per cache line: a waiter polls a line that only its publisher writes.
  struct alignas(64) Flag {
    std::atomic<uint32_t> epoch{0};
  };

  void work(size_t thread_idx);
  void gather();
  void dismiss();

  size_t num_threads_;
  size_t team_ = 1;
  uint32_t spin_us_;
  Region region_ = nullptr;  // null: the team is dismissed
  void* context_ = nullptr;
  // Per thread: regions begun, moved by the caller; barriers reached (a region's end being one),
  // moved by the thread; barriers opened, moved by the caller.
  std::unique_ptr<Flag[]> go_, arrived_, release_;
  std::vector<uint32_t> gathered_;  // the caller's count of each thread's arrivals
  TeamSize team_size_;
  uint64_t stalled_ns_ = 0;  // of the caller, in the region in progress
  std::vector<std::thread> threads_;
};

}  // namespace octavo
