// SPDX-License-Identifier: Apache-2.0
// Weight matrices: the types a GGUF file may hold, and the panels that kernels read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace octavo {

// Values are GGUF's own tensor type numbers, so a file's number needs no table.
enum class WeightType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

// How a matrix wants its input: as it is, in 8 bits with a scale per block of 32, or in 16 bits
// with a scale per token.
enum class ActivationKind : uint8_t { kF32, kA8, kA16 };

constexpr size_t kPanelRows = 8;  // output rows interleaved in one panel, one per SIMD lane
constexpr size_t kTokenTile = 4;  // tokens interleaved in one activation tile
constexpr size_t kUnitRows = 32;  // rows that one thread takes at a time: 4 panels

bool is_supported(WeightType type);
ActivationKind activation_kind(WeightType type);
size_t block_elements(WeightType type);  // 1, 32 or 256 columns
// Of one row in the file, of one packed panel of 8 rows, and of ceil(rows / 8) panels. Throw
// std::invalid_argument unless cols is a multiple of block_elements.
size_t row_bytes(WeightType type, size_t cols);
size_t panel_bytes(WeightType type, size_t cols);
size_t packed_bytes(WeightType type, size_t rows, size_t cols);

// File rows to float32, one row at a time: the plain definition of each format, the oracle of the
// tests.
void dequantize_row(WeightType type, const std::byte* row, size_t cols, float* out);

// Packs rows [row_begin, row_end) of a file-order matrix into `panels`; both pointers are to row 0,
// row_begin is a multiple of 8, and rows from row_end to the end of its panel become zero. Threads
// may pack disjoint ranges that end on multiples of 8. src/quant/panel_layout.h draws a panel.
void pack_rows(WeightType type, const std::byte* file_rows, size_t row_begin, size_t row_end,
               size_t cols, std::byte* panels);

// One row out of the panels, exactly what dequantize_row gave: the embedding lookup.
void unpack_row(WeightType type, const std::byte* panels, size_t row, size_t cols, float* out);

// A packed matrix; owns nothing. rows may be any number, the last panel is zero-padded.
struct PackedMatrix {
  WeightType type = WeightType::kF32;
  size_t rows = 0;
  size_t cols = 0;
  const std::byte* panels = nullptr;

  size_t num_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  const std::byte* panel(size_t idx) const { return panels + idx * panel_bytes(type, cols); }
};

}  // namespace octavo
