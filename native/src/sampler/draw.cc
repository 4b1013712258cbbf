// SPDX-License-Identifier: Apache-2.0
#include "sampler/draw.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "sampler/cut.h"

namespace octavo {
namespace {

// Logits to exponents of e, and the least logit that can be drawn.
struct Scale {
  float max;
  float inverse_temperature;
  float floor;

  float exponent(float logit) const { return (logit - max) * inverse_temperature; }
  float weight(float logit) const { return logit < floor ? 0.0f : draw_weight(exponent(logit)); }
  float operator()(const TokenLogprob& token) const { return weight(token.logprob); }
};

Scale make_scale(float max, const SamplingSpec& spec) {
  // min_p asks for a probability of at least min_p times the greatest: e^((x - max) / t) >= min_p.
  const float floor =
      spec.min_p > 0.0f ? max + spec.temperature * std::log(spec.min_p) : -__builtin_huge_valf();
  return {max, 1.0f / spec.temperature, std::min(floor, max)};
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

Drawn draw_from_all(const SanitisedLogits& row, const Scale& scale, float top_p, double u,
                    std::vector<TokenLogprob>& scratch) {
  const Bands bands(row, scale);
  if (top_p >= 1.0f) {
    const double target = u * bands.total();
    const Bands::Place place = bands.find(above(target));
    bands.collect(place.band, scratch);
    return {pick(scratch, scale, place.before, target),
            {std::numeric_limits<int32_t>::max(), scale.floor}};
  }
  const double goal = static_cast<double>(top_p) * bands.total();
  const Bands::Place last = bands.find(goal);
  bands.collect(last.band, scratch);
  const Cut kept = cut_at(std::span(scratch), scale, last.before, goal);
  const TokenLogprob last_kept = scratch[kept.num_kept - 1];
  const double target = u * kept.mass;
  const Bands::Place place = bands.find(above(target));
  if (place.band < last.band) {
    bands.collect(place.band, scratch);
    return {pick(scratch, scale, place.before, target), last_kept};
  }
  return {pick(std::span(scratch).first(kept.num_kept), scale, last.before, target), last_kept};
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

Drawn draw(const VectorKernels& kernels, const SanitisedLogits& row, float max,
           const SamplingSpec& spec, double u, std::vector<TokenLogprob>& scratch) {
  const Scale scale = make_scale(max, spec);
  if (spec.top_k == 0 || spec.top_k >= row.size()) {
    return draw_from_all(row, scale, spec.top_p, u, scratch);
  }
  row.keep_top(kernels, spec.top_k, scale.floor, scratch);
  const double total = mass_of(std::span<const TokenLogprob>(scratch), scale);
  if (spec.top_p >= 1.0f) {
    const TokenLogprob last = scratch.back();  // keep_top sorts
    return {pick(scratch, scale, 0.0, u * total), last};
  }
  const double goal = static_cast<double>(spec.top_p) * total;
  const Cut kept = cut_at(std::span(scratch), scale, 0.0, goal);
  const TokenLogprob last = scratch[kept.num_kept - 1];
  return {pick(std::span(scratch).first(kept.num_kept), scale, 0.0, u * kept.mass), last};
}

}  // namespace octavo
