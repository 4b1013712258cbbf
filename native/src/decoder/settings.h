// SPDX-License-Identifier: Apache-2.0
// Which sampler settings make sense.
#pragma once
#include <cstddef>
#include <string>

#include "octavo/sampler.h"

namespace octavo {

// Throws std::invalid_argument unless every number of `spec` is in range and every id is one of the
// vocabulary; it names the field, after `name` and a dot.
void check_sampling(const std::string& name, const SamplingSpec& spec, size_t vocab_size);

}  // namespace octavo
