// SPDX-License-Identifier: Apache-2.0
// Memory that lives as long as the engine: reserved as addresses, committed as it is touched.
#pragma once
#include <cstddef>
#include <cstdint>

namespace octavo {

// One anonymous mapping, zero on first touch, 2 MiB aligned and advised to use huge pages when
// large. Throws std::bad_alloc when the address space or the overcommit limit refuses it.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(size_t bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* base_ = nullptr;
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Hands out pieces of one mapping, front to back, never returned singly. Invariant: used <=
// capacity.
class Arena {
 public:
  explicit Arena(size_t capacity_bytes);

  // `bytes` aligned to 64. Throws std::bad_alloc when the arena is full: callers know their sizes.
  std::byte* take(size_t bytes);

  size_t used() const { return used_; }
  size_t capacity() const { return mapping_.size(); }

 private:
  Mapping mapping_;
  size_t used_ = 0;
};

}  // namespace octavo
