// SPDX-License-Identifier: Apache-2.0
#include "sampler/draw.h"

#include <array>
#include <bit>
#include <cmath>

namespace octavo {
namespace {

// Logits to exponents of e, and the least logit that can be drawn.
struct Scale {
  float max;
  float inverse_temperature;
  float floor;

  float exponent(float logit) const { return (logit - max) * inverse_temperature; }
  float weight(float logit) const { return logit < floor ? 0.0f : draw_weight(exponent(logit)); }
};

Scale make_scale(float max, const SamplingSpec& spec) {
  // min_p asks for a probability of at least min_p times the greatest: e^((x - max) / t) >= min_p.
  const float floor =
      spec.min_p > 0.0f ? max + spec.temperature * std::log(spec.min_p) : -__builtin_huge_valf();
  return {max, 1.0f / spec.temperature, std::min(floor, max)};
}

double mass_of(std::span<const TokenLogprob> tokens, const Scale& scale) {
  double mass = 0.0;
  for (const TokenLogprob& token : tokens) mass += scale.weight(token.logprob);
  return mass;
}

struct Cut {
  size_t num_kept;
  double mass;  // of the kept, and what was ahead of them
};

// Moves the likeliest tokens to the front until their mass, with `before` ahead of them, reaches
// `goal`; the token that reaches it is the last kept. All are kept if none does. O(tokens): halves
// what is still in question around its median, and sorts only the last few.
Cut cut_at(std::span<TokenLogprob> tokens, const Scale& scale, double before, double goal) {
  constexpr size_t kFew = 32;
  size_t begin = 0;
  size_t end = tokens.size();
  double mass = before;
  while (end - begin > kFew) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(tokens.begin() + begin, tokens.begin() + middle, tokens.begin() + end,
                     likelier);
    const double half = mass_of(tokens.subspan(begin, middle - begin), scale);
    if (mass + half >= goal) {
      end = middle;
    } else {
      mass += half;
      begin = middle;
    }
  }
  std::sort(tokens.begin() + begin, tokens.begin() + end, likelier);
  while (begin < end) {
    mass += scale.weight(tokens[begin++].logprob);
    if (mass >= goal) break;
  }
  return {begin, mass};
}

// The least mass above `target`: a token is drawn if the mass up to it exceeds u times the total.
double above(double target) { return std::nextafter(target, INFINITY); }

// The token whose stretch of the mass holds `target`;
// the last if rounding leaves the sum short of it.
int32_t pick(std::span<TokenLogprob> tokens, const Scale& scale, double before, double target) {
  return tokens[cut_at(tokens, scale, before, above(target)).num_kept - 1].token_id;
}

// The mass of every logit, in bands of equal width in the exponent: enough to know in which band
// the top_p prefix ends and in which one a quantile lies, and only those two are looked into.
class Bands {
 public:
  Bands(const SanitisedLogits& row, const Scale& scale) : row_(row), scale_(scale) {
    row.for_each_chunk([&](size_t, std::span<const float> chunk) {
      std::array<float, SanitisedLogits::kChunk> weights;
      std::array<int32_t, SanitisedLogits::kChunk> bands;
      // Two loops without branches for the vectoriser, one for the scattered sums.
      for (size_t i = 0; i < chunk.size(); ++i) weights[i] = scale.weight(chunk[i]);
      for (size_t i = 0; i < chunk.size(); ++i) bands[i] = band_of(chunk[i]);
      for (size_t i = 0; i < chunk.size(); ++i) mass_[bands[i]] += weights[i];
    });
    for (const double mass : mass_) total_ += mass;
  }

  double total() const { return total_; }

  struct Place {
    int32_t band;
    double before;  // mass of the bands ahead
  };

  // The first band at whose end the mass reaches `goal`;
  // the last with any mass if rounding keeps it short.
  Place find(double goal) const {
    Place place{0, 0.0};
    double before = 0.0;
    for (int32_t band = 0; band < kBands; ++band) {
      if (mass_[band] == 0.0) continue;
      place = {band, before};
      before += mass_[band];
      if (before >= goal) break;
    }
    return place;
  }

