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
      draw_row(r, logits_ + (r - begin) * logit_stride_, thread_idx);
    }
    if (end < num_rows) pool_.barrier(thread_idx);  // the next slice overwrites the logits
  }
}

// All that is wanted of one row of logits: a score, a sample, and the samples of its forks.
void Forward::draw_row(size_t row_idx, float* logits, size_t thread_idx) noexcept {
  const LogitRow& row = input_->logit_rows[row_idx];
  const VectorKernels& vector = *kernels_.vector;
  const size_t vocab = config_.vocab_size;
  if (config_.logit_scale != 1.0f) vector.scale(logits, config_.logit_scale, vocab);
  if (config_.logit_soft_cap != 0.0f) vector.soft_cap(logits, config_.logit_soft_cap, vocab);
  const bool ok = all_finite(logits, vocab);
  const std::span<const float> values(logits, vocab);
  failed_[row_idx] = ok && draw(row, values, thread_idx) ? 0 : 1;
  for (size_t i = row.first_fork; i < row.first_fork + row.num_forks; ++i) {
    const Fork& fork = input_->forks[i];
    const bool drew =
        ok && draw_sample(fork.outcome_idx, values, *fork.sampling, row.position, thread_idx);
    fork_failed_[i] = drew ? 0 : 1;
  }
}

// False when memory ran out for the result.
bool Forward::draw(const LogitRow& row, std::span<const float> logits, size_t thread_idx) noexcept {
  try {
    if (row.scored != nullptr) {
      *row.scored = score(*kernels_.vector, logits, row.target,
                          std::max(0, row.sampling->num_logprobs), sampler_scratch_[thread_idx]);
    }
  } catch (const std::exception&) {
    return false;
  }
  return !row.samples ||
         draw_sample(row.outcome_idx, logits, *row.sampling, row.position, thread_idx);
}

// False when nothing can be drawn, or memory ran out for the result.
bool Forward::draw_sample(size_t outcome_idx, std::span<const float> logits,
                          const SamplingSpec& sampling, size_t position,
                          size_t thread_idx) noexcept {
  try {
    SampledToken token =
        sample(*kernels_.vector, logits, sampling, position, sampler_scratch_[thread_idx]);
    const bool ok = !token.failed;
    outcomes_[outcome_idx].sampled = std::move(token);
    return ok;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace octavo
