// SPDX-License-Identifier: Apache-2.0
// The sampler against a float64 definition that sorts everything, and its draws against exact odds.
#include "octavo/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "check.h"
#include "kernel_tables.h"
#include "sampler/draw.h"
#include "sampler/philox.h"
#include "sampler_oracle.h"

namespace octavo {
namespace {

using check::runnable_tables;
using check::scalar_table;
using testing::exact_draw;
using testing::exact_odds;
using testing::normals;
using testing::Odds;

constexpr float kInf = std::numeric_limits<float>::infinity();

const VectorKernels& kernels() { return *runnable_tables().front()->vector; }

SampledToken draw_token(const std::vector<float>& logits, const SamplingSpec& spec,
                        uint64_t position = 0) {
  SamplerScratch scratch;
  return sample(kernels(), logits, spec, {.position = position}, scratch);
}

double chi_square(const std::vector<Odds>& odds, const std::vector<size_t>& counts, size_t draws) {
  double sum = 0.0;
  for (const Odds& o : odds) {
    const double expected = o.probability * double(draws);
    const double difference = double(counts[o.token_id]) - expected;
    sum += difference * difference / expected;
  }
  return sum;
}

std::vector<size_t> count_draws(const std::vector<float>& logits, SamplingSpec spec, size_t draws) {
  std::vector<size_t> counts(logits.size());
  for (size_t i = 0; i < draws; ++i) {
    spec.seed = 1000 + i % 50;
    ++counts[draw_token(logits, spec, i / 50).token_id];
  }
  return counts;
}

}  // namespace

TEST(philox_gives_the_published_answers) {
  using Words = std::array<uint32_t, 4>;
  constexpr uint32_t kOnes = 0xffffffff;
  CHECK(
      (philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  CHECK((philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
         Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK((philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
         Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(uniform_depends_on_each_argument_and_is_uniform) {
  CHECK_EQ(uniform(0, 0, 0), double((uint64_t(0x6627e8d5) << 21) | (0xe169c58d >> 11)) * 0x1p-53);
  const double base = uniform(1, 2, 3);
  for (const double other :
       {uniform(2, 2, 3), uniform(1, 3, 3), uniform(1, 2, 4),
        uniform(1 + (uint64_t(1) << 32), 2, 3), uniform(1, 2, 3 + (uint64_t(1) << 32))}) {
    CHECK(other != base);
  }
  constexpr size_t kDraws = 100000;
  constexpr size_t kBins = 100;
  size_t counts[kBins] = {};
  for (size_t i = 0; i < kDraws; ++i) {
    const double u = uniform(i % 7, uint32_t(i % 3), i);
    CHECK(u >= 0.0 && u < 1.0);
    ++counts[size_t(u * kBins)];
  }
  double chi = 0.0;
  for (const size_t count : counts) chi += std::pow(double(count) - 1000, 2) / 1000;
  CHECK(chi < 165.0);  // 99 degrees of freedom: exceeded once in 30 000
}

TEST(greedy_takes_the_largest_lowest_id) {
  CHECK_EQ(draw_token({1, 3, 3, 2}, {}).token_id, 1);
  CHECK_EQ(draw_token({NAN, -kInf, -5, NAN}, {}).token_id, 2);
  CHECK_EQ(draw_token({1, kInf, kInf}, {}).token_id, 1);
  for (const auto& row : {std::vector<float>{NAN, NAN}, {-kInf}, {NAN, -kInf, NAN}}) {
    CHECK(draw_token(row, {}).failed);
    CHECK(draw_token(row, {.temperature = 1.0f}).failed);
    SamplerScratch scratch;
    CHECK(score(kernels(), row, 0, 3, scratch).failed);
  }
  CHECK(!draw_token({1, 3}, {}).failed);
}

TEST(banned_ids_return_at_their_position) {
  std::vector<float> logits = normals(3000, 4);
  for (const int32_t id : {5, 1030, 2999}) logits[id] = 50.0f;
  for (const float temperature : {0.0f, 0.1f}) {
    SamplingSpec spec{.temperature = temperature, .banned_until = 10};
    spec.banned_ids = {2999, -4, 5, 7, 100000, 5};
    CHECK_EQ(draw_token(logits, spec, 9).token_id, 1030);
    spec.banned_ids.push_back(1030);
    const int32_t other = draw_token(logits, spec, 3).token_id;
    CHECK(logits[other] < 50.0f);
    const int32_t back = draw_token(logits, spec, 10).token_id;
    CHECK(logits[back] == 50.0f);
    CHECK_EQ(
        draw_token({1, 2, 3}, {.temperature = temperature, .banned_until = 1, .banned_ids = {2}})
                .token_id == 2,
        false);
    CHECK(draw_token({1, 2}, {.temperature = temperature, .banned_until = 1, .banned_ids = {0, 1}})
              .failed);
  }
}

TEST(draws_follow_the_definition) {
  const SamplingSpec specs[] = {
      {.temperature = 1.0f},
      {.temperature = 0.3f},
      {.temperature = 3.0f},
      {.temperature = 1.0f, .top_k = 1},
      {.temperature = 0.8f, .top_k = 40},
      {.temperature = 1.0f, .top_k = 5000},
      {.temperature = 1.0f, .top_p = 0.9f},
      {.temperature = 1.5f, .top_p = 0.5f},
      {.temperature = 1.0f, .top_p = 0.0f},
      {.temperature = 0.7f, .top_k = 50, .top_p = 0.95f},
      {.temperature = 1.0f, .top_k = 20, .top_p = 0.6f, .min_p = 0.05f},
      {.temperature = 1.2f, .min_p = 0.02f},
      {.temperature = 1.0f, .top_p = 0.8f, .min_p = 0.3f},
      {.temperature = 1.0f, .min_p = 1.0f},
      {.temperature = 1.1f, .top_k = 3, .banned_until = 1000, .banned_ids = {7, 8, 9}},
  };
  size_t compared = 0;
  for (const size_t vocabulary : {1, 2, 50, 5000}) {
    auto logits = normals(vocabulary, uint32_t(vocabulary), 1.5f);
    for (size_t i = 0; i < vocabulary; i += 11) logits[i] = std::round(logits[i]);  // ties
    if (vocabulary > 40) {
      logits[33] = NAN;
      logits[34] = -kInf;
    }
    for (SamplingSpec spec : specs) {
      const auto odds = exact_odds(logits, {spec});
      for (uint64_t position = 0; position < 200; ++position) {
        spec.seed = position + 17 * vocabulary;
        const int32_t want = exact_draw(odds, uniform(spec.seed, spec.sample_idx, position));
        if (want < 0) continue;
        ++compared;
        CHECK_EQ(draw_token(logits, spec, position).token_id, want);
      }
    }
  }
  CHECK(compared > 11000);  // of 12 000: the slack around boundaries must not excuse many
}

TEST(draws_have_the_exact_odds) {
  const std::vector<float> logits = {1.0f, 0.2f, -0.5f, 2.0f, 0.0f, 1.5f, -1.0f, 0.7f};
  constexpr size_t kDraws = 40000;
  // 7 degrees of freedom: 29.9 is exceeded once in 10 000.
  SamplingSpec spec{.temperature = 0.9f};
  const auto counts = count_draws(logits, spec, kDraws);
  CHECK(chi_square(exact_odds(logits, {spec}), counts, kDraws) < 29.9);
  // A temperature off by 5 % must not pass for the right one.
  spec.temperature *= 1.05f;
  CHECK(chi_square(exact_odds(logits, {spec}), counts, kDraws) > 29.9);
  // Nor a top_p prefix that is one id short: whatever it would lose was in fact drawn.
  spec = {.temperature = 0.9f, .top_k = 6, .top_p = 0.8f};
  const auto odds = exact_odds(logits, {spec});
  const auto kept = count_draws(logits, spec, kDraws);
  CHECK(chi_square(odds, kept, kDraws) < 29.9);
  CHECK_EQ(kDraws, std::accumulate(odds.begin(), odds.end(), size_t(0),
                                   [&](size_t n, Odds o) { return n + kept[o.token_id]; }));
  CHECK(kept[odds.back().token_id] > 0);
}

// eps = 2^-24. The reduced argument y, at most 1/2, is rounded twice and multiplied by a rounded
// log2(e): 1.3 eps, of which 2^y feels ln 2 times as much. Horner without fma: y Q(y), at most
// 0.42, carries 3 eps, the last sum one more, of a result of at least 0.7: 3.3 eps.
constexpr double kWeightBound = (1.3 * 0.7 + 3.3) * 0x1p-24;

TEST(weights_are_close_to_exp) {
  double worst = 0.0;
  for (float x = -87.0f; x <= 0.0f; x += 0.00371f) {
    const double exact = std::exp(double(x));
    CHECK_NEAR(draw_weight(x), exact, kWeightBound * exact);
    worst = std::max(worst, std::fabs(draw_weight(x) - exact) / exact);
  }
  CHECK(worst > kWeightBound / 4);  // the bound is no more than 4 times what it bounds
  CHECK_EQ(draw_weight(0.0f), 1.0f);
  CHECK_EQ(draw_weight(-kInf), 0.0f);
  CHECK_EQ(draw_weight(-1e30f), 0.0f);
}

TEST(logprobs_are_of_the_raw_logits) {
  auto logits = normals(4000, 8);
  logits[100] = NAN;
  logits[101] = -kInf;
  logits[7] = logits[8] = 9.0f;
  double sum = 0.0;
  for (const float x : logits) sum += x > -kInf ? std::exp(double(x) - 9.0) : 0.0;
  const auto exact = [&](int32_t id) { return logits[id] - 9.0 - std::log(sum); };
  // Sum: 131 additions in a lane of a chunk and exp's own error; the result rounds once more.
  const auto bound = [&](int32_t id) { return 140 * 0x1p-24 + 0x1p-24 * std::fabs(exact(id)); };
  SamplingSpec spec{.temperature = 0.5f, .top_k = 2, .num_logprobs = 5, .banned_until = 1};
  spec.banned_ids = {7};
  const SampledToken token = draw_token(logits, spec);
  CHECK(token.token_id != 7);
  CHECK_NEAR(token.logprob, exact(token.token_id), bound(token.token_id));
  CHECK_EQ(token.top.size(), 5u);
  CHECK_EQ(token.top[0].token_id, 7);  // a ban changes the draw, not what the model said
  CHECK_EQ(token.top[1].token_id, 8);
  for (size_t i = 0; i < token.top.size(); ++i) {
    const TokenLogprob& t = token.top[i];
    CHECK_NEAR(t.logprob, exact(t.token_id), bound(t.token_id));
    SamplerScratch scratch;
    const SampledToken again = score(kernels(), logits, t.token_id, 0, scratch);
    CHECK_EQ(again.rank, int32_t(i + 1));
    CHECK_EQ(again.logprob, t.logprob);
    CHECK(again.top.empty());
  }
  SamplerScratch scratch;
  CHECK_EQ(score(kernels(), logits, 101, 0, scratch).logprob, -kInf);
  CHECK_EQ(score(kernels(), logits, 100, 9999, scratch).top.size(), 3998u);
  CHECK_EQ(draw_token(logits, {}).rank, 0);
  CHECK(draw_token(logits, {.num_logprobs = 0}).top.empty());
  CHECK_EQ(draw_token(logits, {.num_logprobs = 0}).rank, 1);
  // 10 times the bound away, as a lost chunk or a banned id left out of the sum would be.
  CHECK(std::log1p(1.0 / sum) > 10 * bound(7));
}

TEST(infinite_logits_share_all_probability) {
  const std::vector<float> logits = {1.0f, kInf, 3.0f, kInf};
  const SampledToken token = draw_token(logits, {.temperature = 1.0f, .num_logprobs = 4});
  CHECK(token.token_id == 1 || token.token_id == 3);
  CHECK_NEAR(token.logprob, std::log(0.5), 1e-6);
  CHECK_EQ(token.top.size(), 4u);
}

TEST(misuse_is_an_error) {
  SamplerScratch scratch;
  const std::vector<float> two = {1.0f, 2.0f};
  CHECK_THROWS(sample(kernels(), {}, {}, {}, scratch), std::invalid_argument);
  CHECK_THROWS(score(kernels(), two, 2, 0, scratch), std::invalid_argument);
  CHECK_THROWS(score(kernels(), two, -1, 0, scratch), std::invalid_argument);
}

TEST(every_table_draws_the_same) {
  const auto logits = normals(3000, 3);
  SamplerScratch scratch;
  for (uint64_t position = 0; position < 50; ++position) {
    const SamplingSpec spec{.temperature = 1.0f, .top_p = 0.95f, .seed = 4, .num_logprobs = 3};
    const SampledToken want = sample(*scalar_table().vector, logits, spec, {position}, scratch);
    for (const KernelTable* table : runnable_tables()) {
      const SampledToken token = sample(*table->vector, logits, spec, {position}, scratch);
      CHECK_EQ(token.token_id, want.token_id);
      CHECK_EQ(token.logprob, want.logprob);
    }
  }
}

}  // namespace octavo

CHECK_MAIN()