  void collect(int32_t band, std::vector<TokenLogprob>& out) const {
    out.clear();
    row_.for_each_chunk([&](size_t begin, std::span<const float> chunk) {
      for (size_t i = 0; i < chunk.size(); ++i) {
        if (band_of(chunk[i]) != band || scale_.weight(chunk[i]) == 0.0f) continue;
        out.push_back({static_cast<int32_t>(begin + i), chunk[i]});
      }
    });
  }

 private:
  // Eight to one e-fold of probability; the last takes
  // everything from e^-88 down, which weighs nothing.
  static constexpr float kBandsPerUnit = 8.0f;
  static constexpr int32_t kBands = 705;

  int32_t band_of(float logit) const {
    const float band = scale_.exponent(logit) * -kBandsPerUnit;
    return static_cast<int32_t>(band < kBands - 1 ? band : kBands - 1);
  }

  const SanitisedLogits& row_;
  const Scale& scale_;
  std::array<double, kBands> mass_{};
  double total_ = 0.0;
};

int32_t draw_from_all(const SanitisedLogits& row, const Scale& scale, float top_p, double u,
                      std::vector<TokenLogprob>& scratch) {
  const Bands bands(row, scale);
  if (top_p >= 1.0f) {
    const double target = u * bands.total();
    const Bands::Place place = bands.find(above(target));
    bands.collect(place.band, scratch);
    return pick(scratch, scale, place.before, target);
  }
  const double goal = static_cast<double>(top_p) * bands.total();
  const Bands::Place last = bands.find(goal);
  bands.collect(last.band, scratch);
  const Cut kept = cut_at(scratch, scale, last.before, goal);
  const double target = u * kept.mass;
  const Bands::Place place = bands.find(above(target));
  if (place.band < last.band) {
    bands.collect(place.band, scratch);
    return pick(scratch, scale, place.before, target);
  }
  return pick(std::span(scratch).first(kept.num_kept), scale, last.before, target);
}

}  // namespace

float draw_weight(float x) {
  // e^x = 2^n e^r; n ln 2 is exact in its first part, whose last 9 bits are zero. The polynomial is
  // that of 2^y at y = r log2(e), to 0.03 * 2^-24.
  constexpr float kRounder = 0x1.8p+23f;
  constexpr float kLog2e = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  const float bounded = x > -87.0f ? x : -87.0f;
  const float biased = bounded * kLog2e + kRounder;
  const float n = biased - kRounder;
  const float y = ((bounded - n * kLn2High) - n * kLn2Low) * kLog2e;
  float q = 0x1.41fbbcp-13f;
  q = q * y + 0x1.5f3e54p-10f;
  q = q * y + 0x1.3b2d4cp-7f;
  q = q * y + 0x1.c6aee8p-5f;
  q = q * y + 0x1.ebfbdcp-3f;
  q = q * y + 0x1.62e43p-1f;
  q = q * y + 1.0f;
  const uint32_t power = (std::bit_cast<uint32_t>(biased) << 23) + 0x3f800000u;
  return x < -87.0f ? 0.0f : q * std::bit_cast<float>(power);
}

int32_t draw(const VectorKernels& kernels, const SanitisedLogits& row, float max,
             const SamplingSpec& spec, double u, std::vector<TokenLogprob>& scratch) {
  const Scale scale = make_scale(max, spec);
  if (spec.top_k == 0 || spec.top_k >= row.size()) {
    return draw_from_all(row, scale, spec.top_p, u, scratch);
  }
  row.keep_top(kernels, spec.top_k, scale.floor, scratch);
  const double total = mass_of(scratch, scale);
  if (spec.top_p >= 1.0f) return pick(scratch, scale, 0.0, u * total);
  const Cut kept = cut_at(scratch, scale, 0.0, static_cast<double>(spec.top_p) * total);
  return pick(std::span(scratch).first(kept.num_kept), scale, 0.0, u * kept.mass);
}

}  // namespace octavo
