// SPDX-License-Identifier: Apache-2.0
// What settings do to a row of logits before the draw: edits of single ids, and the two filters
// that keep no beginning of the order of probability.
#pragma once
#include <span>
#include <vector>

#include "octavo/sampler.h"

namespace octavo {

// Whether a draw needs logits other than the model's. Bans alone do not: the draw skips those ids.
bool needs_shaping(const SamplingSpec& spec, const SamplingContext& context);

// The logits as `draw` is to see them, in scratch.logits: masks, bad words, bans, bias, penalties
// and, unless greedy, top_n_sigma and typical_p. What is ruled out is -inf, nothing is NaN.
std::span<float> shape(const VectorKernels& kernels, std::span<const float> logits,
                       const SamplingSpec& spec, const SamplingContext& context,
                       SamplerScratch& scratch);

// -inf for every logit that lies more than `num_sigma` standard deviations below the greatest. -inf
// counts for neither.
void keep_top_n_sigma(std::span<float> logits, float num_sigma);

// -inf for every id outside the locally typical set (Meister et al. 2023): the ids whose -log p
// lies nearest to the entropy, lower ids first among equals, until their probabilities sum to
// `typical_p`. `max` is the greatest logit, above -inf.
void keep_typical(std::span<float> logits, float max, float temperature, float typical_p,
                  std::vector<TokenLogprob>& candidates);

}  // namespace octavo
