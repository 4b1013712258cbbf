// SPDX-License-Identifier: Apache-2.0
// The shortest beginning of an order that holds a given mass.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "sampler/sanitised_logits.h"

namespace octavo {

struct Cut {
  size_t num_kept;
  double mass;  // of the kept, and what was ahead of them
};

template <class Weigh>
double mass_of(std::span<const TokenLogprob> tokens, const Weigh& weigh) {
  double mass = 0.0;
  for (const TokenLogprob& token : tokens) mass += weigh(token);
  return mass;
}

// Moves the first in the order of `likelier` to the front until their mass, with `before` ahead of
// them, reaches `goal`; the token that reaches it is the last kept. All are kept if none does.
// O(tokens): halves what is still in question around its median, and sorts only the last few.
template <class Weigh>
Cut cut_at(std::span<TokenLogprob> tokens, const Weigh& weigh, double before, double goal) {
  constexpr size_t kFew = 32;
  size_t begin = 0;
  size_t end = tokens.size();
  double mass = before;
  while (end - begin > kFew) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(tokens.begin() + begin, tokens.begin() + middle, tokens.begin() + end,
                     likelier);
    const double half = mass_of(tokens.subspan(begin, middle - begin), weigh);
    if (mass + half >= goal) {
      end = middle;
    } else {
      mass += half;
      begin = middle;
    }
  }
  std::sort(tokens.begin() + begin, tokens.begin() + end, likelier);
  while (begin < end) {
    mass += weigh(tokens[begin++]);
    if (mass >= goal) break;
  }
  return {begin, mass};
}

}  // namespace octavo
