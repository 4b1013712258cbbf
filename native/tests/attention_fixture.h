// SPDX-License-Identifier: Apache-2.0
// A sequence of random queries, keys and values, its paged cache, and attention over both.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "kernel_tables.h"

namespace octavo::check {

constexpr uint16_t kHalfNan = 0x7e00;

inline double half_to_double(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(fraction, -24)
                                     : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

struct Shape {
  size_t head_dim = 64;
  size_t group = 3;
  size_t num_kv_heads = 2;
  size_t length = 40;  // tokens in the cache
  size_t window = 0;
  float soft_cap = 0.0f;
};

// Queries, keys and values of one sequence, in plain arrays.
struct Sequence {
  Shape shape;
  std::vector<float> q;  // [length][num_kv_heads * group][head_dim]
  std::vector<float> k;  // [length][num_kv_heads][head_dim]
  std::vector<float> v;
  float scale;

  Sequence(const Shape& s, uint32_t seed) : shape(s), scale(1.0f / std::sqrt(float(s.head_dim))) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    q.resize(s.length * q_stride());
    k.resize(s.length * kv_stride());
    v.resize(k.size());
    for (float& x : q) x = 1.5f * normal(random);
    for (float& x : k) x = 1.5f * normal(random);
    for (float& x : v) x = normal(random);
  }
  size_t q_stride() const { return shape.num_kv_heads * shape.group * shape.head_dim; }
  size_t kv_stride() const { return shape.num_kv_heads * shape.head_dim; }
};

// The same sequence in blocks scattered over a pool in which every other slot is NaN.
struct Cache {
  std::vector<uint16_t> pool;
  std::vector<int32_t> table;
  KvView view;

  Cache(const Sequence& sequence, size_t block_size, uint32_t seed,
        const KernelTable& kernels = scalar_table()) {
    const Shape& s = sequence.shape;
    const size_t num_blocks = (s.length + block_size - 1) / block_size;
    view.block_size = block_size;
    view.num_kv_heads = s.num_kv_heads;
    view.head_dim = s.head_dim;
    view.block_stride = 2 * s.num_kv_heads * block_size * s.head_dim + 16;
    pool.assign(2 * num_blocks * view.block_stride, kHalfNan);
    table.resize(2 * num_blocks);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(seed));
    view.base = pool.data();
    view.table = table.data();
    for (size_t p = 0; p < s.length; ++p) {
      kernels.attention->store_kv(view, p, sequence.k.data() + p * sequence.kv_stride(),
                                  sequence.v.data() + p * sequence.kv_stride());
    }
  }
  uint16_t& key(size_t position, size_t head, size_t d) {
    const size_t slot = position % view.block_size;
    return block(position)[head * view.block_size * view.head_dim + slot / 8 * 8 * view.head_dim +
                           d * 8 + slot % 8];
  }
  uint16_t& value(size_t position, size_t head, size_t d) {
    return block(position)[(view.num_kv_heads + head) * view.block_size * view.head_dim +
                           position % view.block_size * view.head_dim + d];
  }
  uint16_t* block(size_t position) {
    return pool.data() + size_t(table[position / view.block_size]) * view.block_stride;
  }
};

inline AttentionTile make_tile(const Sequence& sequence, const Cache& cache, size_t kv_head,
                               size_t first_position, size_t num_tokens) {
  const Shape& s = sequence.shape;
  AttentionTile tile;
  tile.kv = cache.view;
  tile.kv_head = kv_head;
  tile.group = s.group;
  tile.first_position = first_position;
  tile.num_tokens = num_tokens;
  tile.window = s.window;
  tile.q =
      sequence.q.data() + first_position * sequence.q_stride() + kv_head * s.group * s.head_dim;
  tile.q_token_stride = sequence.q_stride();
  tile.scale = sequence.scale;
  tile.soft_cap = s.soft_cap;
  return tile;
}

// 64-byte aligned and poisoned; checks that nothing past its end was written.
struct Scratch {
  size_t floats;
  float* data;
  explicit Scratch(const AttentionTile& tile) : floats(attention_scratch_floats(tile)) {
    data = static_cast<float*>(std::aligned_alloc(64, (floats + 16 + 15) / 16 * 64));
    for (size_t i = 0; i < floats + 16; ++i) data[i] = NAN;
  }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    for (size_t i = floats; i < floats + 16; ++i) CHECK(std::isnan(data[i]));
    std::free(data);
  }
};

// Output of every head at positions [first, first + num): [num][heads][head_dim].
inline std::vector<float> attend(const KernelTable& kernels, const Sequence& sequence,
                                 const Cache& cache, size_t first, size_t num) {
  const Shape& s = sequence.shape;
  std::vector<float> out(num * sequence.q_stride(), NAN);
  for (size_t head = 0; head < s.num_kv_heads; ++head) {
    const AttentionTile tile = make_tile(sequence, cache, head, first, num);
    Scratch scratch(tile);
    kernels.attention->attend(tile, out.data() + head * s.group * s.head_dim, sequence.q_stride(),
                              scratch.data);
  }
  return out;
}

}  // namespace octavo::check
