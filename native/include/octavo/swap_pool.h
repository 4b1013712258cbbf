// SPDX-License-Identifier: Apache-2.0
// The swap tier: where blocks of the KV pool wait while their sequences do not run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "octavo/decoder.h"
#include "octavo/kv_pool.h"
#include "octavo/memory.h"
#include "octavo/thread_pool.h"

namespace octavo {

// num_blocks places of one block each, in memory or in a file. Memory is committed when a place is
// first used. A file has no name, so it is gone with the process however that ends; it is sparse,
// and written and read by system calls and not through a mapping: a full disk is then an error of
// the write, where a store to a mapping would be a fatal signal.
class SwapPool {
 public:
  // `path` is an existing folder for the file, nothing: memory. Throws std::invalid_argument for a
  // bad size, std::runtime_error when the file cannot be made, std::bad_alloc.
  SwapPool(size_t num_blocks, size_t block_bytes, const std::optional<std::string>& path);
  ~SwapPool();
  SwapPool(const SwapPool&) = delete;
  SwapPool& operator=(const SwapPool&) = delete;

  size_t num_blocks() const { return num_blocks_; }
  size_t bytes() const { return num_blocks_ * block_bytes_; }

  // Move blocks on all threads, bit for bit: load from here to `kv`, store from `kv` to here. Ids
  // are within bounds, no block is written twice. Throw std::runtime_error with the system's reason
  // when the file fails; what the blocks written then hold is not known.
  void load(std::span<const SwapMove> moves, const KvPool& kv, ThreadPool& pool) const;
  void store(std::span<const SwapMove> moves, const KvPool& kv, ThreadPool& pool);

 private:
  std::byte* place(int32_t id) const;

  size_t num_blocks_;
  size_t block_bytes_;
  Mapping mapping_;  // empty when there is a file
  int file_ = -1;
};

}  // namespace octavo
