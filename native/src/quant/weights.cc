// SPDX-License-Identifier: Apache-2.0
#include "octavo/weights.h"

#include "quant/formats.h"
#include "quant/panel_layout.h"

namespace octavo {

bool is_supported(WeightType type) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
    case WeightType::kQ5_0:
    case WeightType::kQ5_1:
    case WeightType::kQ8_0:
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
    case WeightType::kQ6_K:
    case WeightType::kBF16:
      return true;
  }
  return false;
}

ActivationKind activation_kind(WeightType type) {
  return quant::visit_format(type, []<typename Format>() {
    if (Format::kElements == 1) return ActivationKind::kF32;
    return Format::kType == WeightType::kQ8_0 ? ActivationKind::kA16 : ActivationKind::kA8;
  });
}

size_t block_elements(WeightType type) {
  return quant::visit_format(type, []<typename Format>() { return Format::kElements; });
}

size_t row_bytes(WeightType type, size_t cols) {
  const size_t elements = block_elements(type);
  if (cols % elements != 0) {
    throw std::invalid_argument(
        "a row of tensor type " + std::to_string(static_cast<uint32_t>(type)) + " has " +
        std::to_string(cols) + " columns, not a multiple of " + std::to_string(elements));
  }
  return quant::visit_format(
      type, [cols]<typename Format>() { return cols / Format::kElements * sizeof(Format); });
}

size_t panel_bytes(WeightType type, size_t cols) {
  row_bytes(type, cols);  // refuses what is no whole number of blocks
  return quant::panel_layout(type, cols).bytes;
}

size_t packed_bytes(WeightType type, size_t rows, size_t cols) {
  return (rows + kPanelRows - 1) / kPanelRows * panel_bytes(type, cols);
}

void dequantize_row(WeightType type, const std::byte* row, size_t cols, float* out) {
  row_bytes(type, cols);
  quant::visit_format(type, [&]<typename Format>() {
    const Format* blocks = reinterpret_cast<const Format*>(row);
    for (size_t i = 0; i < cols / Format::kElements; ++i) {
      blocks[i].dequantize(out + i * Format::kElements);
    }
  });
}

}  // namespace octavo
