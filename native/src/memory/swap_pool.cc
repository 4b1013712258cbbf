// SPDX-License-Identifier: Apache-2.0
#include "octavo/swap_pool.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace octavo {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::generic_category().message(error));
}

// A file without a name. Filesystems that cannot make one get a named file, whose name is removed
// at once.
int open_nameless(const std::string& folder) {
#ifdef O_TMPFILE
  const int nameless = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (nameless >= 0) return nameless;
#endif
  std::string name = folder + "/octavo-swap-XXXXXX";
  const int file = mkstemp(name.data());
  if (file < 0) fail("cannot make a swap file in " + folder, errno);
  unlink(name.c_str());
  fcntl(file, F_SETFD, FD_CLOEXEC);
  return file;
}

// `transfer` is pread or pwrite; both may do less than asked. 0, or errno.
template <typename Transfer, typename Byte>
int transfer_all(Transfer transfer, int file, Byte* bytes, size_t size, size_t offset) {
  while (size > 0) {
    const ssize_t done = transfer(file, bytes, size, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return EIO;  // a block that was never written, or the file was cut
    bytes += done;
    offset += static_cast<size_t>(done);
    size -= static_cast<size_t>(done);
  }
  return 0;
}

// Runs move_one(move), which answers 0 or an errno, for all moves on all threads; the first error,
// if any.
template <typename MoveOne>
int run_moves(std::span<const SwapMove> moves, ThreadPool& pool, MoveOne move_one) {
  std::atomic<int> error{0};
  auto region = [&](size_t thread_idx) noexcept {
    const Share share = pool.share(moves.size(), thread_idx);
    for (size_t i = share.begin; i < share.end && error.load() == 0; ++i) {
      int none = 0;
      const int failed = move_one(moves[i]);
      if (failed != 0) error.compare_exchange_strong(none, failed);
    }
  };
  pool.run(region);
  return error.load();
}

}  // namespace

SwapPool::SwapPool(size_t num_blocks, size_t block_bytes, const std::optional<std::string>& path)
    : num_blocks_(num_blocks), block_bytes_(block_bytes) {
  if (num_blocks == 0 || num_blocks > INT32_MAX || block_bytes > INT64_MAX / num_blocks) {
    throw std::invalid_argument(
        "num_swap_blocks must be in [1, 2147483647] and address less than "
        "2^63 bytes, got " +
        std::to_string(num_blocks));
  }
  if (!path) {
    mapping_ = Mapping(bytes());
    return;
  }
  file_ = open_nameless(*path);
  if (ftruncate(file_, static_cast<off_t>(bytes())) != 0) {
    const int error = errno;
    close(file_);
    fail("a swap file of " + std::to_string(bytes()) + " bytes in " + *path, error);
  }
}

SwapPool::~SwapPool() {
  if (file_ >= 0) close(file_);
}

std::byte* SwapPool::place(int32_t id) const {
  return mapping_.data() + static_cast<size_t>(id) * block_bytes_;
}

void SwapPool::load(std::span<const SwapMove> moves, const KvPool& kv, ThreadPool& pool) const {
  const int error = run_moves(moves, pool, [&](const SwapMove& move) {
    std::byte* to = kv.block(move.dst);
    if (file_ < 0) {
      std::memcpy(to, place(move.src), block_bytes_);
      return 0;
    }
    return transfer_all(pread, file_, to, block_bytes_,
                        static_cast<size_t>(move.src) * block_bytes_);
  });
  if (error != 0) fail("reading " + std::to_string(moves.size()) + " swap blocks", error);
}

void SwapPool::store(std::span<const SwapMove> moves, const KvPool& kv, ThreadPool& pool) {
  const int error = run_moves(moves, pool, [&](const SwapMove& move) {
    const std::byte* from = kv.block(move.src);
    if (file_ < 0) {
      std::memcpy(place(move.dst), from, block_bytes_);
      return 0;
    }
    return transfer_all(pwrite, file_, from, block_bytes_,
                        static_cast<size_t>(move.dst) * block_bytes_);
  });
  if (error != 0) fail("writing " + std::to_string(moves.size()) + " swap blocks", error);
}

}  // namespace octavo
