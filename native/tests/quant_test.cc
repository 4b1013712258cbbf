// SPDX-License-Identifier: Apache-2.0
// What each format means, and that packing loses nothing.
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include "check.h"
#include "matrices.h"
#include "octavo/weights.h"
#include "quant/panel_layout.h"

namespace {

using namespace octavo;
using namespace octavo::testing;

std::vector<std::byte> bytes_of(std::initializer_list<int> values, size_t size) {
  std::vector<std::byte> out(size, std::byte{0});
  size_t at = 0;
  for (int value : values) out.at(at++) = static_cast<std::byte>(value);
  return out;
}

std::vector<float> dequantized(WeightType type, const std::vector<std::byte>& row, size_t cols) {
  std::vector<float> out(cols);
  dequantize_row(type, row.data(), cols, out.data());
  return out;
}

// A second reading of the formats, one weight at a time and in double: byte offsets and bit
// positions written out from the format's description, nothing shared with src/quant.
class Reader {
 public:
  explicit Reader(const std::byte* block) : block_(block) {}

  int byte(size_t at) const { return static_cast<int>(block_[at]); }
  int signed_byte(size_t at) const { return byte(at) < 128 ? byte(at) : byte(at) - 256; }
  int bit(size_t at, size_t idx) const { return (byte(at + idx / 8) >> (idx % 8)) & 1; }
  int nibble(size_t at, bool high) const { return high ? byte(at) / 16 : byte(at) % 16; }

  double half(size_t at) const {
    const int bits = byte(at) + 256 * byte(at + 1);
    const int exponent = bits / 1024 % 32;
    const double mantissa = bits % 1024;
    const double value =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
    return bits >= 32768 ? -value : value;
  }

