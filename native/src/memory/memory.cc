// SPDX-License-Identifier: Apache-2.0
#include "octavo/memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace octavo {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAlignment = 64;  // a cache line, and the widest vector register

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Mapping::Mapping(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes > SIZE_MAX - 2 * kHugePage) throw std::bad_alloc();
  const bool is_large = bytes >= kHugePage;
  mapped_ = is_large ? bytes + kHugePage : bytes;
  // NORESERVE: a KV pool is sized for the worst case and usually touched in part.
  void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = base;
  const auto address = reinterpret_cast<uintptr_t>(base);
  data_ = reinterpret_cast<std::byte*>(is_large ? round_up(address, kHugePage) : address);
  if (is_large) madvise(data_, size_, MADV_HUGEPAGE);  // advice: refusal changes nothing
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

Mapping::Mapping(Mapping&& other) noexcept { *this = std::move(other); }

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Arena::Arena(size_t capacity_bytes) : mapping_(round_up(capacity_bytes, kAlignment)) {}

std::byte* Arena::take(size_t bytes) {
  if (bytes > capacity() - used_) throw std::bad_alloc();
  std::byte* piece = mapping_.data() + used_;
  used_ += round_up(bytes, kAlignment);
  return piece;
}

}  // namespace octavo
