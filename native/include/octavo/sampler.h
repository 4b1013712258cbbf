// SPDX-License-Identifier: Apache-2.0
// One row of logits to one token.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "octavo/kernels.h"

namespace octavo {

// What a request asks of its tokens. Every field at its default changes nothing and costs nothing.
//
// The order in which they act is vLLM's, with two filters more:
//
//   1. logprobs are taken of the model's logits, unless has_processed_logprobs
//   2. the step's mask and allowed_ids rule out (-inf) every other id
//   3. bad_words and banned_ids rule out theirs
//   4. logit_bias is added
//   5. repetition_penalty divides a logit above 0 and multiplies one below
//   6. frequency_penalty times the count is subtracted, then presence_penalty
//   7. greedy takes the greatest logit here; else temperature divides them
//   8. top_n_sigma, typical_p, min_p, top_k, top_p: each on what is left
//   9. the draw
struct SamplingSpec {
  float temperature = 0.0f;  // < 1e-5: greedy
  uint32_t top_k = 0;        // 0: off
  float top_p = 1.0f;        // the likeliest whose probabilities sum to this
  float min_p = 0.0f;        // at least this part of the likeliest one's probability
  uint64_t seed = 0;
  uint32_t sample_idx = 0;
  std::optional<uint32_t> num_logprobs = {};  // nothing: none at all; 0: the sampled token's only
  uint32_t banned_until = 0;                  // banned_ids cannot be drawn at positions below this
  std::vector<int32_t> banned_ids = {};
  // Of the ids in order of how far -log p lies from its mean, the first whose sum reaches this.
  float typical_p = 1.0f;
  // 0: off; logits at most this many standard deviations (of all logits) below the greatest.
  float top_n_sigma = 0.0f;
  float repetition_penalty = 1.0f;                         // of ids in the prompt or the output
  float presence_penalty = 0.0f;                           // of ids in the output
  float frequency_penalty = 0.0f;                          // of those too, for each time
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // (id, added to its logit)
  std::vector<int32_t> allowed_ids = {};                   // empty: every id
  // Sequences of ids: where the output ends with all but the last, the last cannot be drawn.
  std::vector<std::vector<int32_t>> bad_words = {};
  bool has_processed_logprobs = false;  // of the distribution drawn from: after 8, not at 1

  bool is_greedy() const { return temperature < 1e-5f; }
  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
  bool needs_history() const { return has_penalties() || !bad_words.empty(); }
};

// The tokens of a sequence as penalties and bad words see them.
class TokenHistory {
 public:
  struct Seen {
    int32_t token_id;
    uint32_t num_outputs;  // 0: in the prompt only
  };

  TokenHistory() = default;
  // Of these ids the first num_prompt, which are at most all, are the prompt.
  TokenHistory(std::span<const int32_t> ids, size_t num_prompt);

  void append(int32_t token_id);  // to the output; amortised O(1)

  size_t size() const { return num_prompt_ + outputs_.size(); }
  std::span<const Seen> seen() const { return seen_; }  // every id once
  std::span<const int32_t> outputs() const { return outputs_; }

 private:
  Seen& entry(int32_t token_id);

  size_t num_prompt_ = 0;
  std::vector<int32_t> outputs_;
  std::vector<Seen> seen_;
  std::unordered_map<int32_t, size_t> places_;  // in seen_
};

// What a draw depends on beside logits and settings.
struct SamplingContext {
  uint64_t position = 0;                  // where the token will stand
  const TokenHistory* history = nullptr;  // what stands before it; null: nothing is known of that
  std::span<const uint8_t> allowed = {};  // bit i % 8 of byte i / 8 allows id i; empty: all are
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0.0f;
};

struct SampledToken {
  int32_t token_id = 0;
  float logprob = 0.0f;
  int32_t rank = 0;  // 1: the likeliest; 0: not asked for
  std::vector<TokenLogprob> top;
  bool failed = false;  // nothing can be drawn: every logit is NaN or -inf, or ruled out
};

// Memory that draws reuse; one for each thread.
struct SamplerScratch {
  std::vector<TokenLogprob> candidates;
  std::vector<float> logits;
};

// A uniform number in [0, 1) that depends on its arguments alone: Philox 4x32-10 (Salmon et al.
// 2011) keyed by seed, counter (position, sample_idx).
double uniform(uint64_t seed, uint32_t sample_idx, uint64_t position);

// Draws the token that will stand at the context's position: by inverse transform over ids in
// descending probability (ties: lower id first), or the largest logit, lowest id among equals.
// `logits` is read only. Ids outside the vocabulary are left out. O(vocabulary + ids seen), plus a
// partial sort of the kept candidates. Throws std::invalid_argument for an empty row and for a mask
// of another length than the vocabulary's.
SampledToken sample(const VectorKernels& kernels, std::span<const float> logits,
                    const SamplingSpec& spec, const SamplingContext& context,
                    SamplerScratch& scratch);

// The logprob and rank of a given token, and the likeliest alternatives, of the logits as the model
// gave them: for scoring prompts.
SampledToken score(const VectorKernels& kernels, std::span<const float> logits, int32_t token_id,
                   size_t num_logprobs, SamplerScratch& scratch);

}  // namespace octavo
