// SPDX-License-Identifier: Apache-2.0
// Inverse transform over ids in descending probability, after min_p, top_k and top_p.
#pragma once
#include <vector>

#include "sampler/logit_row.h"

namespace octavo {

// e^x for x <= 0 to a few units of 2^-24, and 0 below -87. Plain float32 products and sums: the
// same draw for a seed on every machine, which the C library's exp does not promise.
float draw_weight(float x);

// The id at quantile u in [0, 1) of the distribution that `spec` makes of `row`, whose greatest
// logit is `max` > -inf. O(vocabulary), plus sorting what top_k keeps.
int32_t draw(const VectorKernels& kernels, const LogitRow& row, float max, const SamplingSpec& spec,
             double u, std::vector<TokenLogprob>& scratch);

}  // namespace octavo
