// SPDX-License-Identifier: Apache-2.0
// Elementwise and reducing vector kernels over eight lanes. Included inside
// octavo::<isa>::{anonymous} after that folder's lanes-inl.h. Tails go through a padded copy, so
// nothing past n is touched and a tail's element takes the same operations as any other.
#pragma once

#include "kernels/math-inl.h"

inline V load_tail(const float* x, size_t n, float fill) {
  float lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = i < n ? x[i] : fill;
  return load(lanes);
}

inline void store_tail(float* x, size_t n, V a) {
  float lanes[kLanes];
  store(lanes, a);
  for (size_t i = 0; i < n; ++i) x[i] = lanes[i];
}

template <class F>
inline void map(const float* x, size_t n, float* out, F f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(x + i)));
  if (i < n) store_tail(out + i, n - i, f(load_tail(x + i, n - i, 0.0f)));
}

template <class F>
inline void map2(const float* x, const float* y, size_t n, float* out, F f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(x + i), load(y + i)));
  if (i < n) {
    const size_t rest = n - i;
    store_tail(out + i, rest, f(load_tail(x + i, rest, 0.0f), load_tail(y + i, rest, 0.0f)));
  }
}

// One accumulator of eight lanes: `fill` must leave it as it is.
template <class F>
inline V reduce(const float* x, size_t n, V acc, float fill, F f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) acc = f(acc, load(x + i));
  return i < n ? f(acc, load_tail(x + i, n - i, fill)) : acc;
}

void rms_norm(const float* x, const float* weight, size_t n, float eps, float* out) noexcept {
  const V squares = reduce(x, n, set1(0.0f), 0.0f, [](V acc, V a) { return fma(a, a, acc); });
  const float mean = sum_lanes(squares) / static_cast<float>(n);
  const V factor = set1(1.0f / __builtin_sqrtf(mean + eps));
  if (weight == nullptr) return map(x, n, out, [=](V a) { return mul(a, factor); });
  map2(x, weight, n, out, [=](V a, V w) { return mul(mul(a, factor), w); });
}

void add_to(float* x, const float* y, size_t n) noexcept {
  map2(x, y, n, x, [](V a, V b) { return add(a, b); });
}

void scale(float* x, float factor, size_t n) noexcept {
  map(x, n, x, [=](V a) { return mul(a, set1(factor)); });
}

void silu_mul(const float* gate, const float* up, size_t n, float* out) noexcept {
  map2(gate, up, n, out, [](V g, V u) { return mul(silu(g), u); });
}

void gelu_tanh_mul(const float* gate, const float* up, size_t n, float* out) noexcept {
  map2(gate, up, n, out, [](V g, V u) { return mul(gelu_tanh(g), u); });
}

void soft_cap(float* x, float cap, size_t n) noexcept {
  map(x, n, x, [=](V a) { return mul(tanh(div(a, set1(cap))), set1(cap)); });
}

// (a, b) -> (a cos - b sin, b cos + a sin), each a product and then one fma, in both pairings.
void rope_interleaved(float* head, const float* cos, const float* sin, size_t num_pairs) noexcept {
  constexpr size_t kPairs = kLanes / 2;
  constexpr float kAlternate[kLanes] = {-1, 1, -1, 1, -1, 1, -1, 1};
  const V signs = load(kAlternate);
  size_t i = 0;
  for (; i + kPairs <= num_pairs; i += kPairs) {
    const V x = load(head + 2 * i);
    const V straight = mul(x, load_twice(cos + i));
    store(head + 2 * i, fma(swap_pairs(x), mul(load_twice(sin + i), signs), straight));
  }
  for (; i < num_pairs; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = __builtin_fmaf(b, -sin[i], a * cos[i]);
    head[2 * i + 1] = __builtin_fmaf(a, sin[i], b * cos[i]);
  }
}

void rope_halves(float* head, const float* cos, const float* sin, size_t num_pairs) noexcept {
  float* const upper = head + num_pairs;
  size_t i = 0;
  for (; i + kLanes <= num_pairs; i += kLanes) {
    const V a = load(head + i);
    const V b = load(upper + i);
    const V c = load(cos + i);
    const V s = load(sin + i);
    store(head + i, fma(b, sub(set1(0.0f), s), mul(a, c)));
    store(upper + i, fma(a, s, mul(b, c)));
  }
  for (; i < num_pairs; ++i) {
    const float a = head[i];
    const float b = upper[i];
    head[i] = __builtin_fmaf(b, 0.0f - sin[i], a * cos[i]);
    upper[i] = __builtin_fmaf(a, sin[i], b * cos[i]);
  }
}

float max_of(const float* x, size_t n) noexcept {
  // The new element is the first operand, so a NaN gives way to what is there.
  V lanes[4] = {set1(-__builtin_huge_valf()), set1(-__builtin_huge_valf()),
                set1(-__builtin_huge_valf()), set1(-__builtin_huge_valf())};
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (size_t j = 0; j < 4; ++j) lanes[j] = max(load(x + i + j * kLanes), lanes[j]);
  }
  lanes[0] = reduce(x + i, n - i, lanes[0], -__builtin_huge_valf(),
                    [](V acc, V a) { return max(a, acc); });
  return max_lanes(max(max(lanes[0], lanes[1]), max(lanes[2], lanes[3])));
}

// The greatest of each stretch first, then its place
// in the one stretch that holds the greatest of all.
size_t argmax(const float* x, size_t n) noexcept {
  constexpr size_t kStretch = 512;
  float best = -__builtin_huge_valf();
  size_t begin = 0;
  for (size_t i = 0; i < n; i += kStretch) {
    const float candidate = max_of(x + i, n - i < kStretch ? n - i : kStretch);
    if (candidate > best) {
      best = candidate;
      begin = i;
    }
  }
  for (size_t i = begin; i < n; ++i) {
    if (x[i] == best) return i;
  }
  return 0;  // every element is NaN
}

float sum_exp(const float* x, float max, size_t n) noexcept {
  const V shift = set1(max);
  return sum_lanes(reduce(x, n, set1(0.0f), -__builtin_huge_valf(),
                          [=](V acc, V a) { return add(acc, exp_flushed(sub(a, shift))); }));
}
