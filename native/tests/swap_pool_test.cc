// SPDX-License-Identifier: Apache-2.0
#include "octavo/swap_pool.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <vector>

#include "check.h"

namespace octavo {
namespace {

constexpr size_t kBlocks = 7;

// A folder that is gone with the test.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "octavo-swap-test-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove(path_); }  // not its contents: there must be none
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

KvPool filled_pool() {
  KvPool kv({{2, 16}, {1, 8}}, kBlocks, 8);
  for (size_t i = 0; i < kBlocks * kv.block_bytes(); ++i) {
    kv.block(0)[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  return kv;
}

void check_round_trip(SwapPool& swap, ThreadPool& pool) {
  const KvPool before = filled_pool();
  const KvPool kv = filled_pool();
  const size_t bytes = kv.block_bytes();
  const SwapMove outs[] = {{0, 4}, {6, 0}, {3, 2}, {2, 1}};
  swap.store(outs, kv, pool);
  CHECK(std::memcmp(kv.block(0), before.block(0), kBlocks * bytes) == 0);
  std::memset(kv.block(0), 0xff, kBlocks * bytes);
  const SwapMove ins[] = {{4, 5}, {0, 1}, {2, 3}, {1, 0}};
  swap.load(ins, kv, pool);
  const int32_t came_from[] = {2, 6, -1, 3, -1, 0, -1};
  for (int32_t block = 0; block < static_cast<int32_t>(kBlocks); ++block) {
    if (came_from[block] >= 0) {
      CHECK(std::memcmp(kv.block(block), before.block(came_from[block]), bytes) == 0);
      continue;
    }
    for (size_t i = 0; i < bytes; ++i) CHECK(kv.block(block)[i] == std::byte{0xff});
  }
}

TEST(blocks_return_bit_for_bit) {
  const size_t bytes = filled_pool().block_bytes();
  for (size_t num_threads : {1, 3}) {
    ThreadPool pool(num_threads);
    SwapPool memory(5, bytes, {});
    check_round_trip(memory, pool);
    check_round_trip(memory, pool);
    const Folder folder;
    SwapPool file(5, bytes, folder.path());
    CHECK(std::filesystem::is_empty(folder.path()));
    CHECK_EQ(file.bytes(), 5 * bytes);
    check_round_trip(file, pool);
    check_round_trip(file, pool);
  }
}

TEST(a_place_that_cannot_be_had_is_refused) {
  CHECK_THROWS(SwapPool(0, 64, {}), std::invalid_argument);
  CHECK_THROWS(SwapPool(size_t{1} << 32, 64, {}), std::invalid_argument);
  CHECK_THROWS(SwapPool(1 << 30, SIZE_MAX / 2, {}), std::invalid_argument);
  CHECK_THROWS(SwapPool(1, 64, "/nonexistent/folder"), std::runtime_error);
}

// A size limit stands in for a full disk: the write is refused in the same way.
TEST(a_file_that_cannot_grow_throws_and_goes_on) {
  const Folder folder;
  const KvPool kv = filled_pool();
  ThreadPool pool(2);
  SwapPool swap(5, kv.block_bytes(), folder.path());
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  rlimit limit = old_limit;
  limit.rlim_cur = 2 * kv.block_bytes() + 1;
  setrlimit(RLIMIT_FSIZE, &limit);
  const SwapMove moves[] = {{0, 4}, {6, 0}, {3, 2}, {2, 1}};
  CHECK_THROWS(swap.store(moves, kv, pool), std::runtime_error);
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  check_round_trip(swap, pool);
}

}  // namespace
}  // namespace octavo

CHECK_MAIN()