 private:
  const std::byte* block_;
};

struct Exact {  // a weight is product + offset
  double product;
  double offset;
};

Exact legacy_weight(WeightType type, const Reader& r, size_t k) {
  const size_t i = k % 16;
  const bool high = k >= 16;
  switch (type) {
    case WeightType::kQ4_0:
      return {r.half(0) * (r.nibble(2 + i, high) - 8), 0.0};
    case WeightType::kQ4_1:
      return {r.half(0) * r.nibble(4 + i, high), r.half(2)};
    case WeightType::kQ5_0:
      return {r.half(0) * (r.nibble(6 + i, high) + 16 * r.bit(2, k) - 16), 0.0};
    case WeightType::kQ5_1:
      return {r.half(0) * (r.nibble(8 + i, high) + 16 * r.bit(4, k)), r.half(2)};
    default:
      return {r.half(0) * r.signed_byte(2 + k), 0.0};
  }
}

// The s-th six-bit number of one kind (0 scale, 1 min) among bytes 4-15.
int six_bits(const Reader& r, size_t s, size_t kind) {
  if (s < 4) return r.byte(4 + 4 * kind + s) % 64;
  const int low = r.nibble(4 + 8 + s - 4, kind == 1);
  return low + 16 * (r.byte(4 + 4 * kind + s - 4) / 64);
}

Exact k_weight(WeightType type, const Reader& r, size_t k) {
  const size_t s = k / 32, i = k % 32;
  if (type == WeightType::kQ6_K) {
    const size_t half = k / 128, quarter = s % 4;
    const int low = r.nibble(64 * half + 32 * (quarter % 2) + i, quarter >= 2);
    const int top =
        r.bit(128 + 32 * half + i, 2 * quarter) + 2 * r.bit(128 + 32 * half + i, 2 * quarter + 1);
    return {r.half(208) * r.signed_byte(192 + k / 16) * (low + 16 * top - 32), 0.0};
  }
  const double d = r.half(0) * six_bits(r, s, 0), m = r.half(2) * six_bits(r, s, 1);
  if (type == WeightType::kQ4_K) return {d * r.nibble(16 + 32 * (s / 2) + i, s % 2 == 1), -m};
  const int q = r.nibble(48 + 32 * (s / 2) + i, s % 2 == 1) + 16 * r.bit(16 + i, s);
  return {d * q, -m};
}

TEST(known_blocks_of_32) {
  // d = 0.5 (half 0x3800); bytes are little-endian.
  auto w = dequantized(WeightType::kQ4_0, bytes_of({0x00, 0x38, 0x1f, 0x80}, 18), 32);
  CHECK_EQ(w[0], 3.5f);    // (15 - 8) / 2
  CHECK_EQ(w[16], -3.5f);  // (1 - 8) / 2
  CHECK_EQ(w[1], -4.0f);   // (0 - 8) / 2
  CHECK_EQ(w[17], 0.0f);   // (8 - 8) / 2
  w = dequantized(WeightType::kQ4_1, bytes_of({0x00, 0x38, 0x00, 0xbc, 0x1f}, 20), 32);
  CHECK_EQ(w[0], 6.5f);    // 15 / 2 - 1
  CHECK_EQ(w[16], -0.5f);  // 1 / 2 - 1
  CHECK_EQ(w[31], -1.0f);
  w = dequantized(WeightType::kQ5_0, bytes_of({0x00, 0x38, 0x01, 0x00, 0x00, 0x80, 0x1f}, 22), 32);
  CHECK_EQ(w[0], 7.5f);    // (15 + 16 - 16) / 2: bit 0 of the word
  CHECK_EQ(w[16], -7.5f);  // (1 - 16) / 2
  CHECK_EQ(w[31], 0.0f);   // (0 + 16 - 16) / 2: bit 31
  w = dequantized(WeightType::kQ5_1,
                  bytes_of({0x00, 0x38, 0x00, 0x3c, 0x00, 0x00, 0x01, 0x00, 0x1f}, 24), 32);
  CHECK_EQ(w[0], 8.5f);   // 15 / 2 + 1
  CHECK_EQ(w[16], 9.5f);  // (1 + 16) / 2 + 1: bit 16
  w = dequantized(WeightType::kQ8_0, bytes_of({0x00, 0x38, 0x80, 0x7f, 0xff}, 34), 32);
  CHECK_EQ(w[0], -64.0f);
  CHECK_EQ(w[1], 63.5f);
  CHECK_EQ(w[2], -0.5f);
}

TEST(known_blocks_of_256) {
  auto row = bytes_of({0x00, 0x3c, 0x00, 0x38}, 144);  // d = 1, dmin = 0.5
  row[4] = std::byte{0x43};                            // scale 0 = 3; scale 4 has top bits 1
  row[8] = std::byte{0x82};                            // min 0 = 2; min 4 has top bits 2
  row[12] = std::byte{0x51};                           // scale 4 = 1 + 16, min 4 = 5 + 32
  row[16] = std::byte{0x0f};                           // element 0: 15
  row[80] = std::byte{0x02};                           // element 128: 2
  auto w = dequantized(WeightType::kQ4_K, row, 256);
  CHECK_EQ(w[0], 44.0f);    // 3 * 15 - 0.5 * 2
  CHECK_EQ(w[128], 15.5f);  // 17 * 2 - 0.5 * 37
  row = bytes_of({0x00, 0x3c, 0x00, 0x38}, 176);
  row[4] = std::byte{3};
  row[5] = std::byte{1};
  row[16] = std::byte{0x03};  // element 0 of sub-blocks 0 and 1: fifth bit
  row[48] = std::byte{0x2f};
  w = dequantized(WeightType::kQ5_K, row, 256);
  CHECK_EQ(w[0], 93.0f);   // 3 * 31
  CHECK_EQ(w[32], 18.0f);  // 1 * (2 + 16)
  row = bytes_of({0x5f}, 210);
  row[128] = std::byte{0x31};  // elements 0 and 64: top bits 1 and 3
  row[192] = std::byte{2};
  row[196] = std::byte{0xff};  // scale of elements 64-79: -1
  row[209] = std::byte{0x3c};
  w = dequantized(WeightType::kQ6_K, row, 256);
  CHECK_EQ(w[0], -2.0f);    // 2 * (15 + 16 - 32)
  CHECK_EQ(w[1], -64.0f);   // 2 * (0 - 32)
  CHECK_EQ(w[64], -21.0f);  // -1 * (5 + 48 - 32)
}

TEST(known_plain_values) {
  CHECK_EQ(dequantized(WeightType::kF16, bytes_of({0x00, 0xc0}, 2), 1)[0], -2.0f);
  CHECK_EQ(dequantized(WeightType::kF16, bytes_of({0x01, 0x00}, 2), 1)[0], 0x1p-24f);
  CHECK_EQ(dequantized(WeightType::kF16, bytes_of({0xff, 0x7b}, 2), 1)[0], 65504.0f);
  CHECK_EQ(dequantized(WeightType::kF16, bytes_of({0x00, 0x7c}, 2), 1)[0],
           std::numeric_limits<float>::infinity());
  CHECK(std::isnan(dequantized(WeightType::kF16, bytes_of({0x01, 0x7c}, 2), 1)[0]));
  CHECK_EQ(dequantized(WeightType::kBF16, bytes_of({0x80, 0xbf}, 2), 1)[0], -1.0f);
  CHECK_EQ(dequantized(WeightType::kF32, bytes_of({0, 0, 0x20, 0x41}, 4), 1)[0], 10.0f);
}

TEST(every_half_decodes) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) == 0x7c00) continue;
    const auto half = bytes_of({static_cast<int>(bits & 0xff), static_cast<int>(bits >> 8)}, 2);
    CHECK_EQ(double{quant::half_to_float(static_cast<uint16_t>(bits))},
             Reader(half.data()).half(0));
  }
}

