// SPDX-License-Identifier: Apache-2.0
// One row of logits to one token.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/kernels.h"

namespace octavo {

struct SamplingSpec {
  float temperature = 0.0f;  // < 1e-5: greedy
  uint32_t top_k = 0;        // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;
  uint32_t sample_idx = 0;
  int32_t num_logprobs = -1;  // -1: none; 0: the sampled token's only
  uint32_t banned_until = 0;  // banned_ids cannot be drawn at positions below this
  std::vector<int32_t> banned_ids = {};
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0.0f;
};

struct SampledToken {
  int32_t token_id = 0;
  float logprob = 0.0f;  // raw: log softmax of the logits as the model gave them
  int32_t rank = 0;      // 1: the likeliest; 0: not asked for
  std::vector<TokenLogprob> top;
  bool failed = false;  // every logit is NaN or -inf: nothing can be drawn
};

// A uniform number in [0, 1) that depends on its arguments alone: Philox 4x32-10 (Salmon et al.
// 2011) keyed by seed, counter (position, sample_idx).
double uniform(uint64_t seed, uint32_t sample_idx, uint64_t position);

// Draws the token that will stand at `position`. Order: raw logprobs, banned ids, temperature,
// min_p, top_k, top_p, draw by inverse transform over ids in descending probability (ties: lower id
// first). Greedy takes the largest logit, lowest id among equals. `logits` is read only; `scratch`
// is reused between calls. O(vocabulary), plus a partial sort of the kept candidates.
SampledToken sample(const VectorKernels& kernels, std::span<const float> logits,
                    const SamplingSpec& spec, uint64_t position,
                    std::vector<TokenLogprob>& scratch);

// The logprob and rank of a given token, and the likeliest alternatives: for scoring prompts.
SampledToken score(const VectorKernels& kernels, std::span<const float> logits, int32_t token_id,
                   int32_t num_logprobs, std::vector<TokenLogprob>& scratch);

}  // namespace octavo
