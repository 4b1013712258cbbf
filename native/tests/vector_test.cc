// SPDX-License-Identifier: Apache-2.0
// Vector kernels against float64 with derived bounds, and against each other bit for bit. eps =
// 2^-24: the relative error of one rounded operation. The counts of it are argued in math-inl.h.
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "check.h"
#include "kernel_tables.h"

namespace octavo {
namespace {

using check::runnable_tables;
using check::scalar_table;

constexpr double kEps = 0x1p-24;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kExpBound = 3.2 * kEps;
// The fraction (e^2x + 1) has kExpBound and two
// roundings, shrunk by 0.45 / 0.55, and a last rounding.
constexpr double kTanhBound = 5.5 * kEps;

std::vector<float> normals(size_t n, uint32_t seed, float spread = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

// Evenly spaced, with every magnitude from subnormal up in front.
std::vector<float> sweep(float low, float high, size_t n) {
  std::vector<float> x;
  for (float tiny = 1e-44f; tiny < 1.0f; tiny *= 1.7f) {
    if (tiny < high) x.push_back(tiny);
    if (-tiny > low) x.push_back(-tiny);
  }
  for (size_t i = 0; i <= n; ++i) x.push_back(low + (high - low) * float(i) / float(n));
  return x;
}

using Exact = std::function<double(double)>;
using Bound = std::function<double(double x, double exact)>;

// The worst error over its bound; must stay at or below 1.
double worst_ratio(const std::vector<float>& x, const std::vector<float>& y, const Exact& exact,
                   const Bound& bound) {
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(x[i]);
    const double ratio = std::fabs(y[i] - want) / bound(x[i], want);
    worst = ratio <= worst ? worst : std::isnan(ratio) ? kInf : ratio;
  }
  return worst;
}

std::vector<float> apply_exp(const VectorKernels& kernels, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = kernels.sum_exp(&x[i], 0.0f, 1);
  return y;
}

std::vector<float> apply_tanh(const VectorKernels& kernels, std::vector<float> x) {
  kernels.soft_cap(x.data(), 1.0f, x.size());
  return x;
}

using Gated = void (*)(const float*, const float*, size_t, float*) noexcept;

std::vector<float> apply_gate(Gated gated, const std::vector<float>& x) {
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<float> y(x.size());
  gated(x.data(), ones.data(), x.size(), y.data());
  return y;
}

double exact_silu(double x) { return x / (1 + std::exp(-x)); }
double gelu_argument(double x) {
  return -2 * std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
}
double exact_gelu(double x) { return x / (1 + std::exp(gelu_argument(x))); }

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

constexpr size_t kSizes[] = {0,  1,  2,  3,  7,   8,   9,   15,   16,  17,
                             31, 32, 33, 64, 127, 511, 512, 1025, 2053};

}  // namespace

TEST(exp_is_within_its_bound_and_saturates) {
  const auto x = sweep(-87.33f, 88.0f, 20000);
  const auto bound = [](double, double exact) { return kExpBound * exact; };
  for (const KernelTable* table : runnable_tables()) {
    const auto y = apply_exp(*table->vector, x);
    const double worst = worst_ratio(x, y, [](double v) { return std::exp(v); }, bound);
    CHECK(worst <= 1.0);
    std::printf("     exp %.2f of its bound\n", worst);
    const auto edges = apply_exp(*table->vector, {0.0f, -0.0f, -87.4f, -1e30f, -kInf, NAN});
    CHECK_EQ(edges[0], 1.0f);
    CHECK_EQ(edges[1], 1.0f);
    for (size_t i = 2; i < 5; ++i) CHECK_EQ(edges[i], 0.0f);
    CHECK(std::isnan(edges[5]));
  }
}

TEST(tanh_is_within_its_bound_and_saturates) {
  const auto x = sweep(-12.0f, 12.0f, 40000);
  // Below 2^-126 the products lose bits: half the least subnormal each.
  const auto bound = [](double, double exact) { return kTanhBound * std::fabs(exact) + 0x1p-148; };
  for (const KernelTable* table : runnable_tables()) {
    const auto y = apply_tanh(*table->vector, x);
    const double worst = worst_ratio(x, y, [](double v) { return std::tanh(v); }, bound);
    CHECK(worst <= 1.0);
    std::printf("     tanh %.2f of its bound\n", worst);
    const auto edges = apply_tanh(*table->vector, {kInf, -kInf, 1e30f, -1e30f, -0.0f, NAN});
    CHECK_EQ(edges[0], 1.0f);
    CHECK_EQ(edges[1], -1.0f);
    CHECK_EQ(edges[2], 1.0f);
    CHECK_EQ(edges[3], -1.0f);
    CHECK(edges[4] == 0.0f && std::signbit(edges[4]));
    CHECK(std::isnan(edges[5]));
  }
}

TEST(silu_and_gelu_are_within_their_bounds_and_saturate) {
  const auto x = sweep(-100.0f, 100.0f, 40000);
  // exp, the sum, the quotient; where e^-x overflows the true value is below 4e-37.
  const auto silu_bound = [](double, double exact) {
    return (kExpBound + 2 * kEps) * std::fabs(exact) + 4e-37;
  };
  // The argument's own 5 roundings come through exp as 5 eps |z| wherever e^z is not negligible.
  const auto gelu_bound = [](double v, double exact) {
    const double z = gelu_argument(v);
    const double share = 1 / (1 + std::exp(-z));  // of e^z in 1 + e^z
    return (kExpBound + 2 * kEps + 5 * kEps * std::fabs(z) * share) * std::fabs(exact) + 4e-37;
  };
  for (const KernelTable* table : runnable_tables()) {
    const VectorKernels& kernels = *table->vector;
    const double silu = worst_ratio(x, apply_gate(kernels.silu_mul, x), exact_silu, silu_bound);
    const double gelu =
        worst_ratio(x, apply_gate(kernels.gelu_tanh_mul, x), exact_gelu, gelu_bound);
    CHECK(silu <= 1.0);
    CHECK(gelu <= 1.0);
    std::printf("     silu %.2f, gelu %.2f of their bounds\n", silu, gelu);
    for (const Gated gated : {kernels.silu_mul, kernels.gelu_tanh_mul}) {
      const auto edges = apply_gate(gated, {kInf, -kInf, 1e30f, -1e30f, -1000.0f, 0.0f, NAN});
      CHECK_EQ(edges[0], kInf);
      CHECK_EQ(edges[1], 0.0f);
      CHECK_EQ(edges[2], 1e30f);
      for (size_t i = 3; i < 6; ++i) CHECK_EQ(edges[i], 0.0f);
      CHECK(std::isnan(edges[6]));
    }
  }
}

TEST(the_bounds_notice_a_wrong_constant) {
  const auto x = sweep(-5.0f, 5.0f, 1000);
  const auto y = apply_gate(scalar_table().vector->gelu_tanh_mul, x);
  const auto bound = [](double, double exact) { return 100 * kEps * std::fabs(exact) + 1e-37; };
  CHECK(worst_ratio(x, y, exact_gelu, bound) <= 1.0);
  const auto wrong = [](double v) {
    return v / (1 + std::exp(gelu_argument(v) * (0.7979 / 0.7978845608)));
  };
  CHECK(worst_ratio(x, y, wrong, bound) > 1.0);
  const auto silu = apply_gate(scalar_table().vector->silu_mul, x);
  const auto two_ulps_off = [](double v) { return exact_silu(v) * (1 + 8 * kEps); };
  const auto tight = [](double, double exact) { return 5.2 * kEps * std::fabs(exact) + 1e-37; };
  CHECK(worst_ratio(x, silu, exact_silu, tight) <= 1.0);
  CHECK(worst_ratio(x, silu, two_ulps_off, tight) > 1.0);
}

TEST(rms_norm_matches_float64) {
  for (const KernelTable* table : runnable_tables()) {
    for (const size_t n : {1, 5, 8, 64, 65, 576, 640, 2048, 4099}) {
      const auto x = normals(n, uint32_t(n));
      const auto weight = normals(n, uint32_t(n + 1));
      double squares = 0.0;
      for (const float v : x) squares += double(v) * v;
      const double factor = 1 / std::sqrt(squares / double(n) + 1e-5);
      // Each lane adds n / 8 squares, the tree 3 more; the root halves it; 6 operations follow.
      const double relative = (0.5 * (double(n) / 8 + 5) + 6) * kEps;
      std::vector<float> out = x;
      table->vector->rms_norm(out.data(), weight.data(), n, 1e-5f, out.data());
      std::vector<float> bare(n);
      table->vector->rms_norm(x.data(), nullptr, n, 1e-5f, bare.data());
      for (size_t i = 0; i < n; ++i) {
        CHECK_NEAR(out[i], x[i] * factor * weight[i],
                   relative * std::fabs(x[i] * factor * weight[i]));
        CHECK_NEAR(bare[i], x[i] * factor, relative * std::fabs(x[i] * factor));
      }
      // One element lost would show: its share of the mean is far above the bound.
      if (n > 8 && n < 3000) CHECK(0.5 / double(n) > relative);
    }
  }
}

TEST(rope_turns_pairs) {
  for (const KernelTable* table : runnable_tables()) {
    for (const size_t pairs : {1, 2, 3, 4, 5, 8, 9, 13, 32, 40, 128}) {
      const auto x = normals(2 * pairs + 3, uint32_t(pairs));
      std::vector<float> cos(pairs);
      std::vector<float> sin(pairs);
      for (size_t i = 0; i < pairs; ++i) {
        cos[i] = std::cos(float(i) + 0.5f);
        sin[i] = std::sin(float(i) + 0.5f);
      }
      for (const bool halves : {false, true}) {
        auto out = x;
        (halves ? table->vector->rope_halves : table->vector->rope_interleaved)(
            out.data(), cos.data(), sin.data(), pairs);
        for (size_t i = 0; i < pairs; ++i) {
          const size_t a = halves ? i : 2 * i;
          const size_t b = halves ? i + pairs : 2 * i + 1;
          const double bound = 2 * kEps * (std::fabs(x[a]) + std::fabs(x[b]));
          CHECK_NEAR(out[a], double(x[a]) * cos[i] - double(x[b]) * sin[i], bound);
          CHECK_NEAR(out[b], double(x[b]) * cos[i] + double(x[a]) * sin[i], bound);
        }
        for (size_t i = 2 * pairs; i < x.size(); ++i) CHECK_EQ(out[i], x[i]);
      }
    }
  }
}

TEST(argmax_takes_the_lowest_of_equals_and_never_a_nan) {
  for (const KernelTable* table : runnable_tables()) {
    const VectorKernels& kernels = *table->vector;
    for (const size_t n : kSizes) {
      auto x = normals(n, uint32_t(n) + 9);
      for (size_t i = 0; i < n; i += 3) x[i] = NAN;
      for (size_t at = 1; at < n; at += 1 + n / 7) {
        auto y = x;
        y[at] = 100.0f;
        if (at + 5 < n) y[at + 5] = 100.0f;
        CHECK_EQ(kernels.argmax(y.data(), n), at);
        CHECK_EQ(kernels.max(y.data(), n), 100.0f);
      }
    }
    const std::vector<float> nans(600, NAN);
    CHECK_EQ(kernels.argmax(nans.data(), nans.size()), 0u);
    CHECK_EQ(kernels.max(nans.data(), nans.size()), -kInf);
    CHECK_EQ(kernels.argmax(nans.data(), 0), 0u);
    auto one = nans;
    one[577] = -kInf;
    CHECK_EQ(kernels.argmax(one.data(), one.size()), 577u);
    one[598] = -kInf;
    one[599] = kInf;
    CHECK_EQ(kernels.argmax(one.data(), one.size()), 599u);
    const float zeros[] = {-0.0f, 0.0f};
    CHECK_EQ(kernels.argmax(zeros, 2), 0u);
  }
}

TEST(sum_exp_matches_float64) {
  for (const KernelTable* table : runnable_tables()) {
    for (const size_t n : {1, 7, 8, 100, 1025, 50000}) {
      const auto x = normals(n, uint32_t(n));
      const float max = table->vector->max(x.data(), n);
      double want = 0.0;
      for (const float v : x) want += std::exp(double(v) - max);
      const double bound = (double(n) / 8 + 3) * kEps + kExpBound + 20 * kEps;  // x - max: |.| < 20
      CHECK_NEAR(table->vector->sum_exp(x.data(), max, n), want, bound * want);
    }
  }
}

// Runs every function on n elements; what lies past them must stay as it was.
std::vector<float> run_everything(const VectorKernels& kernels, size_t n) {
  std::vector<float> all;
  const std::vector<float> x = normals(n + 8, uint32_t(n), 3.0f);
  const std::vector<float> y = normals(n + 8, uint32_t(n + 77));
  const auto keep = [&](const std::vector<float>& out, const std::vector<float>& before) {
    CHECK(std::memcmp(out.data() + n, before.data() + n, 8 * sizeof(float)) == 0);
    all.insert(all.end(), out.begin(), out.begin() + long(n));
  };
  auto out = x;
  kernels.add(out.data(), y.data(), n);
  keep(out, x);
  kernels.scale(out.data(), 0.37f, n);
  keep(out, x);
  kernels.soft_cap(out.data(), 1.7f, n);
  keep(out, x);
  kernels.silu_mul(x.data(), y.data(), n, out.data());
  keep(out, x);
  kernels.gelu_tanh_mul(x.data(), y.data(), n, out.data());
  keep(out, x);
  if (n > 0) {
    kernels.rms_norm(x.data(), y.data(), n, 1e-6f, out.data());
    keep(out, x);
  }
  out = x;
  kernels.rope_halves(out.data(), y.data(), x.data(), n / 2);
  keep(out, x);
  kernels.rope_interleaved(out.data(), y.data(), x.data(), n / 2);
  keep(out, x);
  all.push_back(kernels.max(x.data(), n));
  all.push_back(kernels.sum_exp(x.data(), 9.0f, n));
  all.push_back(float(kernels.argmax(x.data(), n)));
  return all;
}

TEST(every_table_gives_the_same_bits) {
  for (const size_t n : kSizes) {
    const auto want = run_everything(*scalar_table().vector, n);
    for (const KernelTable* table : runnable_tables()) {
      CHECK(same_bits(run_everything(*table->vector, n), want));
    }
  }
  const auto wide = sweep(-120.0f, 120.0f, 20000);
  const VectorKernels& scalar = *scalar_table().vector;
  for (const KernelTable* table : runnable_tables()) {
    const VectorKernels& kernels = *table->vector;
    CHECK(same_bits(apply_gate(kernels.silu_mul, wide), apply_gate(scalar.silu_mul, wide)));
    CHECK(
        same_bits(apply_gate(kernels.gelu_tanh_mul, wide), apply_gate(scalar.gelu_tanh_mul, wide)));
    CHECK(same_bits(apply_tanh(kernels, wide), apply_tanh(scalar, wide)));
  }
}

}  // namespace octavo

CHECK_MAIN()
