// SPDX-License-Identifier: Apache-2.0
// Inverse transform over ids in descending probability, after min_p, top_k and top_p.
#pragma once
#include <vector>

#include "sampler/sanitised_logits.h"

namespace octavo {

// e^x for x <= 0 to a few units of 2^-24, and 0 below -87. Plain float32 products and sums: the
// same logits and seed draw the same token on every machine, which the C library's exp does not
// promise. (Only the bar of min_p takes one std::log: a token that lies an ulp from it may fall
// either way.)
float draw_weight(float x);

struct Drawn {
  int32_t token_id;
  TokenLogprob last;  // (id, logit): what is likelier than this, and this, could have been drawn
};

// The id at quantile u in [0, 1) of the distribution that `spec` makes of `row`, whose greatest
// logit is `max` > -inf. O(vocabulary), plus sorting what top_k keeps.
Drawn draw(const VectorKernels& kernels, const SanitisedLogits& row, float max,
           const SamplingSpec& spec, double u, std::vector<TokenLogprob>& scratch);

}  // namespace octavo
