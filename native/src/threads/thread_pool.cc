// SPDX-License-Identifier: Apache-2.0
#include "octavo/thread_pool.h"

#include <chrono>
#include <stdexcept>

namespace octavo {
namespace {

// Between regions Python plans the next step, typically 100-300 us: worth a longer spin than a
// barrier, because waking a parked thread costs 30-60 us in a virtual machine.
constexpr uint32_t kIdleSpinFactor = 4;
constexpr uint32_t kPausesPerClockRead = 32;  // a clock read costs about as much as 20 ns of pauses

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Epochs wrap: compare by signed distance. Half the range (2^31 barriers) can never lie between
// them.
bool reached(uint32_t now, uint32_t wanted) { return static_cast<int32_t>(now - wanted) >= 0; }

bool spin_until(const std::atomic<uint32_t>& epoch, uint32_t wanted, uint32_t spin_us) {
  if (reached(epoch.load(std::memory_order_acquire), wanted)) return true;
  if (spin_us == 0) return false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
  do {
    for (uint32_t i = 0; i < kPausesPerClockRead; ++i) {
      relax();
      if (reached(epoch.load(std::memory_order_acquire), wanted)) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

void wait_for(const std::atomic<uint32_t>& epoch, uint32_t wanted, uint32_t spin_us) {
  if (spin_until(epoch, wanted, spin_us)) return;
  for (;;) {
    const uint32_t now = epoch.load(std::memory_order_acquire);
    if (reached(now, wanted)) return;
    epoch.wait(now, std::memory_order_acquire);
  }
}

void publish(std::atomic<uint32_t>& epoch, uint32_t value) {
  epoch.store(value, std::memory_order_release);
  epoch.notify_all();
}

}  // namespace

ThreadPool::ThreadPool(size_t num_threads, uint32_t spin_us)
    : num_threads_(num_threads), spin_us_(spin_us) {
  if (num_threads == 0) throw std::invalid_argument("num_threads must be at least 1, got 0");
  arrived_ = std::make_unique<Flag[]>(num_threads);
  threads_.reserve(num_threads - 1);
  try {
    for (size_t idx = 1; idx < num_threads; ++idx)
      threads_.emplace_back([this, idx] { work(idx); });
  } catch (...) {  // the system refused a thread: dismiss those that started
    publish(go_.epoch, 1);
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  region_ = nullptr;
  publish(go_.epoch, go_.epoch.load(std::memory_order_relaxed) + 1);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(Region region, void* context) {
  region_ = region;
  context_ = context;
  publish(go_.epoch, go_.epoch.load(std::memory_order_relaxed) + 1);
  region(context, 0);
  gather(arrive(0));
}

void ThreadPool::barrier(size_t thread_idx) {
  const uint32_t phase = arrive(thread_idx);
  if (thread_idx == 0) {
    gather(phase);
  } else {
    wait_for(release_.epoch, phase, spin_us_);
  }
}

void ThreadPool::work(size_t thread_idx) {
  for (uint32_t region = 1;; ++region) {
    wait_for(go_.epoch, region, kIdleSpinFactor * spin_us_);
    if (region_ == nullptr) return;
    region_(context_, thread_idx);
    arrive(thread_idx);
  }
}

uint32_t ThreadPool::arrive(size_t thread_idx) {
  std::atomic<uint32_t>& epoch = arrived_[thread_idx].epoch;
  const uint32_t phase = epoch.load(std::memory_order_relaxed) + 1;
  publish(epoch, phase);
  return phase;
}

// Only the caller: waits for the whole team, then opens the barrier (nobody waits at a region's
// end).
void ThreadPool::gather(uint32_t phase) {
  for (size_t idx = 1; idx < num_threads_; ++idx) {
    wait_for(arrived_[idx].epoch, phase, spin_us_);
  }
  publish(release_.epoch, phase);
}

}  // namespace octavo
