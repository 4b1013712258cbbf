// SPDX-License-Identifier: Apache-2.0
// The layer program: every layer over every token of a step, in one region of the thread pool.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "decoder/attention_plan.h"
#include "decoder/model.h"
#include "decoder/rope.h"
#include "decoder/scratch.h"
#include "octavo/decoder.h"
#include "octavo/kernels.h"
#include "octavo/kv_pool.h"
#include "octavo/thread_pool.h"

namespace octavo {

// The tokens of one row: positions [start, start + num_tokens), tokens [first_token, ...) of the
// step.
struct TokenRun {
  const int32_t* table = nullptr;
  size_t start = 0;
  size_t num_tokens = 0;
  size_t first_token = 0;
};

struct StepToken {
  int32_t id = 0;
  size_t run_idx = 0;
  size_t position = 0;
};

// A sample that is wanted of a row of logits.
struct Draw {
  size_t outcome_idx = 0;
  const SamplingSpec* sampling = nullptr;
  SamplingContext context;
};

// A token whose logits are wanted.
struct LogitRow {
  size_t token = 0;
  size_t position = 0;  // where the token that they predict will stand
  Draw draw;            // its outcome and settings hold for a score too
  bool samples = false;
  SampledToken* scored = nullptr;  // null: nothing to score
  int32_t target = 0;
  size_t num_forks = 0;  // entries of StepInput::forks, which follow those of earlier rows
  size_t first_fork = 0;
};

struct StepInput {
  std::vector<TokenRun> runs;
  std::vector<StepToken> tokens;
  std::vector<LogitRow> logit_rows;
  std::vector<Draw> forks;  // of other rows, from the same logits
};

// Why a row of logits gave no token or no score.
enum class DrawFailure : uint8_t { kNone, kNotFinite, kNothingLeft, kNoMemory, kRefused };

constexpr size_t kLogitRows = 32;        // rows of logits that exist at once
constexpr size_t kMlpChunkTokens = 128;  // gate and up of a unit: 2 * 128 * 32 floats = 32 KiB

// Scratch floats that attention over one layer needs on each thread.
size_t attention_scratch_max(const LayerConfig& layer);

class Forward {
 public:
  // Keeps references to all but `ropes`' configuration. All working memory is reserved here.
  Forward(const DecoderConfig& config, const Model& model, const KernelTable& kernels,
          ThreadPool& pool, const KvPool& kv, size_t step_tokens_max);
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  // Runs the step; `outcomes` are written where logit rows point. Sizes and ids were checked
  // before.
  void run(const StepInput& input, std::span<RowOutcome> outcomes);

  size_t scratch_bytes() const;

 private:
  struct Product {  // out[token][row] = W x
    const PackedMatrix* matrix;
    float* out;
    size_t out_stride;
  };
  struct Cell {      // what the heads of one KV head have folded of one segment
    float* acc;      // [head][head_dim]
    float* max_sum;  // [head][2]
  };
  struct LayerKinds {
    ActivationKinds qkv, attn_output, mlp, down;
  };
  struct Norms {  // what is done to the residual stream between two groups of matrices
    bool add_delta = false;
    const float* post_norm = nullptr;  // of the delta, before it is added
    const float* norm = nullptr;
    ActivationKinds kinds;
  };

  // The residual stream and its normed form. A step of one tile of tokens is so small that every
  // thread computes its own copy, the same bits each, which costs less than the barrier that would
  // publish one; larger steps share the first.
  struct Stream {
    float* x = nullptr;      // [token][hidden]
    float* delta = nullptr;  // [hidden]: a delta while it is normed; always the thread's own
    ActivationBuffer hidden;
  };

