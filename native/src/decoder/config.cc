// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <stdexcept>
#include <string>

#include "octavo/decoder.h"

namespace octavo {
namespace {

constexpr size_t kHeadDimMax = 256;          // AttentionTile's own limit
constexpr size_t kDimMax = size_t{1} << 24;  // keeps every product of two sizes far from overflow

void check_count(const std::string& field, size_t value, size_t max) {
  if (value >= 1 && value <= max) return;
  throw std::invalid_argument(field + " must be in [1, " + std::to_string(max) + "], got " +
                              std::to_string(value));
}

void check_positive(const std::string& field, double value) {
  if (std::isfinite(value) && value > 0) return;
  throw std::invalid_argument(field + " must be finite and above 0, got " + std::to_string(value));
}

void check_cap(const std::string& field, double value) {
  if (value != 0) check_positive(field, value);
}

void check_layer(const DecoderConfig& config, size_t idx) {
  const LayerConfig& layer = config.layers[idx];
  const std::string prefix = "layers[" + std::to_string(idx) + "].";
  check_count(prefix + "num_heads", layer.num_heads, kDimMax);
  check_count(prefix + "num_kv_heads", layer.num_kv_heads, layer.num_heads);
  check_count(prefix + "head_dim", layer.head_dim, kHeadDimMax);
  check_count(prefix + "mlp_dim", layer.mlp_dim, kDimMax);
  check_positive(prefix + "attn_scale", layer.attn_scale);
  check_cap(prefix + "attn_soft_cap", layer.attn_soft_cap);
  if (layer.num_heads % layer.num_kv_heads != 0) {
    throw std::invalid_argument(prefix + "num_heads " + std::to_string(layer.num_heads) +
                                " must be a multiple of num_kv_heads " +
                                std::to_string(layer.num_kv_heads));
  }
  if (layer.head_dim % 8 != 0) {
    throw std::invalid_argument(prefix + "head_dim must be a multiple of 8, got " +
                                std::to_string(layer.head_dim));
  }
  if (layer.rope_idx >= config.ropes.size()) {
    throw std::invalid_argument(prefix + "rope_idx " + std::to_string(layer.rope_idx) +
                                " is past the " + std::to_string(config.ropes.size()) + " ropes");
  }
  const size_t num_pairs = config.ropes[layer.rope_idx].inv_freq.size();
  if (2 * num_pairs > layer.head_dim) {
    throw std::invalid_argument(prefix + "head_dim " + std::to_string(layer.head_dim) +
                                " is too small for " + std::to_string(num_pairs) + " rope pairs");
  }
}

}  // namespace

void check_config(const DecoderConfig& config) {
  check_count("hidden_dim", config.hidden_dim, kDimMax);
  check_count("vocab_size", config.vocab_size, kDimMax);
  check_count("context_length", config.context_length, INT32_MAX);
  check_count("the number of layers", config.layers.size(), 4096);
  check_positive("norm_eps", config.norm_eps);
  check_positive("embedding_scale", config.embedding_scale);
  check_positive("logit_scale", config.logit_scale);
  check_cap("logit_soft_cap", config.logit_soft_cap);
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    const std::string prefix = "ropes[" + std::to_string(i) + "].";
    check_positive(prefix + "magnitude", config.ropes[i].magnitude);
    for (double freq : config.ropes[i].inv_freq) check_positive(prefix + "inv_freq", freq);
  }
  for (size_t i = 0; i < config.layers.size(); ++i) check_layer(config, i);
}

std::string_view slot_name(Slot slot) {
  static constexpr std::string_view kNames[kNumSlots] = {
      "embedding", "output", "output_norm", "attn_norm",      "q",
      "k",         "v",      "q_bias",      "k_bias",         "v_bias",
      "q_norm",    "k_norm", "attn_output", "post_attn_norm", "mlp_norm",
      "gate",      "up",     "down",        "post_mlp_norm"};
  return kNames[static_cast<size_t>(slot)];
}

}  // namespace octavo
