// SPDX-License-Identifier: Apache-2.0
// What the sampler is to do, by the definition and in float64: every list is sorted whole, every
// history is counted anew.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "octavo/sampler.h"

namespace octavo::testing {

inline constexpr double kNever = -std::numeric_limits<double>::infinity();

inline std::vector<float> normals(size_t n, uint32_t seed, float spread = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

struct Odds {
  int32_t token_id;
  double probability;
};

// The inputs of one draw, apart from the logits.
struct Case {
  SamplingSpec spec;
  uint64_t position = 0;
  std::vector<int32_t> prompt = {};
  std::vector<int32_t> outputs = {};
  std::vector<uint8_t> allowed = {};
};

inline long count(const std::vector<int32_t>& ids, int32_t id) {
  return std::count(ids.begin(), ids.end(), id);
}

inline bool is_ruled_out(const Case& c, int32_t id) {
  const SamplingSpec& spec = c.spec;
  if (!c.allowed.empty() && (c.allowed[id / 8] >> (id % 8) & 1) == 0) return true;
  if (!spec.allowed_ids.empty() && count(spec.allowed_ids, id) == 0) return true;
  if (c.position < spec.banned_until && count(spec.banned_ids, id) > 0) return true;
  for (const auto& word : spec.bad_words) {
    std::vector<int32_t> ending = c.outputs;
    ending.push_back(id);
    if (word.empty() || word.size() > ending.size()) continue;
    if (std::equal(word.begin(), word.end(), ending.end() - long(word.size()))) return true;
  }
  return false;
}

// Logits after masks, bias and penalties.
inline std::vector<double> edited(const std::vector<float>& logits, const Case& c) {
  std::vector<double> x(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    x[i] = std::isnan(logits[i]) || is_ruled_out(c, id) ? kNever : logits[i];
    for (const auto& [biased, bias] : c.spec.logit_bias) x[i] += biased == id ? bias : 0.0f;
    const long num_outputs = count(c.outputs, id);
    if (num_outputs + count(c.prompt, id) > 0) {
      const double penalty = c.spec.repetition_penalty;
      x[i] = x[i] > 0 ? x[i] / penalty : x[i] * penalty;
    }
    x[i] -= double(c.spec.frequency_penalty) * double(num_outputs);
    if (num_outputs > 0) x[i] -= c.spec.presence_penalty;
  }
  return x;
}

inline double sigma_floor(const std::vector<double>& x, double num_sigma) {
  double sum = 0, squares = 0, max = kNever;
  size_t n = 0;
  for (const double value : x) {
    if (value == kNever) continue;
    sum += value;
    squares += value * value;
    max = std::max(max, value);
    ++n;
  }
  const double mean = sum / double(n);
  return max - num_sigma * std::sqrt(squares / double(n) - mean * mean);
}

inline double total(const std::vector<Odds>& odds) {
  double sum = 0;
  for (const Odds& o : odds) sum += o.probability;
  return sum;
}

inline void normalise(std::vector<Odds>& odds) {
  const double sum = total(odds);
  for (Odds& o : odds) o.probability /= sum;
}

// The first of `odds` whose sum reaches `goal`.
inline void keep_mass(std::vector<Odds>& odds, double goal) {
  double mass = 0;
  size_t kept = 0;
  while (kept < odds.size() && mass < goal) mass += odds[kept++].probability;
  odds.resize(std::max<size_t>(kept, odds.empty() ? 0 : 1));
  normalise(odds);
}

inline void keep_typical_mass(std::vector<Odds>& odds, double goal) {
  double entropy = 0;
  for (const Odds& o : odds) {
    if (o.probability > 0) entropy -= o.probability * std::log(o.probability);
  }
  std::stable_sort(odds.begin(), odds.end(), [&](const Odds& a, const Odds& b) {
    return std::fabs(-std::log(a.probability) - entropy) <
           std::fabs(-std::log(b.probability) - entropy);
  });
  keep_mass(odds, goal);
}

// What may be drawn, likeliest first.
inline std::vector<Odds> exact_odds(const std::vector<float>& logits, const Case& c) {
  const SamplingSpec& spec = c.spec;
  const std::vector<double> x = edited(logits, c);
  const double floor = spec.top_n_sigma > 0 ? sigma_floor(x, spec.top_n_sigma) : kNever;
  const double max = *std::max_element(x.begin(), x.end());
  std::vector<Odds> odds;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == kNever || x[i] < floor) continue;
    odds.push_back({int32_t(i), std::exp((x[i] - max) / spec.temperature)});
  }
  normalise(odds);
  if (spec.typical_p < 1.0f) keep_typical_mass(odds, spec.typical_p);
  std::sort(odds.begin(), odds.end(), [](const Odds& a, const Odds& b) {
    return a.probability > b.probability ||
           (a.probability == b.probability && a.token_id < b.token_id);
  });
  const double greatest = odds.front().probability;
  std::erase_if(odds, [&](const Odds& o) { return o.probability < spec.min_p * greatest; });
  if (spec.top_k > 0 && odds.size() > spec.top_k) odds.resize(spec.top_k);
  normalise(odds);
  if (spec.top_p < 1.0f) keep_mass(odds, spec.top_p);
  return odds;
}

// The id at quantile u, or -1 if u is so near a boundary that float32 weights may fall on either
// side: 10 roundings of the exponent (at most 90 wide) and of the weight.
inline int32_t exact_draw(const std::vector<Odds>& odds, double u) {
  constexpr double kSlack = 1e-5;
  double mass = 0.0;
  for (const Odds& o : odds) {
    mass += o.probability;
    if (std::fabs(mass - u) < kSlack) return -1;
    if (mass > u) return o.token_id;
  }
  return -1;
}

inline SampledToken draw_token(const VectorKernels& kernels, const std::vector<float>& logits,
                               const Case& c) {
  std::vector<int32_t> ids = c.prompt;
  ids.insert(ids.end(), c.outputs.begin(), c.outputs.end());
  const TokenHistory history(ids, c.prompt.size());
  SamplerScratch scratch;
  return sample(kernels, logits, c.spec,
                {.position = c.position, .history = &history, .allowed = c.allowed}, scratch);
}

}  // namespace octavo::testing
