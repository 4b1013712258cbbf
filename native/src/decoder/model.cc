// SPDX-License-Identifier: Apache-2.0
#include "decoder/model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace octavo {
namespace {

// Addresses, not memory: pages of an arena are committed as panels are written to them, so a large
// slab costs nothing and keeps the weights of a whole layer, in the order of use, in one run.
constexpr size_t kSlabBytes = size_t{1} << 28;

std::string describe(Slot slot, std::optional<size_t> layer_idx) {
  std::string name(slot_name(slot));
  return layer_idx ? "layers[" + std::to_string(*layer_idx) + "]." + name : name;
}

std::string shape_text(size_t rows, size_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

std::optional<SlotShape> top_shape(const DecoderConfig& config, Slot slot) {
  switch (slot) {
    case Slot::kOutput:
      if (config.tied_output) return std::nullopt;
      [[fallthrough]];
    case Slot::kEmbedding:
      return SlotShape{config.vocab_size, config.hidden_dim, true};
    case Slot::kOutputNorm:
      return SlotShape{1, config.hidden_dim, false};
    default:
      return std::nullopt;
  }
}

std::optional<SlotShape> vector_if(bool wanted, size_t cols) {
  return wanted ? std::optional(SlotShape{1, cols, false}) : std::nullopt;
}

std::optional<SlotShape> layer_shape(const LayerConfig& layer, size_t hidden, Slot slot) {
  switch (slot) {
    case Slot::kAttnNorm:
    case Slot::kMlpNorm:
      return SlotShape{1, hidden, false};
    case Slot::kPostAttnNorm:
    case Slot::kPostMlpNorm:
      return vector_if(layer.has_post_norms, hidden);
    case Slot::kQNorm:
    case Slot::kKNorm:
      return vector_if(layer.has_qk_norm, layer.head_dim);
    case Slot::kQBias:
      return vector_if(layer.has_qkv_bias, layer.q_dim());
    case Slot::kKBias:
    case Slot::kVBias:
      return vector_if(layer.has_qkv_bias, layer.kv_dim());
    case Slot::kQ:
      return SlotShape{layer.q_dim(), hidden, true};
    case Slot::kK:
    case Slot::kV:
      return SlotShape{layer.kv_dim(), hidden, true};
    case Slot::kAttnOutput:
      return SlotShape{hidden, layer.q_dim(), true};
    case Slot::kGate:
    case Slot::kUp:
      return SlotShape{layer.mlp_dim, hidden, true};
    case Slot::kDown:
      return SlotShape{hidden, layer.mlp_dim, true};
    default:
      return std::nullopt;
  }
}

void check_matrix(const std::string& name, const SlotShape& want, WeightType type, size_t rows,
                  size_t cols, size_t num_bytes) {
  if (rows != want.rows || cols != want.cols) {
    throw std::invalid_argument(name + " has shape " + shape_text(rows, cols) + ", wanted " +
                                shape_text(want.rows, want.cols));
  }
  if (!is_supported(type)) {
    throw std::invalid_argument(name + " has tensor type " +
                                std::to_string(static_cast<uint32_t>(type)) +
                                ", which octavo cannot run");
  }
  if (cols % block_elements(type) != 0) {
    throw std::invalid_argument(name + " has " + std::to_string(cols) +
                                " columns, wanted a multiple of " +
                                std::to_string(block_elements(type)));
  }
  const size_t want_bytes = rows * row_bytes(type, cols);
  if (num_bytes != want_bytes) {
    throw std::invalid_argument(name + " has " + std::to_string(num_bytes) + " bytes, wanted " +
                                std::to_string(want_bytes));
  }
}

}  // namespace

std::optional<SlotShape> slot_shape(const DecoderConfig& config, Slot slot,
                                    std::optional<size_t> layer_idx) {
  if (!layer_idx) return top_shape(config, slot);
  if (*layer_idx >= config.layers.size()) return std::nullopt;
  return layer_shape(config.layers[*layer_idx], config.hidden_dim, slot);
}

Model::Model(const DecoderConfig& config) : config_(config), layers_(config.layers.size()) {}

SlotSet& Model::target(Slot slot, std::optional<size_t> layer_idx) {
  const std::string name = describe(slot, layer_idx);
  if (!slot_shape(config_, slot, layer_idx)) {
    throw std::invalid_argument(name + " is not a tensor of this model");
  }
  SlotSet& set = layer_idx ? layers_[*layer_idx] : top_;
  if (set.holds(slot)) throw std::invalid_argument(name + " was loaded twice");
  return set;
}

std::byte* Model::take(size_t bytes) {
  constexpr size_t kAlign = 64;
  const size_t need = bytes + kAlign;
  if (arenas_.empty() || arenas_.back().capacity() - arenas_.back().used() < need) {
    arenas_.emplace_back(std::max(need, kSlabBytes));
  }
  return arenas_.back().take(bytes);
}

void Model::load_matrix(Slot slot, std::optional<size_t> layer_idx, WeightType type, size_t rows,
                        size_t cols, std::span<const std::byte> data, ThreadPool& pool) {
  SlotSet& set = target(slot, layer_idx);
  const std::string name = describe(slot, layer_idx);
  const SlotShape want = *slot_shape(config_, slot, layer_idx);
  if (!want.is_matrix) throw std::invalid_argument(name + " is a vector, not a matrix");
  check_matrix(name, want, type, rows, cols, data.size());

  std::byte* panels = take(packed_bytes(type, rows, cols));
  const size_t num_units = (rows + kUnitRows - 1) / kUnitRows;
  auto pack = [&](size_t thread_idx) noexcept {
    const Share units = pool.share(num_units, thread_idx);
    const size_t end = std::min(units.end * kUnitRows, rows);
    if (units.begin < units.end) {
      pack_rows(type, data.data(), units.begin * kUnitRows, end, cols, panels);
    }
  };
  pool.run(pack);
  set.matrices_[static_cast<size_t>(slot)] = PackedMatrix{type, rows, cols, panels};
}

void Model::load_vector(Slot slot, std::optional<size_t> layer_idx, std::span<const float> values) {
  SlotSet& set = target(slot, layer_idx);
  const std::string name = describe(slot, layer_idx);
  const SlotShape want = *slot_shape(config_, slot, layer_idx);
  if (want.is_matrix) throw std::invalid_argument(name + " is a matrix, not a vector");
  if (values.size() != want.cols) {
    throw std::invalid_argument(name + " has " + std::to_string(values.size()) +
                                " values, wanted " + std::to_string(want.cols));
  }
  auto* kept = reinterpret_cast<float*>(take(values.size_bytes()));
  std::memcpy(kept, values.data(), values.size_bytes());
  set.vectors_[static_cast<size_t>(slot)] = kept;
}

void Model::check_complete() const {
  std::string missing;
  auto check = [&](const SlotSet& set, std::optional<size_t> layer_idx) {
    for (size_t i = 0; i < kNumSlots; ++i) {
      const Slot slot = static_cast<Slot>(i);
      if (!slot_shape(config_, slot, layer_idx) || set.holds(slot)) continue;
      missing += (missing.empty() ? "" : ", ") + describe(slot, layer_idx);
    }
  };
  check(top_, std::nullopt);
  for (size_t i = 0; i < layers_.size(); ++i) check(layers_[i], i);
  if (!missing.empty()) throw std::runtime_error("tensors are missing: " + missing);
}

size_t Model::bytes() const {
  size_t total = 0;
  for (const Arena& arena : arenas_) total += arena.used();
  return total;
}

}  // namespace octavo
