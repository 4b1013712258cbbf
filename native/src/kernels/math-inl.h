// SPDX-License-Identifier: Apache-2.0
// exp, tanh and what is made of them, over eight lanes. Included inside
// octavo::<isa>::{anonymous} after that folder's lanes-inl.h; the
// sequence of operations written here is the definition of the bits.
//
// eps = 2^-24 below. 2^r on [-1/2, 1/2] is 1 + r * Q(r) with Q of degree 5, a minimax fit of
// relative error 2.0e-9 = 0.03 eps in exact arithmetic. Rounding: |r Q(r)| <= 0.42 carries
// about 1.5 eps and the last fma 1 eps of a result >= 0.7, so 2.5 eps in all; exp adds the reduced
// argument's error, |r| eps ln 2.
#pragma once

constexpr float kLog2e = 0x1.715476p+0f;
constexpr float kLog2eLow = 0x1.4ae0cp-26f;  // log2(e) - kLog2e
// Adding it rounds to an integer, ties to even, and leaves that integer in the low bits.
constexpr float kRounder = 0x1.8p+23f;

inline V exp2_reduced(V r) {
  V q = set1(0x1.41fbbcp-13f);
  q = fma(q, r, set1(0x1.5f3e54p-10f));
  q = fma(q, r, set1(0x1.3b2d4cp-7f));
  q = fma(q, r, set1(0x1.c6aee8p-5f));
  q = fma(q, r, set1(0x1.ebfbdcp-3f));
  q = fma(q, r, set1(0x1.62e43p-1f));
  return fma(q, r, set1(1.0f));
}

// 2^x for x <= 127; exactly 0 below -126 (no subnormals), 1 at 0, NaN for NaN.
inline V exp2_flushed(V x) {
  const V biased = add(x, set1(kRounder));
  const V n = sub(biased, set1(kRounder));
  const V y = mul(exp2_reduced(sub(x, n)), power_of_two(biased));
  return select(less(x, set1(-126.0f)), set1(0.0f), y);
}

struct Reduced {
  V n;  // round(x * log2 e)
  V r;  // the rest, in [-1/2, 1/2] up to rounding
};

inline Reduced reduce_exp(V x) {
  const V n = sub(fma(x, set1(kLog2e), set1(kRounder)), set1(kRounder));
  const V r = fma(x, set1(kLog2e), sub(set1(0.0f), n));
  return {n, fma(x, set1(kLog2eLow), r)};
}

// e^x for x <= 88; exactly 0 below -126 ln 2, 1 at 0, NaN for NaN.
inline V exp_flushed(V x) {
  const Reduced t = reduce_exp(x);
  const V y = mul(exp2_reduced(t.r), power_of_two(add(t.n, set1(kRounder))));
  return select(less(x, set1(-87.33654f)), set1(0.0f), y);
}

// e^x for every x: 0 and infinity at the ends, subnormals between. 2^n is applied in two factors
// because n reaches -150 and 128. Past the clamps e^x is below half the least subnormal, or above
// the greatest float.
inline V exp_full(V x) {
  const Reduced t = reduce_exp(min(set1(89.0f), max(set1(-104.0f), x)));
  const V half_biased = fma(t.n, set1(0.5f), set1(kRounder));
  const V rest = sub(t.n, sub(half_biased, set1(kRounder)));
  const V y = mul(exp2_reduced(t.r), power_of_two(half_biased));
  return mul(y, power_of_two(add(rest, set1(kRounder))));
}

// x / (1 + e^z): x times the logistic function of -z. Where e^z overflows the true value is below
// 4e-37 and the result is a signed 0; the clamp keeps that true at -infinity. NaN in gives NaN.
inline V times_logistic(V x, V z) {
  const V clamped = max(set1(-0x1.fffffep+127f), x);
  return div(clamped, add(set1(1.0f), exp_full(z)));
}

inline V silu(V x) { return times_logistic(x, sub(set1(0.0f), x)); }

// x * (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) * (x + 0.044715 x^3): no cancellation
// for x < 0.
inline V gelu_tanh(V x) {
  constexpr float kLinear = -1.5957691216057308f;  // -2 sqrt(2 / pi)
  constexpr float kCubic = kLinear * 0.044715f;
  const V z = mul(x, fma(mul(x, x), set1(kCubic), set1(kLinear)));
  return times_logistic(x, z);
}

// |x| < 0.625: x + x^3 P(x^2), P of degree 5 with relative error 4.1e-9. Above: 1 - 2 / (e^2|x| +
// 1), where the fraction is at most 0.45, so its few eps cost less than that of the result. tanh
// rounds to 1 by 9.02.
inline V tanh(V x) {
  const V z = mul(x, x);
  V p = set1(-0x1.76ac14p-8f);
  p = fma(p, z, set1(0x1.5256d6p-6f));
  p = fma(p, z, set1(-0x1.b844480p-5f));
  p = fma(p, z, set1(0x1.110768p-3f));
  p = fma(p, z, set1(-0x1.555534p-2f));
  const V near = fma(mul(x, z), p, x);
  const V magnitude = abs(x);
  const V clamped = min(set1(10.0f), magnitude);
  const V e = exp_flushed(add(clamped, clamped));
  const V far = sub(set1(1.0f), div(set1(2.0f), add(e, set1(1.0f))));
  // The sign is x's for -0 too, which `near` would lose.
  return copy_sign(select(less(magnitude, set1(0.625f)), near, far), x);
}
