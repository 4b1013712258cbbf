// SPDX-License-Identifier: Apache-2.0
// File order to panels and back. The layout is drawn in panel_layout.h.
#include <algorithm>

#include "octavo/weights.h"
#include "quant/formats.h"
#include "quant/panel_codes.h"
#include "quant/panel_layout.h"

namespace octavo {
namespace {

using quant::PanelLayout;

// The scales of one file block into lane `row`; `to` is the block's first scale byte.
template <typename Format>
void put_scales(const Format& block, size_t row, std::byte* to) {
  std::memcpy(to + 2 * row, block.d, 2);
  if constexpr (Format::kType == WeightType::kQ4_1 || Format::kType == WeightType::kQ5_1) {
    std::memcpy(to + 16 + 2 * row, block.m, 2);
  }
  if constexpr (Format::kType == WeightType::kQ4_K || Format::kType == WeightType::kQ5_K) {
    std::memcpy(to + 16 + 2 * row, block.dmin, 2);
    for (size_t sub = 0; sub < 8; ++sub) {
      to[32 + 16 * sub + row] = static_cast<std::byte>(quant::k_scale(block.scales, sub));
      to[32 + 16 * sub + 8 + row] = static_cast<std::byte>(quant::k_min(block.scales, sub));
    }
  }
  if constexpr (Format::kType == WeightType::kQ6_K) {
    for (size_t sub = 0; sub < 8; ++sub) {
      std::memcpy(to + 16 + 16 * sub + 2 * row, block.scales + 2 * sub, 2);
    }
  }
}

template <typename Format>
void pack_row(const std::byte* file_row, size_t row, size_t cols, const PanelLayout& at,
              std::byte* panel) {
  constexpr WeightType kType = Format::kType;
  const Format* blocks = reinterpret_cast<const Format*>(file_row);
  for (size_t i = 0; i < cols / Format::kElements; ++i) {
    if constexpr (Format::kElements == 1) {
      std::memcpy(panel + at.values + (8 * i + row) * sizeof(Format), blocks + i, sizeof(Format));
    } else {
      put_scales(blocks[i], row, panel + i * quant::scale_bytes(kType));
      if constexpr (kType == WeightType::kQ8_0) {
        std::byte* values = panel + at.values + 256 * i + 2 * row;
        for (size_t p = 0; p < 16; ++p) std::memcpy(values + 16 * p, blocks[i].qs + 2 * p, 2);
      } else {
        constexpr size_t kSubBlocks = Format::kElements / 32;
        for (size_t sub = 0; sub < kSubBlocks; ++sub) {
          uint8_t codes[32];
          blocks[i].codes(sub, codes);
          quant::put_codes(kType, at, i * kSubBlocks + sub, row, codes, panel);
        }
      }
    }
  }
}

// 32 weights of one row from their codes, by the operations of the format's own dequantize.
void decode(WeightType type, const quant::BlockScale& scale, const uint8_t* codes, float* out) {
  int offset = 0;
  if (type == WeightType::kQ4_0) offset = 8;
  if (type == WeightType::kQ5_0) offset = 16;
  if (type == WeightType::kQ6_K) offset = 32;
  for (size_t k = 0; k < 32; ++k) {
    const float product = scale.d[k / 16] * static_cast<float>(codes[k] - offset);
    out[k] = offset == 0 ? product + scale.m : product;
  }
}

template <typename Format>
void unpack_lane(const std::byte* panel, size_t row, size_t cols, const PanelLayout& at,
                 float* out) {
  constexpr WeightType kType = Format::kType;
  if constexpr (Format::kElements == 1) {
    for (size_t k = 0; k < cols; ++k) {
      Format element;
      std::memcpy(&element, panel + at.values + (8 * k + row) * sizeof(Format), sizeof(Format));
      out[k] = element.value();
    }
  } else if constexpr (kType == WeightType::kQ8_0) {
    for (size_t k = 0; k < cols; ++k) {
      const float d = quant::load_half(panel + k / 32 * 16 + 2 * row);
      const std::byte q = panel[at.values + k / 2 * 16 + 2 * row + k % 2];
      out[k] = d * static_cast<float>(static_cast<int8_t>(q));
    }
  } else {
    for (size_t block = 0; block < cols / 32; ++block) {
      uint8_t codes[32];
      quant::get_codes(kType, at, block, row, panel, codes);
      decode(kType, quant::get_scale(kType, block, row, panel), codes, out + 32 * block);
    }
  }
}

}  // namespace

void pack_rows(WeightType type, const std::byte* file_rows, size_t row_begin, size_t row_end,
               size_t cols, std::byte* panels) {
  if (row_begin % kPanelRows != 0) {
    throw std::invalid_argument("rows are packed from row " + std::to_string(row_begin) +
                                ", not a multiple of 8");
  }
  const size_t stride = row_bytes(type, cols);
  const PanelLayout at = quant::panel_layout(type, cols);
  quant::visit_format(type, [&]<typename Format>() {
    for (size_t first = row_begin; first < row_end; first += kPanelRows) {
      std::byte* panel = panels + first / kPanelRows * at.bytes;
      std::fill_n(panel, at.bytes, std::byte{0});
      const size_t num_rows = std::min(kPanelRows, row_end - first);
      for (size_t row = 0; row < num_rows; ++row) {
        pack_row<Format>(file_rows + (first + row) * stride, row, cols, at, panel);
      }
    }
  });
}

void unpack_row(WeightType type, const std::byte* panels, size_t row, size_t cols, float* out) {
  row_bytes(type, cols);
  const PanelLayout at = quant::panel_layout(type, cols);
  const std::byte* panel = panels + row / kPanelRows * at.bytes;
  quant::visit_format(type, [&]<typename Format>() {
    unpack_lane<Format>(panel, row % kPanelRows, cols, at, out);
  });
}

}  // namespace octavo