// Scale times scale and scale times code are exact in float32 (11 + 8 bits), except d * scale *
// code with up to 11 + 6 + 5 or 11 + 7 + 6 bits, which still fit 24. So only the sum rounds, once;
// the bound leaves one more.
TEST(random_blocks_match_an_independent_reading) {
  Random random(1);
  for (WeightType type : kAllTypes) {
    const size_t elements = block_elements(type);
    if (elements == 1) continue;
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto row = random_rows(type, 1, elements, random);
      const auto w = dequantized(type, row, elements);
      const Reader reader(row.data());
      for (size_t k = 0; k < elements; ++k) {
        const Exact exact =
            elements == 32 ? legacy_weight(type, reader, k) : k_weight(type, reader, k);
        const double value = exact.product + exact.offset;
        CHECK_NEAR(double{w[k]}, value, 0x1p-24 * (std::fabs(exact.product) + std::fabs(value)));
      }
    }
  }
}

TEST(unpacking_gives_the_bits_of_dequantising) {
  Random random(2);
  for (WeightType type : kAllTypes) {
    for (size_t blocks : {1, 2, 3, 18}) {
      const size_t cols = blocks * block_elements(type), rows = 19;
      const auto file = random_rows(type, rows, cols, random);
      const auto panels = packed(type, file, rows, cols);
      CHECK_EQ(panels.size(), 3 * panel_bytes(type, cols));
      std::vector<float> want(cols), got(cols);
      for (size_t r = 0; r < rows; ++r) {
        dequantize_row(type, file.data() + r * row_bytes(type, cols), cols, want.data());
        unpack_row(type, panels.data(), r, cols, got.data());
        CHECK_EQ(std::memcmp(want.data(), got.data(), cols * sizeof(float)), 0);
      }
      for (size_t r = rows; r < 24; ++r) {
        unpack_row(type, panels.data(), r, cols, got.data());
        for (float value : got) CHECK_EQ(value, 0.0f);
      }
    }
  }
}

TEST(ranges_pack_to_the_same_bytes_as_the_whole) {
  Random random(3);
  for (WeightType type : kAllTypes) {
    const size_t cols = 256, rows = 43;
    const auto file = random_rows(type, rows, cols, random);
    const auto whole = packed(type, file, rows, cols);
    std::vector<std::byte> parts(whole.size(), std::byte{0x55});
    for (size_t begin : {32, 0, 16}) {
      const size_t end = begin == 32 ? rows : begin + 16;
      pack_rows(type, file.data(), begin, end, cols, parts.data());
    }
    CHECK(parts == whole);
  }
}

TEST(sizes_are_those_of_the_formats) {
  CHECK_EQ(row_bytes(WeightType::kQ4_1, 576), size_t{360});
  CHECK_EQ(row_bytes(WeightType::kQ6_K, 2048), size_t{1680});
  CHECK_EQ(row_bytes(WeightType::kF16, 7), size_t{14});
  CHECK_EQ(panel_bytes(WeightType::kQ4_1, 576), size_t{8 * 360});
  CHECK_EQ(packed_bytes(WeightType::kQ4_1, 9, 576), size_t{2 * 8 * 360});
  for (WeightType type : kAllTypes) {
    CHECK(is_supported(type));
    CHECK_EQ(panel_bytes(type, 1024) % 64, size_t{0});
    quant::visit_format(type, [&]<typename Format>() {
      CHECK_EQ(Format::kBitsPerWeight * Format::kElements, 8.0 * sizeof(Format));
      // A panel may cost at most 3.2 % more than the file (Q4_K: its six-bit scales become bytes)
      // and the padding of two regions to cache lines.
      CHECK(panel_bytes(type, 1024) <= 8.0 * row_bytes(type, 1024) * 1.032 + 128);
    });
  }
}

TEST(what_cannot_be_is_refused) {
  const auto unknown = static_cast<WeightType>(9);
  CHECK(!is_supported(unknown));
  CHECK_THROWS(row_bytes(unknown, 32), std::invalid_argument);
  CHECK_THROWS(row_bytes(WeightType::kQ4_1, 33), std::invalid_argument);
  CHECK_THROWS(panel_bytes(WeightType::kQ4_K, 576), std::invalid_argument);
  CHECK_THROWS(pack_rows(WeightType::kF32, nullptr, 4, 8, 1, nullptr), std::invalid_argument);
}

}  // namespace

CHECK_MAIN()
