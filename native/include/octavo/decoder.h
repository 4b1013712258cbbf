// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer: its weights, its KV memory, its rows, and one call per step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/sampler.h"
#include "octavo/weights.h"

namespace octavo {

enum class RopePairing : uint8_t { kInterleaved, kHalves };
enum class MlpActivation : uint8_t { kSilu, kGeluTanh };

struct RopeConfig {
  RopePairing pairing = RopePairing::kHalves;
  std::vector<double> inv_freq;  // radians per position, one per pair of dims
  double magnitude = 1.0;        // multiplies cos and sin
};

struct LayerConfig {
  size_t num_heads = 0;
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
  size_t mlp_dim = 0;
  MlpActivation activation = MlpActivation::kSilu;
  size_t rope_idx = 0;
  float attn_scale = 1.0f;
  size_t window = 0;           // 0: every earlier position
  float attn_soft_cap = 0.0f;  // 0: none
  bool has_qk_norm = false;
  bool has_post_norms = false;
  bool has_qkv_bias = false;

  size_t q_dim() const { return num_heads * head_dim; }
  size_t kv_dim() const { return num_kv_heads * head_dim; }
};

struct DecoderConfig {
  size_t hidden_dim = 0;
  size_t vocab_size = 0;
  size_t context_length = 0;
  float norm_eps = 1e-6f;
  std::vector<LayerConfig> layers;
  std::vector<RopeConfig> ropes;
  float embedding_scale = 1.0f;
  float logit_scale = 1.0f;
  float logit_soft_cap = 0.0f;  // 0: none
  bool tied_output = false;
};

// Throws std::invalid_argument, naming the field, unless the layer program can run `config`.
void check_config(const DecoderConfig& config);

// Where a tensor goes. The first three belong to the model, the others to one layer.
enum class Slot : uint8_t {
  kEmbedding,
  kOutput,
  kOutputNorm,
  kAttnNorm,
  kQ,
  kK,
  kV,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,
  kAttnOutput,
  kPostAttnNorm,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kPostMlpNorm,
};
constexpr size_t kNumSlots = 19;
std::string_view slot_name(Slot slot);  // "attn_norm"

// A row may begin with `num_computed` tokens that lie in `blocks` already, or will once this batch
// has been applied. `history` and `num_prompt` as in Python's types/step.py.
struct RowOpen {
  size_t row = 0;
  SamplingSpec sampling;
  size_t num_computed = 0;
  std::vector<int32_t> blocks;
  std::vector<int32_t> history;
  size_t num_prompt = 0;
  std::optional<std::string> refusal = {};  // why the caller could not even spell the settings
};

// One block between the pool and the swap tier: ids of where it is read and where it is written.
struct SwapMove {
  int32_t src = 0, dst = 0;
};

struct BlockCopy {
  int32_t src = 0, dst = 0;
  size_t num_tokens = 0;
};

// An entry of a row's block table, replaced before the row computes.
struct Replacement {
  size_t table_idx = 0;
  int32_t block = 0;
};

// The tokens of one row, as RowWork in Python's types/step.py. The lists are pieces of Batch's
// arrays, in the order of the work.
struct RowWork {
  size_t row = 0;
  size_t start = 0;
  size_t num_tokens = 0;
  size_t num_token_ids = 0;  // num_tokens, or 0: continue from the row's own last sampled token
  size_t num_new_blocks = 0;
  size_t num_targets = 0;
  bool samples = false;
  size_t num_replaced = 0;
  std::optional<size_t> logits_of = {};  // a row of this batch: sample from its logits
  size_t num_allowed_bytes = 0;          // 0: every id may be sampled
};

struct Batch {
  std::vector<size_t> closed;
  std::vector<RowOpen> opened;
  std::vector<SwapMove> swap_ins;   // src in the swap tier, dst in the pool
  std::vector<SwapMove> swap_outs;  // src in the pool, dst in the swap tier
  std::vector<BlockCopy> copies;
  std::vector<RowWork> work;
  std::vector<int32_t> token_ids;
  std::vector<int32_t> new_blocks;
  std::vector<int32_t> targets;
  std::vector<Replacement> replaced;
  std::vector<uint8_t> allowed;  // bit masks, of whole bytes each
};

struct RowOutcome {
  std::optional<SampledToken> sampled;
  std::vector<SampledToken> scored;  // one per target
  std::string error;                 // not empty: this row failed, and only this row
};

struct MemoryReport {
  size_t weights_bytes = 0;  // packed matrices and vectors
  size_t kv_bytes = 0;       // reserved for the pool; committed as blocks are first written
  size_t kv_bytes_per_block = 0;
  size_t scratch_bytes = 0;  // reserved for activations, logits and rotation tables
  size_t swap_bytes = 0;     // size of the swap tier, in memory or in a file
};

// What swapping has cost since the tier was made.
struct SwapTotals {
  size_t blocks_in = 0, blocks_out = 0;
  double seconds = 0;
};

// Life: load_* until every slot is full, finish_loading, create_kv, then steps. A call out of order
// throws std::runtime_error. One thread at a time. Every number of a call is checked before any
// memory is written. Rows, blocks and positions are the caller's books: a bad one throws
// std::invalid_argument that names the field and leaves all as it was. Settings, histories, masks
// and token ids come from requests: a bad one fails its own row, by name, and the others go on.
//
// Results of a row depend on its tokens and sampling alone: not on the other rows, on how its
// tokens are spread over steps, on block ids or size, on who computed a block that it shares, or on
// the number of threads.
class Decoder {
 public:
  // `isa` names a kernel table; without it the best one that runs here is taken.
  // A waiting thread spins for `spin_us` microseconds before it parks.
  Decoder(DecoderConfig config, size_t num_threads, std::optional<std::string_view> isa,
          uint32_t spin_us = 50);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // `data` holds rows x cols in the file's format, row-major; it is packed on all threads and not
  // kept, so a mapped file is read once and no second copy of the model ever exists.
  void load_matrix(Slot slot, std::optional<size_t> layer_idx, WeightType type, size_t rows,
                   size_t cols, std::span<const std::byte> data);
  void load_vector(Slot slot, std::optional<size_t> layer_idx, std::span<const float> values);
  // Throws std::runtime_error that lists every empty slot.
  void finish_loading();

  size_t kv_bytes_per_block(size_t block_size) const;
  // block_size: tokens, a multiple of 8. step_tokens_max bounds the tokens of one batch; all
  // scratch memory is reserved here.
  void create_kv(size_t num_blocks, size_t block_size, size_t num_rows, size_t step_tokens_max);

  // Adds a swap tier of num_blocks: in memory, committed as it is used, or in a file without a name
  // in the folder `path`, which must exist. Needs create_kv first. Throws std::invalid_argument for
  // a bad size, std::runtime_error when the file cannot be had.
  void create_swap(size_t num_blocks, const std::optional<std::string>& path);

  // closed, opened, swap_ins, swap_outs, copies, then all layers over all tokens, then sampling.
  // Outcomes follow `work`. Throws std::runtime_error, before anything is computed, when the swap
  // file fails (a full disk); the caller then abandons the batch.
  std::vector<RowOutcome> step(const Batch& batch);

  // For a batch that threw: closes and opens its rows all the same, as far as they exist, and fails
  // every row that it opens or gives work to. Batches planned before the failure was seen may go on
  // naming these rows: they get errors until they are closed, and their neighbours never notice.
  void abandon(const Batch& batch);

  std::string_view isa() const;
  size_t num_threads() const;
  MemoryReport memory_report() const;
  SwapTotals swap_totals() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo
