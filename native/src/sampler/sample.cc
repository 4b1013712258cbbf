// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <stdexcept>
#include <string>

#include "octavo/sampler.h"
#include "sampler/draw.h"
#include "sampler/philox.h"
#include "sampler/sanitised_logits.h"
#include "sampler/shape.h"

namespace octavo {
namespace {

void require_logits(std::span<const float> logits) {
  if (logits.empty()) throw std::invalid_argument("logits: got an empty row, wanted a vocabulary");
}

// log softmax of a row: logprob(x) = (x - max) - log(sum of e^(x - max)).
class LogSoftmax {
 public:
  LogSoftmax(const VectorKernels& kernels, const SanitisedLogits& row) : max_(row.max(kernels)) {
    // float32 within a chunk (128 additions a lane: 1e-5 at worst), float64 across.
    double sum = 0.0;
    row.for_each_chunk([&](size_t, std::span<const float> chunk) {
      sum += kernels.sum_exp(chunk.data(), max_, chunk.size());
    });
    log_sum_ = std::log(sum);
  }
  float operator()(float logit) const {
    return static_cast<float>((static_cast<double>(logit) - max_) - log_sum_);
  }

 private:
  float max_;
  double log_sum_;
};

// 1 + how many ids are likelier. Two loops, each one comparison: NaN is never likelier.
int32_t rank_of(std::span<const float> logits, size_t id) {
  const float own = logits[id];
  const float logit = std::isnan(own) ? -INFINITY : own;
  int32_t rank = 1;
  for (size_t i = 0; i < id; ++i) rank += logits[i] >= logit;
  for (size_t i = id + 1; i < logits.size(); ++i) rank += logits[i] > logit;
  return rank;
}

void add_logprobs(const VectorKernels& kernels, std::span<const float> logits, size_t num_logprobs,
                  std::vector<TokenLogprob>& scratch, SampledToken& token) {
  const SanitisedLogits raw(logits, {});
  const LogSoftmax log_softmax(kernels, raw);
  token.logprob = log_softmax(sanitised(logits[token.token_id]));
  token.rank = rank_of(logits, token.token_id);
  if (num_logprobs == 0) return;
  raw.keep_top(kernels, num_logprobs, -INFINITY, scratch);
  token.top.reserve(scratch.size());
  for (const TokenLogprob& t : scratch) token.top.push_back({t.token_id, log_softmax(t.logprob)});
}

bool can_be_drawn(float logit) { return logit > -INFINITY; }  // false for NaN

// The draw itself; `bans` are ruled out, whatever their logits. The least likely id that could have
// been drawn comes along.
TokenLogprob draw_token(const VectorKernels& kernels, std::span<const float> logits,
                        std::span<const int32_t> bans, const SamplingSpec& spec, uint64_t position,
                        std::vector<TokenLogprob>& scratch, SampledToken& token) {
  const SanitisedLogits row(logits, bans);
  if (spec.is_greedy()) {
    token.token_id = static_cast<int32_t>(row.argmax(kernels));
    // With bans in force an id that may not be drawn can only come out when none may.
    token.failed = !can_be_drawn(bans.empty() ? logits[token.token_id] : row.max(kernels));
    return {};
  }
  const float max = row.max(kernels);
  token.failed = !can_be_drawn(max);
  if (token.failed) return {};
  const double u = uniform(spec.seed, spec.sample_idx, position);
  const Drawn drawn = draw(kernels, row, max, spec, u, scratch);
  token.token_id = drawn.token_id;
  return drawn.last;
}

// Logits of the distribution that was drawn from: what could not have been drawn is -inf. A greedy
// token has no such distribution; its logits stay as they are.
void process(const VectorKernels& kernels, const SamplingSpec& spec, const TokenLogprob& last,
             std::span<float> logits) {
  if (spec.is_greedy()) return;
  const float max = kernels.max(logits.data(), logits.size());
  const float inverse_temperature = 1.0f / spec.temperature;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool is_cut = likelier(last, {static_cast<int32_t>(i), logits[i]});
    logits[i] = is_cut ? -INFINITY : (logits[i] - max) * inverse_temperature;
  }
}

SampledToken sample_shaped(const VectorKernels& kernels, std::span<const float> logits,
                           const SamplingSpec& spec, const SamplingContext& context,
                           SamplerScratch& scratch) {
  SampledToken token;
  const std::span<float> shaped = shape(kernels, logits, spec, context, scratch);
  const TokenLogprob last =
      draw_token(kernels, shaped, {}, spec, context.position, scratch.candidates, token);
  if (token.failed || !spec.num_logprobs) return token;
  if (spec.has_processed_logprobs) {
    process(kernels, spec, last, shaped);
    logits = shaped;
  }
  add_logprobs(kernels, logits, *spec.num_logprobs, scratch.candidates, token);
  return token;
}

}  // namespace

SampledToken sample(const VectorKernels& kernels, std::span<const float> logits,
                    const SamplingSpec& spec, const SamplingContext& context,
                    SamplerScratch& scratch) {
  require_logits(logits);
  if (needs_shaping(spec, context)) return sample_shaped(kernels, logits, spec, context, scratch);
  const bool bans = context.position < spec.banned_until;
  SampledToken token;
  draw_token(kernels, logits, bans ? std::span(spec.banned_ids) : std::span<const int32_t>(), spec,
             context.position, scratch.candidates, token);
  if (!token.failed && spec.num_logprobs) {
    add_logprobs(kernels, logits, *spec.num_logprobs, scratch.candidates, token);
  }
  return token;
}

SampledToken score(const VectorKernels& kernels, std::span<const float> logits, int32_t token_id,
                   size_t num_logprobs, SamplerScratch& scratch) {
  require_logits(logits);
  if (token_id < 0 || static_cast<size_t>(token_id) >= logits.size()) {
    throw std::invalid_argument("token_id: got " + std::to_string(token_id) + ", wanted 0 to " +
                                std::to_string(logits.size() - 1));
  }
  SampledToken token;
  token.token_id = token_id;
  token.failed = !can_be_drawn(SanitisedLogits(logits, {}).max(kernels));
  if (!token.failed) add_logprobs(kernels, logits, num_logprobs, scratch.candidates, token);
  return token;
}

}  // namespace octavo
