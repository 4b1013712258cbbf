// SPDX-License-Identifier: Apache-2.0
// What the long loops of attention work on: vectors of kTiles tiles of eight lanes, here of one.
// Included inside octavo::<isa>::{anonymous} after that folder's lanes-inl.h.
#pragma once

struct Narrow {
  using Vector = V;
  static constexpr size_t kTiles = 1;
  static constexpr int kRegisters = 16;
  template <class T>
  static V gather(const T* const* tiles, size_t offset) {
    return load(tiles[0] + offset);
  }
  template <class T>
  static V read(const T* from) {
    return load(from);
  }
  static void write(float* to, V a) { store(to, a); }
  static V splat(float x) { return set1(x); }
  static V times(V a, V b) { return mul(a, b); }
  static V add_product(V a, V b, V c) { return fma(a, b, c); }
};
