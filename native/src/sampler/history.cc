// SPDX-License-Identifier: Apache-2.0
#include "octavo/sampler.h"

namespace octavo {

TokenHistory::TokenHistory(std::span<const int32_t> ids, size_t num_prompt)
    : num_prompt_(num_prompt) {
  for (const int32_t id : ids.first(num_prompt)) entry(id);
  for (const int32_t id : ids.subspan(num_prompt)) append(id);
}

void TokenHistory::append(int32_t token_id) {
  outputs_.push_back(token_id);
  ++entry(token_id).num_outputs;
}

TokenHistory::Seen& TokenHistory::entry(int32_t token_id) {
  const auto [place, is_new] = places_.try_emplace(token_id, seen_.size());
  if (is_new) seen_.push_back({token_id, 0});
  return seen_[place->second];
}

}  // namespace octavo
