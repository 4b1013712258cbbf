// SPDX-License-Identifier: Apache-2.0
// Paged attention against softmax in float64; and a row's bits, which nothing else may change.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attention_fixture.h"
#include "check.h"
#include "kernel_tables.h"
#include "octavo/kernels.h"

namespace octavo {
namespace {

using namespace check;

constexpr double kEps = 0x1p-24;

std::vector<float> attend_in_chunks(const KernelTable& kernels, const Sequence& sequence,
                                    const Cache& cache, size_t begin,
                                    const std::vector<size_t>& chunks) {
  std::vector<float> out;
  for (size_t i = 0; begin < sequence.shape.length; ++i) {
    const size_t num = std::min(chunks[i % chunks.size()], sequence.shape.length - begin);
    const std::vector<float> part = attend(kernels, sequence, cache, begin, num);
    out.insert(out.end(), part.begin(), part.end());
    begin += num;
  }
  return out;
}

KeyRange segment_keys(size_t segment) {
  return {segment * kSegmentTokens, (segment + 1) * kSegmentTokens};
}

std::vector<float> attend_by_segments(const KernelTable& kernels, const Sequence& sequence,
                                      const Cache& cache, size_t first, size_t num) {
  const Shape& s = sequence.shape;
  const size_t segments = (first + num + kSegmentTokens - 1) / kSegmentTokens;
  const size_t rows = num * s.group;
  std::vector<float> out(num * sequence.q_stride(), NAN);
  for (size_t head = 0; head < s.num_kv_heads; ++head) {
    const AttentionTile tile = make_tile(sequence, cache, head, first, num);
    Scratch scratch(tile);
    std::vector<float> acc(segments * rows * s.head_dim, NAN);
    std::vector<float> max_sum(segments * rows * 2, NAN);
    for (size_t i = 0; i < segments; ++i) {
      kernels.attention->attend_keys(tile, segment_keys(i), acc.data() + i * rows * s.head_dim,
                                     max_sum.data() + i * rows * 2, scratch.data);
    }
    for (size_t row = 0; row < rows; ++row) {
      float* to = out.data() + row / s.group * sequence.q_stride() +
                  (head * s.group + row % s.group) * s.head_dim;
      kernels.attention->merge(acc.data() + row * s.head_dim, rows * s.head_dim,
                               max_sum.data() + 2 * row, rows * 2, segments, s.head_dim, to);
    }
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Whether tokens at `positions` that read the first num_shared keys together, and the others alone,
// come out as when each reads all of them alone.
bool shares_alike(const KernelTable& kernels, const Sequence& sequence, const Cache& cache,
                  const std::vector<size_t>& positions, size_t num_shared) {
  const Shape& s = sequence.shape;
  const size_t cols = s.group * s.head_dim;
  const size_t num = positions.size();
  const size_t kv_head = s.num_kv_heads - 1;
  const size_t segments = s.length / kSegmentTokens + 1;
  std::vector<QueryToken> tokens;
  for (const size_t position : positions) {
    tokens.push_back({make_tile(sequence, cache, kv_head, position, 1).q, position});
  }
  const size_t least = *std::min_element(positions.begin(), positions.end());
  AttentionTile together = make_tile(sequence, cache, kv_head, least, num);
  together.tokens = tokens.data();
  std::vector<float> acc(segments * num * cols, NAN);
  std::vector<float> max_sum(segments * num * s.group * 2, NAN);
  Scratch scratch(together);
  for (size_t begin = 0; begin < num_shared; begin += kSegmentTokens) {
    const size_t i = begin / kSegmentTokens;
    kernels.attention->attend_keys(together, {begin, std::min(begin + kSegmentTokens, num_shared)},
                                   acc.data() + i * num * cols,
                                   max_sum.data() + i * num * s.group * 2, scratch.data);
  }
  bool same = true;
  for (size_t t = 0; t < num; ++t) {
    const AttentionTile alone = make_tile(sequence, cache, kv_head, positions[t], 1);
    float* own_acc = acc.data() + t * cols;
    float* own_max_sum = max_sum.data() + t * s.group * 2;
    const size_t count = positions[t] / kSegmentTokens + 1;
    for (size_t begin = num_shared; begin <= positions[t];) {
      const size_t i = begin / kSegmentTokens;
      const size_t end = (i + 1) * kSegmentTokens;
      kernels.attention->attend_keys(alone, {begin, end}, own_acc + i * num * cols,
                                     own_max_sum + i * num * s.group * 2, scratch.data);
      begin = end;
    }
    std::vector<float> merged(cols), whole(cols);
    for (size_t h = 0; h < s.group; ++h) {
      kernels.attention->merge(own_acc + h * s.head_dim, num * cols, own_max_sum + h * 2,
                               num * s.group * 2, count, s.head_dim,
                               merged.data() + h * s.head_dim);
    }
    kernels.attention->attend(alone, whole.data(), cols, scratch.data);
    same &= same_bits(merged, whole);
  }
  return same;
}

struct Row {
  std::vector<double> exact;
  std::vector<double> bound;
};

// One head of one token in float64 from the halves in the cache, with a bound on float32's error.
//
// Scores: an fma chain errs by head_dim eps sum|q k|; scaling, cap (slope at most 1) and log2(e) by
// 6 eps of the score. Weights: exp2 errs by 2.5 eps and by eps times its argument, for the key
// itself and for each rescaling (8 per segment, then one per segment). Sums: one eps per key.
// Numerator and denominator each carry all of it: hence the factor 2.
Row reference_row(const Sequence& sequence, Cache& cache, size_t position, size_t head) {
  const Shape& s = sequence.shape;
  const size_t kv_head = head / s.group;
  const size_t begin = s.window && position + 1 > s.window ? position + 1 - s.window : 0;
  const float* q = sequence.q.data() + position * sequence.q_stride() + head * s.head_dim;
  std::vector<double> scores;
  double dot_error = 0.0;
  double widest = 0.0;
  for (size_t p = begin; p <= position; ++p) {
    double dot = 0.0;
    double magnitude = 0.0;
    for (size_t d = 0; d < s.head_dim; ++d) {
      const double term = q[d] * half_to_double(cache.key(p, kv_head, d));
      dot += term;
      magnitude += std::fabs(term);
    }
    double score = dot * double(sequence.scale);
    dot_error = std::max(dot_error, double(s.head_dim) * kEps * magnitude * sequence.scale);
    if (s.soft_cap > 0) score = s.soft_cap * std::tanh(score / double(s.soft_cap));
    widest = std::max(widest, std::fabs(score));
    scores.push_back(score);
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  const double steps = 9.0 * double(position / kSegmentTokens + 1);
  const double relative = dot_error + kEps * (6 * widest + (steps + 1) * (2.5 + 2 * widest * 1.45) +
                                              double(scores.size()) + 8);
  double sum = 0.0;
  Row row{std::vector<double>(s.head_dim), std::vector<double>(s.head_dim)};
  for (double& score : scores) sum += score = std::exp(score - max);
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t d = 0; d < s.head_dim; ++d) {
      const double term = scores[i] / sum * half_to_double(cache.value(begin + i, kv_head, d));
      row.exact[d] += term;
      row.bound[d] += 2 * relative * std::fabs(term);
    }
  }
  return row;
}

// How many outputs of positions [first, first + num) leave their bound.
size_t count_outside(const std::vector<float>& out, const Sequence& sequence, Cache& cache,
                     size_t first, size_t num) {
  const Shape& s = sequence.shape;
  const size_t heads = s.num_kv_heads * s.group;
  size_t outside = 0;
  for (size_t i = 0; i < num; ++i) {
    for (size_t head = 0; head < heads; ++head) {
      const Row row = reference_row(sequence, cache, first + i, head);
      const float* actual = out.data() + (i * heads + head) * s.head_dim;
      for (size_t d = 0; d < s.head_dim; ++d) {
        outside += !(std::fabs(actual[d] - row.exact[d]) <= row.bound[d]);
      }
    }
  }
  return outside;
}

std::string describe(const KernelTable& kernels, const Shape& s, const char* what) {
  std::ostringstream text;
  text << kernels.name << " head_dim=" << s.head_dim << " group=" << s.group
       << " length=" << s.length << " window=" << s.window << " cap=" << s.soft_cap << ": " << what;
  return text.str();
}

void check_that(bool ok, int line, const std::string& what) {
  check::report(ok, __FILE__, line, what);
}

void check_reference(const Shape& shape, size_t first, size_t block_size, uint32_t seed) {
  const Sequence sequence(shape, seed);
  Cache cache(sequence, block_size, seed);
  const size_t num = shape.length - first;
  for (const KernelTable* kernels : runnable_tables()) {
    const auto out = attend(*kernels, sequence, cache, first, num);
    check_that(count_outside(out, sequence, cache, first, num) == 0, __LINE__,
               describe(*kernels, shape, "within the bound of float64 softmax"));
  }
}

}  // namespace

TEST(every_head_dim_and_group_matches_float64) {
  for (const size_t head_dim : {8, 64, 80, 128, 256}) {
    for (size_t group = 1; group <= 8; ++group) {
      const size_t heads = head_dim > 100 ? 1 : 2;
      check_reference({.head_dim = head_dim, .group = group, .num_kv_heads = heads, .length = 70},
                      69, 32, uint32_t(head_dim + group));
      check_reference({.head_dim = head_dim, .group = group, .num_kv_heads = 1, .length = 45}, 40,
                      16, uint32_t(head_dim + group));
    }
  }
  check_reference({.head_dim = 16, .group = 17, .num_kv_heads = 1, .length = 50}, 49, 16, 3);
}

TEST(every_tail_matches_float64) {
  for (size_t length = 1; length <= 33; ++length) {
    check_reference({.head_dim = 16, .group = 2, .num_kv_heads = 1, .length = length}, 0, 8,
                    uint32_t(length));
  }
  for (const size_t length : {255, 256, 257, 258, 287, 288, 289, 511, 512, 513, 514, 769}) {
    check_reference({.head_dim = 16, .group = 3, .num_kv_heads = 1, .length = length}, length - 1,
                    32, uint32_t(length));
    check_reference({.head_dim = 8, .group = 1, .num_kv_heads = 1, .length = length}, length - 12,
                    24, uint32_t(length));
  }
}

TEST(windows_and_soft_caps_match_float64) {
  for (const size_t window : {1, 2, 7, 8, 31, 32, 33, 100, 256, 300}) {
    check_reference(
        {.head_dim = 16, .group = 4, .num_kv_heads = 1, .length = 330, .window = window}, 310, 16,
        uint32_t(window));
  }
  for (const float cap : {0.5f, 5.0f, 50.0f}) {
    check_reference({.head_dim = 32,
                     .group = 2,
                     .num_kv_heads = 2,
                     .length = 90,
                     .window = 40,
                     .soft_cap = cap},
                    70, 32, 7);
  }
}

TEST(a_row_has_the_same_bits_in_every_chunk_block_size_and_table) {
  const Shape shapes[] = {
      {.head_dim = 16, .group = 3, .num_kv_heads = 2, .length = 330},
      {.head_dim = 8, .group = 1, .num_kv_heads = 1, .length = 300, .window = 45},
      {.head_dim = 24, .group = 4, .num_kv_heads = 1, .length = 300, .window = 256, .soft_cap = 4},
      {.head_dim = 8, .group = 8, .num_kv_heads = 1, .length = 280, .window = 1},
      {.head_dim = 64, .group = 7, .num_kv_heads = 1, .length = 70},
  };
  const std::vector<size_t> chunkings[] = {{1}, {2}, {3, 1, 5}, {17}, {64}, {31, 33}, {400}};
  for (const Shape& shape : shapes) {
    const Sequence sequence(shape, 11);
    const auto alone = attend_in_chunks(scalar_table(), sequence, Cache(sequence, 16, 1), 0, {1});
    for (const KernelTable* kernels : runnable_tables()) {
      const bool slow = kernels == &scalar_table();
      for (const size_t block_size : {8, 16, 24, 32, 64, 128, 256}) {
        const Cache cache(sequence, block_size, uint32_t(block_size), *kernels);
        for (const auto& chunks : chunkings) {
          // Scalar is 70 times slower: one block size, one chunking of either kernel path and both.
          if (slow && (block_size != 24 || (chunks[0] != 3 && chunks[0] != 64))) continue;
          const auto out = attend_in_chunks(*kernels, sequence, cache, 0, chunks);
          check_that(same_bits(out, alone), __LINE__, describe(*kernels, shape, "same bits"));
        }
      }
    }
  }
}

TEST(segments_merge_to_the_same_bits) {
  for (const size_t window : {0, 100, 300}) {
    const Shape shape{.head_dim = 16, .group = 3, .length = 800, .window = window};
    const Sequence sequence(shape, 5);
    const Cache cache(sequence, 32, 5);
    for (const size_t num : {1, 2, 40}) {
      const auto whole = attend(scalar_table(), sequence, cache, 800 - num, num);
      for (const KernelTable* kernels : runnable_tables()) {
        const auto merged = attend_by_segments(*kernels, sequence, cache, 800 - num, num);
        check_that(same_bits(merged, whole), __LINE__, describe(*kernels, shape, "merged"));
      }
    }
  }
}

// Tokens of several sequences over keys that they share, then each over the rest of its own.
TEST(keys_read_together_and_apart_give_the_same_bits) {
  for (const size_t window : {0, 90, 300}) {
    const Shape shape{
        .head_dim = 16, .group = 3, .num_kv_heads = 2, .length = 700, .window = window};
    const Sequence sequence(shape, 5);
    for (const KernelTable* kernels : runnable_tables()) {
      const Cache cache(sequence, 32, 5, *kernels);
      for (const size_t num_shared : {32, 256, 320, 512, 544}) {
        for (const std::vector<size_t>& positions : {std::vector<size_t>{600, 699},
                                                     {545, 699, 560, 546},
                                                     {699, 640, 640, 600, 599, 590}}) {
          check_that(shares_alike(*kernels, sequence, cache, positions, num_shared), __LINE__,
                     describe(*kernels, shape, "shared"));
        }
      }
    }
  }
}

TEST(a_segment_that_is_not_seen_is_empty) {
  const Shape shape{.head_dim = 8, .group = 2, .num_kv_heads = 1, .length = 600, .window = 16};
  const Sequence sequence(shape, 5);
  const Cache cache(sequence, 32, 5);
  for (const KernelTable* kernels : runnable_tables()) {
    const AttentionTile tile = make_tile(sequence, cache, 0, 599, 1);
    Scratch scratch(tile);
    float acc[16];
    float max_sum[4];
    for (const size_t segment : {0, 1, 3}) {
      for (float& x : acc) x = NAN;
      kernels->attention->attend_keys(tile, segment_keys(segment), acc, max_sum, scratch.data);
      for (const float x : acc) CHECK_EQ(x, 0.0f);
      CHECK(std::isinf(max_sum[0]) && max_sum[0] < 0 && max_sum[1] == 0.0f);
    }
    float out[8];
    kernels->attention->merge(acc, 16, max_sum, 4, 1, 8, out);
    for (const float x : out) CHECK_EQ(x, 0.0f);
  }
}

TEST(a_row_reads_nothing_after_itself_or_before_its_window) {
  const Shape shape{.head_dim = 16, .group = 3, .num_kv_heads = 1, .length = 150, .window = 50};
  const Sequence sequence(shape, 21);
  Cache cache(sequence, 16, 1);
  const size_t first = 90;
  const auto clean = attend(scalar_table(), sequence, cache, first, 30);
  for (size_t p = 0; p < shape.length; ++p) {
    if (p > first - shape.window && p <= first + 10) continue;  // what rows 0 .. 10 may see
    for (size_t d = 0; d < shape.head_dim; ++d) {
      cache.key(p, 0, d) = kHalfNan;
      cache.value(p, 0, d) = kHalfNan;
    }
  }
  for (size_t i = 0; i < (first + 1 - shape.window) / 16; ++i) cache.table[i] = -1000000;
  for (size_t i = 8; i < cache.table.size(); ++i) cache.table[i] = -1000000;
  for (const KernelTable* kernels : runnable_tables()) {
    for (const size_t num : {1, 11, 30}) {
      const auto poisoned = attend(*kernels, sequence, cache, first, num);
      const size_t floats = std::min<size_t>(num, 11) * sequence.q_stride();
      check_that(std::memcmp(poisoned.data(), clean.data(), floats * sizeof(float)) == 0, __LINE__,
                 describe(*kernels, shape, "poison elsewhere changes nothing"));
    }
  }
}

TEST(stored_halves_are_nearest_even_and_equal_on_every_table) {
  constexpr size_t kDim = 8;
  std::vector<uint16_t> pool(2 * 8 * kDim);
  const int32_t table[] = {0};
  KvView view{pool.data(), pool.size(), table, 8, 1, kDim};
  for (const KernelTable* kernels : runnable_tables()) {
    size_t wrong = 0;
    for (uint32_t half = 0; half < 0x7c00; ++half) {
      const double here = half_to_double(uint16_t(half));
      const double next = half == 0x7bff ? 65536.0 : half_to_double(uint16_t(half + 1));
      const float middle = float((here + next) / 2);
      const uint32_t even = half & 1 ? half + 1 : half;
      const float below = std::nextafter(middle, 0.0f);
      const float above = std::nextafter(middle, INFINITY);
      const float v[kDim] = {float(here),  middle,  below,  above,
                             -float(here), -middle, -below, -above};
      const float k[kDim] = {};
      kernels->attention->store_kv(view, 3, k, v);
      const uint16_t* out = pool.data() + 8 * kDim + 3 * kDim;
      const uint32_t want[] = {half, even, half, half + 1};
      for (size_t i = 0; i < 8; ++i) wrong += out[i] != (want[i % 4] | (i < 4 ? 0u : 0x8000u));
    }
    CHECK_EQ(wrong, 0u);
    const float odd[kDim] = {INFINITY, -INFINITY, NAN, 1e-10f, 65520.0f, 65519.0f, 1e30f, -0.0f};
    kernels->attention->store_kv(view, 0, odd, odd);
    const uint16_t want[kDim] = {0x7c00, 0xfc00, 0x7e00, 0, 0x7c00, 0x7bff, 0x7c00, 0x8000};
    for (size_t d = 0; d < kDim; ++d) {
      CHECK_EQ(pool[d * 8], want[d]);
      CHECK_EQ(pool[8 * kDim + d], want[d]);
    }
  }
}

// Every half as a value that one key alone weighs: the output is the half itself.
TEST(every_half_is_read_exactly) {
  Shape shape{.head_dim = 256, .group = 1, .num_kv_heads = 1, .length = 1};
  Sequence sequence(shape, 1);
  for (const KernelTable* kernels : runnable_tables()) {
    Cache cache(sequence, 8, 1);
    size_t wrong = 0;
    for (uint32_t base = 0; base < 0x10000; base += 256) {
      for (uint32_t d = 0; d < 256; ++d) cache.value(0, 0, d) = uint16_t(base + d);
      const auto out = attend(*kernels, sequence, cache, 0, 1);
      for (uint32_t d = 0; d < 256; ++d) {
        const double want = half_to_double(uint16_t(base + d));
        wrong += !(out[d] == want || (std::isnan(want) && std::isnan(out[d])));
      }
    }
    CHECK_EQ(wrong, 0u);
  }
}

// Two keys with exact scores 0 and `score`: the first weighs 1 / (1 + e^score), here less than
// 1e-3, so every relative error of the exponent shows undiluted.
TEST(two_keys_weigh_as_the_logistic_function) {
  for (const float cap : {0.0f, 16.0f}) {
    Sequence sequence({.head_dim = 8, .group = 1, .num_kv_heads = 1, .length = 2, .soft_cap = cap},
                      1);
    std::fill(sequence.q.begin(), sequence.q.end(), 0.0f);
    std::fill(sequence.k.begin(), sequence.k.end(), 0.0f);
    std::fill(sequence.v.begin(), sequence.v.end(), 0.0f);
    sequence.q[8] = 4.0f;
    sequence.k[8] = 2.0f;
    sequence.v[0] = 1.0f;
    sequence.scale = 1.0f;
    const Cache cache(sequence, 8, 1);
    const double score = cap > 0 ? cap * std::tanh(8.0 / cap) : 8.0;
    const double want = 1 / (1 + std::exp(score));
    // Score: log2(e) and its product; capped, tanh's 5.5
    // and three more. Then exp2, two sums, the quotient.
    const double bound = ((cap > 0 ? 11 : 2) * score + 2.5 + 4) * kEps * want;
    for (const KernelTable* kernels : runnable_tables()) {
      CHECK_NEAR(attend(*kernels, sequence, cache, 1, 1)[0], want, bound);
    }
    CHECK(std::fabs(1 / (1 + std::exp(score * (1.4427 * std::log(2.0)))) - want) > bound);
  }
}

TEST(the_bound_notices_small_errors) {
  const Shape shape{.head_dim = 64, .group = 3, .num_kv_heads = 1, .length = 600};
  const Sequence sequence(shape, 31);
  Cache cache(sequence, 32, 31);
  for (const KernelTable* kernels : runnable_tables()) {
    const auto out = attend(*kernels, sequence, cache, 599, 1);
    CHECK_EQ(count_outside(out, sequence, cache, 599, 1), 0u);
    Sequence scaled = sequence;
    scaled.scale *= 1.001f;
    CHECK(count_outside(attend(*kernels, scaled, cache, 599, 1), sequence, cache, 599, 1) > 0);
    Cache swapped(sequence, 32, 31);
    for (size_t d = 0; d < shape.head_dim; ++d)
      std::swap(swapped.key(70, 0, d), swapped.key(71, 0, d));
    CHECK(count_outside(attend(*kernels, sequence, swapped, 599, 1), sequence, cache, 599, 1) > 0);
    Shape narrow = shape;
    narrow.window = 599;  // one key lost
    Sequence windowed = sequence;
    windowed.shape = narrow;
    CHECK(count_outside(attend(*kernels, windowed, cache, 599, 1), sequence, cache, 599, 1) > 0);
  }
}

}  // namespace octavo

CHECK_MAIN()
