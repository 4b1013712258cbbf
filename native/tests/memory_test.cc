// SPDX-License-Identifier: Apache-2.0
#include "octavo/memory.h"

#include <new>
#include <utility>

#include "check.h"

namespace octavo {
namespace {

TEST(a_mapping_is_zero_and_aligned) {
  for (size_t bytes : {size_t{1}, size_t{4097}, size_t{3} << 20}) {
    Mapping mapping(bytes);
    CHECK_EQ(mapping.size(), bytes);
    CHECK_EQ(reinterpret_cast<uintptr_t>(mapping.data()) % (bytes >= (2u << 20) ? 2u << 20 : 64u),
             0u);
    CHECK(mapping.data()[0] == std::byte{0});
    CHECK(mapping.data()[bytes - 1] == std::byte{0});
    mapping.data()[bytes - 1] = std::byte{1};
  }
}

TEST(an_empty_mapping_is_fine_and_an_impossible_one_is_refused) {
  CHECK_EQ(Mapping(0).size(), size_t{0});
  CHECK_THROWS(Mapping(SIZE_MAX / 2), std::bad_alloc);
  CHECK_THROWS(Mapping(SIZE_MAX), std::bad_alloc);
}

TEST(a_moved_mapping_keeps_its_memory) {
  Mapping a(64);
  a.data()[3] = std::byte{7};
  Mapping b(std::move(a));
  CHECK(b.data()[3] == std::byte{7});
  Mapping c;
  c = std::move(b);
  CHECK(c.data()[3] == std::byte{7});
}

TEST(an_arena_hands_out_aligned_pieces_until_it_is_full) {
  Arena arena(200);  // rounds up to 256
  std::byte* first = arena.take(1);
  std::byte* second = arena.take(65);
  CHECK_EQ(second - first, 64);
  CHECK_EQ(arena.used(), size_t{192});
  CHECK_THROWS(arena.take(65), std::bad_alloc);
  arena.take(64);
  CHECK_EQ(arena.used(), arena.capacity());
  arena.take(0);
  CHECK_THROWS(arena.take(1), std::bad_alloc);
}

}  // namespace
}  // namespace octavo

CHECK_MAIN()
