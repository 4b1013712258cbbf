// SPDX-License-Identifier: Apache-2.0
// The last phases of the layer program: logits of the rows that want them, and the sampler.
#include <algorithm>
#include <bit>
#include <exception>
#include <new>
#include <string>

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

std::string describe(DrawFailure failure, size_t position) {
  switch (failure) {
    case DrawFailure::kNone:
      break;
    case DrawFailure::kNotFinite:
      return "the logits at position " + std::to_string(position - 1) + " are not finite";
    case DrawFailure::kNothingLeft:
      return "the settings leave no token for position " + std::to_string(position);
    case DrawFailure::kNoMemory:
      return "out of memory for the token at position " + std::to_string(position);
    case DrawFailure::kRefused:
      return "the sampler refuses what it was given for position " + std::to_string(position);
  }
  return {};
}

// What the sampler throws, as a reason.
template <class F>
DrawFailure guarded(F f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return DrawFailure::kNoMemory;
  } catch (const std::exception&) {
    return DrawFailure::kRefused;
  }
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
  const auto outcome = [&](auto f) { return ok ? guarded(f) : DrawFailure::kNotFinite; };
  failed_[row_idx] = outcome([&] {
    const DrawFailure failure = score_target(row, values, thread_idx);
    return failure != DrawFailure::kNone || !row.samples ? failure
                                                         : draw(row.draw, values, thread_idx);
  });
  for (size_t i = row.first_fork; i < row.first_fork + row.num_forks; ++i) {
    fork_failed_[i] = outcome([&] { return draw(input_->forks[i], values, thread_idx); });
  }
}

DrawFailure Forward::score_target(const LogitRow& row, std::span<const float> logits,
                                  size_t thread_idx) {
  if (row.scored == nullptr) return DrawFailure::kNone;
  *row.scored = score(*kernels_.vector, logits, row.target,
                      row.draw.sampling->num_logprobs.value_or(0), sampler_scratch_[thread_idx]);
  return DrawFailure::kNone;
}

DrawFailure Forward::draw(const Draw& draw, std::span<const float> logits, size_t thread_idx) {
  SampledToken token =
      sample(*kernels_.vector, logits, *draw.sampling, draw.context, sampler_scratch_[thread_idx]);
  if (token.failed) return DrawFailure::kNothingLeft;  // the logits are finite, so it is the draw's
  outcomes_[draw.outcome_idx].sampled = std::move(token);
  return DrawFailure::kNone;
}

// An outcome's rows of logits may have been any thread's, so its error is written when all are
// done.
void Forward::report_failures() {
  const auto report = [&](const Draw& draw, DrawFailure failure, size_t position) {
    if (failure == DrawFailure::kNone) return;
    outcomes_[draw.outcome_idx].error = describe(failure, position);
  };
  for (size_t i = 0; i < failed_.size(); ++i) {
    const LogitRow& row = input_->logit_rows[i];
    report(row.draw, failed_[i], row.position);
    for (size_t f = row.first_fork; f < row.first_fork + row.num_forks; ++f) {
      report(input_->forks[f], fork_failed_[f], row.position);
    }
  }
}

}  // namespace octavo
