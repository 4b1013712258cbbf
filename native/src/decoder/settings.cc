// SPDX-License-Identifier: Apache-2.0
#include "decoder/settings.h"

#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>

namespace octavo {
namespace {

// The value as printf spells it: std::to_string would round a small one to 0.
std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// Conditions are written so that NaN is refused too.
void require(bool is_good, const std::string& field, const char* wanted, double got) {
  if (is_good) return;
  throw std::invalid_argument(field + " must be " + wanted + ", got " + shown(got));
}

void require_ids(const std::string& field, std::span<const int32_t> ids, size_t vocab_size) {
  for (const int32_t id : ids) {
    if (id >= 0 && static_cast<size_t>(id) < vocab_size) continue;
    throw std::invalid_argument(field + " must be in [0, " + std::to_string(vocab_size) +
                                "), got " + std::to_string(id));
  }
}

void require_probability(const std::string& field, float value) {
  require(value > 0 && value <= 1, field, "in (0, 1]", value);
}

}  // namespace

void check_sampling(const std::string& name, const SamplingSpec& spec, size_t vocab_size) {
  const auto finite = [&](const char* field, float value) {
    require(std::isfinite(value), name + field, "finite", value);
  };
  require(spec.temperature >= 0 && std::isfinite(spec.temperature), name + ".temperature",
          "finite and at least 0", spec.temperature);
  require_probability(name + ".top_p", spec.top_p);
  require_probability(name + ".typical_p", spec.typical_p);
  require(spec.min_p >= 0 && spec.min_p <= 1, name + ".min_p", "in [0, 1]", spec.min_p);
  require(spec.top_n_sigma >= 0 && std::isfinite(spec.top_n_sigma), name + ".top_n_sigma",
          "finite and at least 0", spec.top_n_sigma);
  require(spec.repetition_penalty > 0 && std::isfinite(spec.repetition_penalty),
          name + ".repetition_penalty", "finite and above 0", spec.repetition_penalty);
  finite(".presence_penalty", spec.presence_penalty);
  finite(".frequency_penalty", spec.frequency_penalty);
  if (spec.num_logprobs.value_or(0) > vocab_size) {
    throw std::invalid_argument(name + ".num_logprobs must be in [0, " +
                                std::to_string(vocab_size) + "], got " +
                                std::to_string(*spec.num_logprobs));
  }
  require_ids(name + ".banned_ids", spec.banned_ids, vocab_size);
  require_ids(name + ".allowed_ids", spec.allowed_ids, vocab_size);
  for (const auto& word : spec.bad_words) require_ids(name + ".bad_words", word, vocab_size);
  for (const auto& [id, bias] : spec.logit_bias) {
    require_ids(name + ".logit_bias", std::span(&id, 1), vocab_size);
    finite(".logit_bias", bias);
  }
}

}  // namespace octavo
