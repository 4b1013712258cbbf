// SPDX-License-Identifier: Apache-2.0
// A fixed team of threads that runs one region at a time, all together.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace octavo {

// Invariant: between regions every worker waits for the epoch to move; inside a region every thread
// of the team runs the same function, and `barrier` is reached by all of them equally often.
//
// Waiting spins for spin_us and then parks in the kernel (futex), so an idle engine costs nothing
// and a descheduled peer does not burn its own time slice. One thread may call `run` at a time.
class ThreadPool {
 public:
  using Region = void (*)(void* context, size_t thread_idx) noexcept;

  // num_threads counts the caller, who is thread 0; num_threads - 1 workers are started.
  explicit ThreadPool(size_t num_threads, uint32_t spin_us = 50);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t size() const { return num_threads_; }

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
  uint32_t arrive(size_t thread_idx);
  void gather(uint32_t phase);

  size_t num_threads_;
  uint32_t spin_us_;
  Region region_ = nullptr;  // null: the team is dismissed
  void* context_ = nullptr;
  Flag go_;                          // regions begun; moved by the caller
  Flag release_;                     // barriers opened; moved by the caller
  std::unique_ptr<Flag[]> arrived_;  // per thread: barriers reached, a region's end being one
  std::vector<std::thread> threads_;
};

// The half-open share [begin, end) of `count` units that belongs to one of `parts` threads; sizes
// differ by at most one.
struct Share {
  size_t begin, end;
};
inline Share share_of(size_t count, size_t parts, size_t idx) {
  return {count * idx / parts, count * (idx + 1) / parts};
}

}  // namespace octavo