  void reserve();
  void run_thread(size_t thread_idx) noexcept;
  void run_layer(size_t layer_idx, size_t thread_idx) noexcept;
  void embed(size_t thread_idx) noexcept;
  void normalize(const Norms& norms, size_t thread_idx) noexcept;
  void normalize_token(const Norms& norms, size_t token, size_t out_row,
                       size_t thread_idx) noexcept;
  void multiply(std::span<const Product> products, const Activations& x, size_t token_begin,
                size_t token_end, size_t thread_idx) noexcept;
  void multiply_chunk(std::span<const Product> products, const Activations& x, Share tokens,
                      size_t origin, size_t thread_idx) noexcept;
  void finish_qkv(size_t layer_idx, size_t thread_idx) noexcept;
  void turn_heads(const LayerConfig& layer, float* heads, size_t num_heads, const float* norm,
                  size_t position) noexcept;
  void attend(size_t layer_idx, size_t thread_idx) noexcept;
  void attend_tiles(size_t layer_idx, std::span<const QueryTile> tiles, std::atomic<size_t>& claims,
                    size_t thread_idx) noexcept;
  AttentionTile kernel_tile(size_t layer_idx, const QueryTile& query, size_t kv_head) const;
  void attend_whole(size_t layer_idx, const QueryTile& query, size_t kv_head,
                    size_t thread_idx) noexcept;
  void attend_own_keys(size_t layer_idx, const QueryTile& query, size_t kv_head,
                       size_t thread_idx) noexcept;
  void attend_shared(size_t layer_idx, const QueryTile& query, size_t kv_head,
                     size_t thread_idx) noexcept;
  Cell cell_of(const LayerConfig& layer, size_t run_idx, size_t segment, size_t kv_head) const;
  void merge_cells(size_t layer_idx, size_t run_idx, size_t kv_head) noexcept;
  void merge_splits(size_t layer_idx, size_t thread_idx) noexcept;
  void finish_heads(size_t layer_idx, size_t token, size_t col_begin, size_t num_cols) noexcept;
  void quantize_rows(ActivationBuffer& buffer, size_t cols, ActivationKinds kinds,
                     size_t thread_idx) noexcept;
  void gate_and_up(size_t layer_idx, size_t thread_idx) noexcept;
  void activate_unit(size_t layer_idx, Share tokens, Share rows, size_t thread_idx) noexcept;
  void logits(size_t thread_idx) noexcept;
  void draw_row(size_t row_idx, float* logits, size_t thread_idx) noexcept;
  DrawFailure draw(const Draw& draw, std::span<const float> logits, size_t thread_idx);
  DrawFailure score_target(const LogitRow& row, std::span<const float> logits, size_t thread_idx);
  void report_failures();
  static bool heads_align(const LayerConfig& layer);
  Share token_share(size_t num_tokens, size_t thread_idx) const;
  Share stream_share(size_t num_tokens, size_t thread_idx) const;
  Stream& stream(size_t thread_idx) { return streams_[is_small_ ? thread_idx : 0]; }
  void stream_barrier(size_t thread_idx) {
    if (!is_small_) pool_.barrier(thread_idx);
  }

  const DecoderConfig& config_;
  const Model& model_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  const KvPool& kv_;
  size_t tokens_max_;
  std::vector<RopeTable> ropes_;
  std::vector<LayerKinds> kinds_;
  ActivationKinds output_kinds_;

  // Strides of the float buffers: sizes rounded up to whole panels, since kernels write whole
  // panels.
  size_t hidden_stride_ = 0, q_stride_ = 0, kv_stride_ = 0, logit_stride_ = 0;
  Scratch scratch_;
  std::vector<Stream> streams_;  // per thread
  float* delta_ = nullptr;       // [token][hidden_stride]: what attention or MLP adds to it
  float *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
  float* logits_ = nullptr;  // [kLogitRows][logit_stride]
  float *cell_acc_ = nullptr, *cell_max_sum_ = nullptr;
  ActivationBuffer heads_, mlp_;
  std::vector<float*> attention_scratch_;  // per thread
  std::vector<float*> shared_acc_;         // per thread: the rows of one shared tile
  std::vector<float*> shared_max_sum_;
  std::vector<float*> mlp_scratch_;  // per thread: gate, up and product of one unit
  std::vector<SamplerScratch> sampler_scratch_;

  // Of the step in progress.
  const StepInput* input_ = nullptr;
  bool is_small_ = false;  // no more than one tile of tokens
  std::span<RowOutcome> outcomes_;
  AttentionPlan plan_;
  std::vector<DrawFailure> failed_;                // per logit row: the logits, or its own draw
  std::vector<DrawFailure> fork_failed_;           // per fork: its draw
  std::unique_ptr<std::atomic<size_t>[]> claims_;  // per layer: the next attention item
  std::unique_ptr<std::atomic<size_t>[]> shared_claims_;
};

}  // namespace octavo
