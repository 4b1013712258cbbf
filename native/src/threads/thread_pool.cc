// SPDX-License-Identifier: Apache-2.0
#include "octavo/thread_pool.h"

#include <algorithm>
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

uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

void wait_for(const std::atomic<uint32_t>& epoch, uint32_t wanted, uint32_t spin_us) {
  if (spin_until(epoch, wanted, spin_us)) return;
  for (;;) {
    const uint32_t now = epoch.load(std::memory_order_acquire);
    if (reached(now, wanted)) return;
    epoch.wait(now, std::memory_order_acquire);
  }
}

void publish(std::atomic<uint32_t>& epoch) {
  epoch.store(epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  epoch.notify_all();
}

// A team is tried again after 20 ms, a few time slices; each failure doubles that up to 2 s,
// where a try that takes 100 ms costs 5 %. A second without a stall forgets the failures.
constexpr uint64_t kFirstPauseNs = 20'000'000;
constexpr uint64_t kLongestPauseNs = 2'000'000'000;
constexpr uint64_t kCalmNs = 1'000'000'000;
constexpr uint64_t kStallNs = 500'000;  // less in a region is noise: a thread that wakes late, once
constexpr uint64_t kPatienceNs = 100'000;  // waking a parked peer takes 30-60 us, and is no stall

}  // namespace

size_t TeamSize::choose(uint64_t now_ns) {
  if (team_ < size_ && now_ns >= next_try_ns_) team_ = std::min(size_, team_ * 2);
  return team_;
}

void TeamSize::observe(uint64_t now_ns, uint64_t region_ns, uint64_t stalled_ns) {
  if (stalled_ns < kStallNs || stalled_ns < region_ns / 2) {
    if (now_ns - calm_since_ns_ >= kCalmNs && team_ == size_) pause_ns_ = 0;
    return;
  }
  calm_since_ns_ = now_ns;
  pause_ns_ = std::min(std::max(2 * pause_ns_, kFirstPauseNs), kLongestPauseNs);
  next_try_ns_ = now_ns + pause_ns_;
  team_ = std::max<size_t>(1, team_ / 2);
}

ThreadPool::ThreadPool(size_t num_threads, uint32_t spin_us)
    : num_threads_(num_threads),
      spin_us_(spin_us),
      gathered_(num_threads),
      team_size_(num_threads) {
  if (num_threads == 0) throw std::invalid_argument("num_threads must be at least 1, got 0");
  for (auto* flags : {&go_, &arrived_, &release_}) *flags = std::make_unique<Flag[]>(num_threads);
  threads_.reserve(num_threads - 1);
  try {
    for (size_t idx = 1; idx < num_threads; ++idx)
      threads_.emplace_back([this, idx] { work(idx); });
  } catch (...) {  // the system refused a thread: dismiss those that started
    dismiss();
    throw;
  }
}

ThreadPool::~ThreadPool() { dismiss(); }

void ThreadPool::dismiss() {
  region_ = nullptr;
  for (size_t idx = 1; idx <= threads_.size(); ++idx) publish(go_[idx].epoch);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(Region region, void* context) {
  region_ = region;
  context_ = context;
  stalled_ns_ = 0;
  const uint64_t begin_ns = now_ns();
  team_ = team_size_.choose(begin_ns);
  for (size_t idx = 1; idx < team_; ++idx) publish(go_[idx].epoch);
  region(context, 0);
  gather();
  const uint64_t end_ns = now_ns();
  team_size_.observe(end_ns, end_ns - begin_ns, stalled_ns_);
}

void ThreadPool::barrier(size_t thread_idx) {
  if (thread_idx == 0) {
    gather();
    for (size_t idx = 1; idx < team_; ++idx) publish(release_[idx].epoch);
  } else {
    const std::atomic<uint32_t>& opened = release_[thread_idx].epoch;
    const uint32_t wanted =
        opened.load(std::memory_order_relaxed) + 1;  // before the caller may move it
    publish(arrived_[thread_idx].epoch);
    wait_for(opened, wanted, spin_us_);
  }
}

void ThreadPool::work(size_t thread_idx) {
  for (uint32_t region = 1;; ++region) {
    wait_for(go_[thread_idx].epoch, region, kIdleSpinFactor * spin_us_);
    if (region_ == nullptr) return;
    region_(context_, thread_idx);
    publish(arrived_[thread_idx].epoch);
  }
}

// Only the caller: waits for the rest of the team, and keeps account of waits that no imbalance
// explains.
void ThreadPool::gather() {
  for (size_t idx = 1; idx < team_; ++idx) {
    const std::atomic<uint32_t>& epoch = arrived_[idx].epoch;
    const uint32_t wanted = ++gathered_[idx];
    if (spin_until(epoch, wanted, spin_us_)) continue;
    const uint64_t begin_ns = now_ns();
    wait_for(epoch, wanted, 0);
    const uint64_t waited_ns = now_ns() - begin_ns;
    if (waited_ns > kPatienceNs) stalled_ns_ += waited_ns - kPatienceNs;
  }
}

}  // namespace octavo
