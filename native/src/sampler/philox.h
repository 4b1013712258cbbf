// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, SC 2011.
#pragma once
#include <array>
#include <cstdint>

namespace octavo {

// Four random words, a bijection of the counter for each key. Stateless.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace octavo
