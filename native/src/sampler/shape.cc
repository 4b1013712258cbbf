// SPDX-License-Identifier: Apache-2.0
#include "sampler/shape.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "sampler/cut.h"
#include "sampler/draw.h"
#include "sampler/sanitised_logits.h"

namespace octavo {
namespace {

bool contains(std::span<const float> logits, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < logits.size();
}

// Only ids that both lists allow keep their logits.
void copy_allowed(std::span<const float> logits, const SamplingSpec& spec,
                  std::span<const uint8_t> allowed, std::span<float> out) {
  if (spec.allowed_ids.empty()) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = sanitised(logits[i]);
  } else {
    std::fill(out.begin(), out.end(), kRuledOut);
    for (const int32_t id : spec.allowed_ids) {
      if (contains(logits, id)) out[id] = sanitised(logits[id]);
    }
  }
  if (allowed.empty()) return;
  if (allowed.size() != (logits.size() + 7) / 8) {
    throw std::invalid_argument("allowed: got " + std::to_string(allowed.size()) +
                                " bytes, wanted " + std::to_string((logits.size() + 7) / 8));
  }
  for (size_t byte = 0; byte < allowed.size(); ++byte) {
    const unsigned bits = allowed[byte];
    if (bits == 0xff) continue;
    const size_t first = byte * 8;
    const size_t count = std::min<size_t>(8, out.size() - first);
    for (size_t i = 0; i < count; ++i) {
      if ((bits >> i & 1) == 0) out[first + i] = kRuledOut;
    }
  }
}

void rule_out_bad_words(const SamplingSpec& spec, std::span<const int32_t> outputs,
                        std::span<float> out) {
  for (const std::vector<int32_t>& word : spec.bad_words) {
    if (word.empty() || word.size() - 1 > outputs.size()) continue;
    const auto tail = outputs.last(word.size() - 1);
    if (!std::equal(tail.begin(), tail.end(), word.begin())) continue;
    if (contains(out, word.back())) out[word.back()] = kRuledOut;
  }
}

// -inf stays -inf: it is divided by and multiplied with finite numbers above 0 only. What overflows
// does not become +inf, of which differences would be NaN.
void penalise(const SamplingSpec& spec, std::span<const TokenHistory::Seen> seen,
              std::span<float> out) {
  for (const TokenHistory::Seen& token : seen) {
    if (!contains(out, token.token_id)) continue;
    float& x = out[token.token_id];
    x = sanitised(x > 0.0f ? x / spec.repetition_penalty : x * spec.repetition_penalty);
    if (token.num_outputs == 0) continue;
    x -= spec.frequency_penalty * static_cast<float>(token.num_outputs);
    x -= spec.presence_penalty;
    x = sanitised(x);
  }
}

}  // namespace

bool needs_shaping(const SamplingSpec& spec, const SamplingContext& context) {
  return !context.allowed.empty() || spec.needs_history() || !spec.logit_bias.empty() ||
         !spec.allowed_ids.empty() || spec.typical_p < 1.0f || spec.top_n_sigma > 0.0f ||
         (spec.has_processed_logprobs && spec.num_logprobs);
}

std::span<float> shape(const VectorKernels& kernels, std::span<const float> logits,
                       const SamplingSpec& spec, const SamplingContext& context,
                       SamplerScratch& scratch) {
  scratch.logits.resize(logits.size());
  const std::span<float> out(scratch.logits);
  copy_allowed(logits, spec, context.allowed, out);
  if (context.history != nullptr) rule_out_bad_words(spec, context.history->outputs(), out);
  if (context.position < spec.banned_until) {
    for (const int32_t id : spec.banned_ids) {
      if (contains(out, id)) out[id] = kRuledOut;
    }
  }
  for (const auto& [id, bias] : spec.logit_bias) {
    if (contains(out, id)) out[id] += bias;
  }
  if (context.history != nullptr && spec.has_penalties()) {
    penalise(spec, context.history->seen(), out);
  }
  if (spec.is_greedy()) return out;
  if (spec.top_n_sigma > 0.0f) keep_top_n_sigma(out, spec.top_n_sigma);
  const float max = kernels.max(out.data(), out.size());
  if (spec.typical_p < 1.0f && max > kRuledOut) {
    keep_typical(out, max, spec.temperature, spec.typical_p, scratch.candidates);
  }
  return out;
}

void keep_top_n_sigma(std::span<float> logits, float num_sigma) {
  double sum = 0.0;
  size_t count = 0;
  float max = kRuledOut;
  for (const float x : logits) {
    if (x == kRuledOut) continue;
    sum += x;
    ++count;
    max = std::max(max, x);
  }
  if (count == 0) return;
  const double mean = sum / static_cast<double>(count);
  double squares = 0.0;
  for (const float x : logits) {
    if (x != kRuledOut) squares += (x - mean) * (x - mean);
  }
  const double floor = max - num_sigma * std::sqrt(squares / static_cast<double>(count));
  for (float& x : logits) {
    if (x < floor) x = kRuledOut;
  }
}

void keep_typical(std::span<float> logits, float max, float temperature, float typical_p,
                  std::vector<TokenLogprob>& candidates) {
  // With e = (x - max) / t: -log p = log Z - e, and the entropy is log Z - (mean of e). So they lie
  // |e - mean| apart, and no logarithm is needed, which the C library may round as it likes.
  const float inverse_temperature = 1.0f / temperature;
  const auto exponent = [&](float x) { return (x - max) * inverse_temperature; };
  double total = 0.0;
  double weighted = 0.0;
  candidates.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const float e = exponent(logits[i]);
    const float weight = draw_weight(e);
    if (weight == 0.0f) {
      logits[i] = kRuledOut;
      continue;
    }
    total += weight;
    weighted += static_cast<double>(weight) * e;
    candidates.push_back({static_cast<int32_t>(i), e});
  }
  const double mean = weighted / total;
  for (TokenLogprob& token : candidates) {  // nearest first is the order of `likelier`
    token.logprob = static_cast<float>(-std::fabs(token.logprob - mean));
  }
  const auto weigh = [&](const TokenLogprob& token) {
    return draw_weight(exponent(logits[token.token_id]));
  };
  const Cut cut = cut_at(std::span(candidates), weigh, 0.0, static_cast<double>(typical_p) * total);
  for (size_t i = cut.num_kept; i < candidates.size(); ++i)
    logits[candidates[i].token_id] = kRuledOut;
}

}  // namespace octavo
