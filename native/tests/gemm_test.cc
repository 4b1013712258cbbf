// SPDX-License-Identifier: Apache-2.0
// Every matrix product of every table against float64, against the scalar table and against itself.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "kernel_tables.h"
#include "matrices.h"
#include "octavo/kernels.h"
#include "octavo/weights.h"
#include "quant/panel_codes.h"
#include "quant/panel_layout.h"

namespace {

using namespace octavo;
using namespace octavo::testing;
using check::runnable_tables;

std::vector<float> multiply(const GemmKernels& kernels, WeightType type,
                            const std::vector<std::byte>& panels, size_t rows, const Batch& batch,
                            size_t token_begin, size_t token_end) {
  const size_t num_panels = (rows + kPanelRows - 1) / kPanelRows;
  const size_t stride = num_panels * kPanelRows + 3;  // not the row count, to tell them apart
  std::vector<float> out((token_end - token_begin) * stride, -7.0f);
  gemm_for(kernels, type)(panels.data(), num_panels, batch.view().cols, batch.view(), token_begin,
                          token_end, out.data(), stride);
  return out;
}

bool same_bits(const float* a, const float* b, size_t n) {
  return n == 0 || std::memcmp(a, b, n * sizeof(float)) == 0;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

// An upper bound of |D| * q + |M|, the magnitude that rounding errors of one weight scale with.
double weight_magnitude(WeightType type, const std::byte* panel, size_t row, size_t k, double w) {
  if (quant::code_bits(type) == 0) return std::fabs(w);
  const quant::BlockScale scale = quant::get_scale(type, k / 32, row, panel);
  const double most = type == WeightType::kQ6_K ? 32.0 : (1 << quant::code_bits(type)) - 1.0;
  return std::fabs(double{scale.d[k % 32 / 16]}) * most + std::fabs(double{scale.m});
}

// |got - exact| in units of its bound, the worst over rows and tokens. Each output passes through
// at most two roundings per block (one per column for plain types) as it is accumulated; each term
// has at most 8 more: three in the weight as dequantize_row gives it, and conversion of the integer
// sum, D * scale, scale * sum, S * D and the final scale. Rounding errs by 2^-24 relative; 1.001
// covers second order.
double worst_error(WeightType type, const std::vector<std::byte>& file,
                   const std::vector<std::byte>& panels, size_t rows, const Batch& batch,
                   const std::vector<float>& got) {
  const size_t cols = batch.view().cols;
  const size_t stride = (rows + kPanelRows - 1) / kPanelRows * kPanelRows + 3;
  const size_t roundings = (block_elements(type) == 1 ? cols : 2 * (cols / 32)) + 8;
  const ActivationKind kind = activation_kind(type);
  double worst = 0.0;
  std::vector<float> w(cols);
  for (size_t r = 0; r < rows; ++r) {
    dequantize_row(type, file.data() + r * row_bytes(type, cols), cols, w.data());
    const std::byte* panel = panels.data() + r / kPanelRows * panel_bytes(type, cols);
    for (size_t t = 0; t < batch.num_tokens(); ++t) {
      double exact = 0.0;
      double magnitude = 0.0;
      for (size_t k = 0; k < cols; ++k) {
        const double x = batch.seen(kind, t, k);
        exact += w[k] * x;
        magnitude += weight_magnitude(type, panel, r % kPanelRows, k, w[k]) * std::fabs(x);
      }
      const double bound = 1.001 * 0x1p-24 * static_cast<double>(roundings) * magnitude;
      const double error = std::fabs(got[t * stride + r] - exact);
      worst = std::max(worst, error <= bound ? error / bound : 1e9);
    }
  }
  return worst;
}

// Both sides of every block multiple that a type allows, and the demo models' own widths.
std::vector<size_t> widths(WeightType type) {
  switch (block_elements(type)) {
    case 1:
      return {1, 2, 7, 8, 9, 33, 576};
    case 32:
      return {32, 64, 96, 224, 256, 288, 576, 640};
    default:
      return {256, 512, 768, 1024};
  }
}

TEST(products_match_float64_within_rounding) {
  Random random(1);
  for (WeightType type : kAllTypes) {
    for (size_t cols : widths(type)) {
      const size_t rows = 1 + random.below(40), tokens = 1 + random.below(9);
      const auto file = random_rows(type, rows, cols, random);
      const auto panels = packed(type, file, rows, cols);
      for (const KernelTable* table : runnable_tables()) {
        const Batch batch(*table->gemm, random_floats(tokens * cols, random), cols);
        const auto got = multiply(*table->gemm, type, panels, rows, batch, 0, tokens);
        const double worst = worst_error(type, file, panels, rows, batch, got);
        if (worst > 1.0) {
          std::fprintf(stderr, "%s %s: %zu x %zu, %zu tokens\n", std::string(table->name).c_str(),
                       type_name(type), rows, cols, tokens);
        }
        CHECK(worst <= 1.0);
      }
    }
  }
}

TEST(wide_rows_match_float64_within_rounding) {
  Random random(2);
  for (WeightType type : kAllTypes) {
    for (size_t cols : {size_t{1536}, size_t{2048}, size_t{8192}}) {
      const size_t rows = 9, tokens = 5;
      const auto file = random_rows(type, rows, cols, random);
      const auto panels = packed(type, file, rows, cols);
      for (const KernelTable* table : runnable_tables()) {
        const Batch batch(*table->gemm, random_floats(tokens * cols, random), cols);
        const auto got = multiply(*table->gemm, type, panels, rows, batch, 0, tokens);
        CHECK(worst_error(type, file, panels, rows, batch, got) <= 1.0);
      }
    }
  }
}

// Rows whose codes are all maximal and whose scales are 1; in Q6_K every odd half has scale `odd`.
std::vector<std::byte> maximal_rows(WeightType type, size_t rows, size_t cols, int8_t odd) {
  std::vector<std::byte> file(rows * row_bytes(type, cols), std::byte{0xff});
  quant::visit_format(type, [&]<typename Format>() {
    for (size_t at = 0; at < file.size(); at += sizeof(Format)) {
      auto& block = *reinterpret_cast<Format*>(file.data() + at);
      if constexpr (requires { block.d; }) quant::store_u16(block.d, 0x3c00);
      if constexpr (requires { block.m; }) quant::store_u16(block.m, 0x3c00);
      if constexpr (requires { block.dmin; }) quant::store_u16(block.dmin, 0x3c00);
      if constexpr (Format::kType == WeightType::kQ8_0) {
        for (int8_t& q : block.qs) q = -128;
      }
      if constexpr (Format::kType == WeightType::kQ6_K) {
        for (size_t i = 0; i < 16; ++i) block.scales[i] = i % 2 == 0 ? 127 : odd;
      }
    }
  });
  return file;
}

// The bound has teeth: what it must not let pass.
TEST(bound_rejects_one_scale_off_by_one_ulp_and_one_lost_block) {
  Random random(3);
  const size_t cols = 256, rows = 8;
  for (WeightType type : kAllTypes) {
    if (block_elements(type) == 1) continue;
    const auto file = maximal_rows(type, rows, cols, 127);
    const auto panels = packed(type, file, rows, cols);
    std::vector<float> x(cols);
    for (float& value : x) value = 0.5f + static_cast<float>(random.uniform());
    for (const KernelTable* table : runnable_tables()) {
      const Batch batch(*table->gemm, x, cols);
      auto planted = panels;
      planted[0] ^= std::byte{1};  // row 0, first block: the last bit of D
      auto got = multiply(*table->gemm, type, planted, rows, batch, 0, 1);
      CHECK(worst_error(type, file, panels, rows, batch, got) > 1.0);
      planted = panels;
      const size_t values = quant::panel_layout(type, cols).values;
      const size_t block = quant::value_bytes(type, 32);
      std::fill_n(planted.begin() + static_cast<ptrdiff_t>(values + 3 * block), block,
                  std::byte{0});
      got = multiply(*table->gemm, type, planted, rows, batch, 0, 1);
      CHECK(worst_error(type, file, panels, rows, batch, got) > 1.0);
    }
  }
}

TEST(every_table_gives_the_bits_of_the_scalar_one) {
  Random random(4);
  const GemmKernels& scalar = *select_kernels(0, "scalar").gemm;
  for (WeightType type : kAllTypes) {
    for (size_t cols : widths(type)) {
      const size_t rows = 1 + random.below(40), tokens = 1 + random.below(11);
      const auto panels = packed(type, random_rows(type, rows, cols, random), rows, cols);
      const Batch batch(scalar, random_floats(tokens * cols, random), cols);
      const auto want = multiply(scalar, type, panels, rows, batch, 0, tokens);
      for (const KernelTable* table : runnable_tables()) {
        CHECK(same_bits(want, multiply(*table->gemm, type, panels, rows, batch, 0, tokens)));
      }
    }
  }
}

TEST(a_token_computes_the_same_in_any_company_and_lane) {
  Random random(5);
  for (WeightType type : kAllTypes) {
    const size_t cols = block_elements(type) == 256 ? 512 : 96;
    const size_t rows = 29, most = 67, stride = 32 + 3;
    const auto panels = packed(type, random_rows(type, rows, cols, random), rows, cols);
    const auto x = random_floats(most * cols, random);
    for (const KernelTable* table : runnable_tables()) {
      const Batch batch(*table->gemm, x, cols);
      const auto all = multiply(*table->gemm, type, panels, rows, batch, 0, most);
      const auto agrees = [&](size_t begin, size_t end) {
        const auto part = multiply(*table->gemm, type, panels, rows, batch, begin, end);
        return same_bits(part.data(), all.data() + begin * stride, part.size());
      };
      for (size_t n : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 64}) CHECK(agrees(0, n));
      for (size_t begin : {4, 8, 60, 64}) CHECK(agrees(begin, std::min(most, begin + 6)));
      for (size_t t : {1, 2, 3, 66}) {  // alone in lane 0
        const std::vector<float> own(x.begin() + static_cast<ptrdiff_t>(t * cols),
                                     x.begin() + static_cast<ptrdiff_t>((t + 1) * cols));
        const Batch alone(*table->gemm, own, cols);
        const auto out = multiply(*table->gemm, type, panels, rows, alone, 0, 1);
        CHECK(same_bits(out.data(), all.data() + t * stride, 32));
      }
    }
  }
}

TEST(a_panel_computes_the_same_in_any_company) {
  Random random(6);
  for (WeightType type : kAllTypes) {
    const size_t cols = 256, rows = 56, tokens = 6;
    const auto panels = packed(type, random_rows(type, rows, cols, random), rows, cols);
    const auto x = random_floats(tokens * cols, random);
    for (const KernelTable* table : runnable_tables()) {
      const Batch batch(*table->gemm, x, cols);
      for (size_t n : {size_t{1}, tokens}) {
        const auto all = multiply(*table->gemm, type, panels, rows, batch, 0, n);
        for (size_t first = 0; first < 7; ++first) {
          const std::vector<std::byte> rest(
              panels.begin() + static_cast<ptrdiff_t>(first * panel_bytes(type, cols)),
              panels.end());
          const size_t left = rows - first * kPanelRows;
          const auto part = multiply(*table->gemm, type, rest, left, batch, 0, n);
          for (size_t t = 0; t < n; ++t) {
            CHECK(same_bits(part.data() + t * (left + 3),
                            all.data() + t * (rows + 3) + first * kPanelRows, left));
          }
        }
      }
    }
  }
}

TEST(rows_past_the_end_are_zero_and_nothing_else_is_written) {
  Random random(7);
  for (WeightType type : kAllTypes) {
    const size_t cols = 256, rows = 11, tokens = 5;
    const auto panels = packed(type, random_rows(type, rows, cols, random), rows, cols);
    for (const KernelTable* table : runnable_tables()) {
      const Batch batch(*table->gemm, random_floats(tokens * cols, random), cols);
      const auto out = multiply(*table->gemm, type, panels, rows, batch, 0, tokens);
      for (size_t t = 0; t < tokens; ++t) {
        for (size_t r = rows; r < 16; ++r) CHECK_EQ(out[t * 19 + r], 0.0f);
        for (size_t r = 16; r < 19; ++r) CHECK_EQ(out[t * 19 + r], -7.0f);
      }
    }
  }
}

// Sums of int16 must not saturate: all codes maximal against activations all +127, all -127, and
// alternating by every period that a kernel could add up in one lane.
TEST(no_saturation_at_the_corners) {
  const size_t cols = 256, rows = 8;
  for (WeightType type : kAllTypes) {
    if (block_elements(type) == 1) continue;
    const auto file = maximal_rows(type, rows, cols, -128);
    const auto panels = packed(type, file, rows, cols);
    for (size_t period : {0, 1, 2, 4, 8, 16, 32}) {
      for (float sign : {1.0f, -1.0f}) {
        std::vector<float> x(cols);
        for (size_t k = 0; k < cols; ++k) {
          x[k] = period != 0 && k / period % 2 == 1 ? -sign : sign;
        }
        for (const KernelTable* table : runnable_tables()) {
          const Batch batch(*table->gemm, x, cols);
          const auto got = multiply(*table->gemm, type, panels, rows, batch, 0, 1);
          CHECK(worst_error(type, file, panels, rows, batch, got) <= 1.0);
        }
      }
    }
  }
}

TEST(quantisers_agree_across_tables_and_with_their_definition) {
  Random random(8);
  const GemmKernels& scalar = *select_kernels(0, "scalar").gemm;
  for (size_t cols : {32, 64, 96, 576}) {
    auto x = random_floats(cols, random);
    x[5] = 0.0f;
    for (size_t k = 0; k < 32; ++k) x[cols - 32 + k] = (static_cast<float>(k) - 15.5f) * 0.5f;
    x[cols - 1] = 127.0f;  // scale 1: halves round to even
    const Batch want(scalar, x, cols);
    for (const KernelTable* table : runnable_tables()) {
      const Batch got(*table->gemm, x, cols);
      const size_t blocks = cols / 32;
      for (size_t b = 0; b < blocks; ++b) {
        CHECK_EQ(std::memcmp(got.view().a8 + b * 128, want.view().a8 + b * 128, 32), 0);
        CHECK_EQ(got.view().a8_scale[4 * b], want.view().a8_scale[4 * b]);
        CHECK_EQ(got.view().a8_sum[4 * b], want.view().a8_sum[4 * b]);
        CHECK_EQ(got.view().a8_half_sum[8 * b], want.view().a8_half_sum[8 * b]);
        CHECK_EQ(got.view().a8_half_sum[8 * b + 1], want.view().a8_half_sum[8 * b + 1]);
      }
      CHECK_EQ(std::memcmp(got.view().a16, want.view().a16, cols * 4 * 2), 0);
      CHECK_EQ(got.view().a16_scale[0], want.view().a16_scale[0]);
      for (size_t k = 0; k < cols; ++k) {
        const double step = got.view().a8_scale[k / 32 * 4];
        CHECK_NEAR(got.seen(ActivationKind::kA8, 0, k), x[k], step * (0.5 + 1e-4));
        CHECK_NEAR(got.seen(ActivationKind::kA16, 0, k), x[k], got.view().a16_scale[0] * 0.51);
      }
      CHECK_EQ(int{got.view().a8[(blocks - 1) * 128 + 16]}, 0);  // 0.25 and 0.75 at scale 1
      CHECK_EQ(int{got.view().a8[(blocks - 1) * 128 + 18]}, 1);  // 1.25
    }
  }
}

TEST(halves_round_to_even) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;
  const float inputs[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
  const int wanted[] = {0, 2, 2, 0, -2, -2, 126};
  for (size_t i = 0; i < 7; ++i) x[1 + i] = inputs[i];
  for (const KernelTable* table : runnable_tables()) {
    const Batch batch(*table->gemm, x, 32);
    for (size_t i = 0; i < 7; ++i) CHECK_EQ(int{batch.view().a8[1 + i]}, wanted[i]);
  }
}

TEST(zero_tiny_and_non_finite_inputs_are_defined) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const KernelTable* table : runnable_tables()) {
    for (float tiny : {0.0f, -0.0f, 1e-45f, -1e-38f, 9e-31f}) {
      const Batch batch(*table->gemm, std::vector<float>(64, tiny), 64);
      CHECK_EQ(batch.view().a8_scale[0], 0.0f);
      CHECK_EQ(int{batch.view().a8[0]}, 0);
      CHECK_EQ(batch.view().a16_scale[0], 0.0f);
      CHECK_EQ(batch.view().a16[0], 0);
    }
    for (float large : {2e-30f, 3e38f}) {
      const Batch batch(*table->gemm, std::vector<float>(64, large), 64);
      CHECK_EQ(int{batch.view().a8[0]}, 127);
      CHECK_EQ(batch.view().a16[0], 32767);
    }
    for (float bad : {kNan, -kNan, kInf, -kInf}) {
      std::vector<float> x(64, 1.0f);
      x[40] = bad;
      const Batch batch(*table->gemm, x, 64);
      CHECK(std::isfinite(batch.view().a8_scale[0]));
      CHECK(std::isnan(batch.view().a8_scale[4]));
      CHECK(std::isnan(batch.view().a8_sum[4]));
      CHECK(std::isnan(batch.view().a16_scale[0]));
    }
  }
}

TEST(a_non_finite_token_spoils_itself_alone) {
  Random random(9);
  for (WeightType type : kAllTypes) {
    const size_t cols = 256, rows = 8, tokens = 5;
    const auto panels = packed(type, random_rows(type, rows, cols, random), rows, cols);
    auto x = random_floats(tokens * cols, random);
    for (const KernelTable* table : runnable_tables()) {
      const Batch clean(*table->gemm, x, cols);
      const auto want = multiply(*table->gemm, type, panels, rows, clean, 0, tokens);
      auto spoiled = x;
      spoiled[2 * cols + 100] = std::numeric_limits<float>::quiet_NaN();
      const Batch batch(*table->gemm, spoiled, cols);
      const auto got = multiply(*table->gemm, type, panels, rows, batch, 0, tokens);
      for (size_t i = 0; i < got.size(); ++i) {
        if (i / 11 == 2 && i % 11 < rows) {
          CHECK(std::isnan(got[i]));
        } else {
          CHECK_EQ(got[i], want[i]);
        }
      }
    }
  }
}

}  // namespace

CHECK_MAIN()
