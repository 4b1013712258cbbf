// SPDX-License-Identifier: Apache-2.0
// The last phases of the layer program: logits of the rows that want them, and the sampler.
#include <algorithm>
#include <bit>
#include <exception>

#include "decoder/forward.h"

namespace octavo {
namespace {

// NaN and infinity are all the numbers whose exponent is all ones. Plain integer code, so that the
// compiler may widen it.
bool all_finite(const float* x, size_t n) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(x[i]) & 0x7f800000u) == 0x7f800000u);
  }
  return bad == 0;
}

}  // namespace

// Rows go in slices of kLogitRows, so memory is bounded however many prompt positions are scored.
void Forward::logits(size_t thread_idx) noexcept {
  const size_t num_rows = input_->logit_rows.size();
  if (num_rows == 0) return;
  const size_t hidden = config_.hidden_dim;
  const Norms norms{.add_delta = true,
                    .post_norm = model_.layer(config_.layers.size() - 1).vector(Slot::kPostMlpNorm),
                    .norm = model_.top().vector(Slot::kOutputNorm),
                    .kinds = output_kinds_};
  const Share mine = stream_share(num_rows, thread_idx);
  for (size_t r = mine.begin; r < mine.end; ++r) {
    normalize_token(norms, input_->logit_rows[r].token, r, thread_idx);
  }
  stream_barrier(thread_idx);

  const Product output[] = {{&model_.output(), logits_, logit_stride_}};
  for (size_t begin = 0; begin < num_rows; begin += kLogitRows) {
    const size_t end = std::min(begin + kLogitRows, num_rows);
    multiply(output, stream(thread_idx).hidden.view(hidden), begin, end, thread_idx);
    pool_.barrier(thread_idx);
    for (size_t r = begin + thread_idx; r < end; r += pool_.team()) {
      const bool ok =
          draw(input_->logit_rows[r], logits_ + (r - begin) * logit_stride_, thread_idx);
      failed_[r] = ok ? 0 : 1;
    }
    if (end < num_rows) pool_.barrier(thread_idx);  // the next slice overwrites the logits
  }
}

// False when the row cannot be used: its logits are not finite, or memory ran out for its results.
bool Forward::draw(const LogitRow& row, float* logits, size_t thread_idx) noexcept {
  const VectorKernels& vector = *kernels_.vector;
  const size_t vocab = config_.vocab_size;
  if (config_.logit_scale != 1.0f) vector.scale(logits, config_.logit_scale, vocab);
  if (config_.logit_soft_cap != 0.0f) vector.soft_cap(logits, config_.logit_soft_cap, vocab);
  if (!all_finite(logits, vocab)) return false;
  const std::span<const float> values(logits, vocab);
  std::vector<TokenLogprob>& scratch = sampler_scratch_[thread_idx];
  try {
    if (row.scored != nullptr) {
      *row.scored =
          score(vector, values, row.target, std::max(0, row.sampling->num_logprobs), scratch);
    }
    if (!row.samples) return true;
    SampledToken token = sample(vector, values, *row.sampling, row.position, scratch);
    const bool ok = !token.failed;
    outcomes_[row.outcome_idx].sampled = std::move(token);
    return ok;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace octavo
