// SPDX-License-Identifier: Apache-2.0
// What this processor can do *and* what the operating system saves across a context switch: a CPUID
// bit without the matching XCR0 bits is an instruction that faults.
#include "octavo/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace octavo {
namespace {

#if defined(__x86_64__)

uint64_t enabled_state() {  // XCR0
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {  // zeros if the processor has no such leaf
  Leaf out;
  if (__get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx) == 0) return {};
  return out;
}

bool bit(uint32_t word, int position) { return ((word >> position) & 1) != 0; }

uint32_t detect() {
  const Leaf basic = cpuid(1, 0);
  uint32_t found = 0;
  if (bit(basic.ecx, 20)) found |= kSse42;
  if (!bit(basic.ecx, 27)) return found;  // no OSXSAVE: XGETBV itself would fault
  const uint64_t state = enabled_state();
  constexpr uint64_t kYmm = 0x6;          // SSE and AVX state
  constexpr uint64_t kZmm = kYmm | 0xe0;  // opmask, upper halves of zmm0-15, zmm16-31
  if ((state & kYmm) != kYmm || !bit(basic.ecx, 28)) return found;
  const Leaf extended = cpuid(7, 0);
  const Leaf extended_1 = cpuid(7, 1);
  if (bit(basic.ecx, 12)) found |= kFma;
  if (bit(basic.ecx, 29)) found |= kF16c;
  if (bit(extended.ebx, 5)) found |= kAvx2;
  if (bit(extended.ebx, 8)) found |= kBmi2;
  if (extended.eax >= 1 && bit(extended_1.eax, 4)) found |= kAvxVnni;
  if ((state & kZmm) != kZmm) return found;
  const bool f = bit(extended.ebx, 16), dq = bit(extended.ebx, 17), bw = bit(extended.ebx, 30),
             vl = bit(extended.ebx, 31);
  if (f && dq && bw && vl) {
    found |= kAvx512;
    if (bit(extended.ecx, 11)) found |= kAvx512Vnni;
  }
  return found;
}

#elif defined(__aarch64__) && defined(__linux__)

uint32_t detect() {
  uint32_t found = 0;
#ifdef HWCAP_ASIMDDP
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) found |= kNeonDotProd;
#endif
#ifdef HWCAP2_I8MM
  if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) found |= kNeonI8mm;
#endif
  return found;
}

#else

uint32_t detect() { return 0; }

#endif

}  // namespace

uint32_t cpu_features() {
  static const uint32_t features = detect();
  return features;
}

}  // namespace octavo
