// SPDX-License-Identifier: Apache-2.0
#include "sampler/philox.h"

#include "octavo/sampler.h"

namespace octavo {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = kMultiplier0 * counter[0];
    const uint64_t p1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

double uniform(uint64_t seed, uint32_t sample_idx, uint64_t position) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto random =
      philox4x32({low(position), high(position), sample_idx, 0}, {low(seed), high(seed)});
  // 53 bits, the most that keep every result exact and below 1.
  const uint64_t bits = (static_cast<uint64_t>(random[0]) << 21) | (random[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace octavo
