// SPDX-License-Identifier: Apache-2.0
#include "decoder/forward.h"

#include <algorithm>

namespace octavo {
namespace {

constexpr size_t kPanelsPerUnit = kUnitRows / kPanelRows;

// Half of a 512 KiB second-level cache for the activations of a chunk; the rest is left to the
// panels that stream past them.
constexpr size_t kChunkBytes = 256 * 1024;

// Cells of attention beside those that splitting one run per thread twice needs: 256 sequences of
// 2,000 tokens that share a prefix. Memory is committed as it is used.
constexpr size_t kSharedCells = 2048;

size_t whole_panels(size_t rows) { return (rows + kPanelRows - 1) / kPanelRows * kPanelRows; }

size_t least_kv_heads(const DecoderConfig& config) {
  size_t least = SIZE_MAX;
  for (const LayerConfig& layer : config.layers) least = std::min(least, layer.num_kv_heads);
  return least;
}

size_t widest_window(const DecoderConfig& config) {
  size_t widest = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window == 0) return 0;
    widest = std::max(widest, layer.window);
  }
  return widest;
}

size_t cells_max(const DecoderConfig& config, size_t num_threads) {
  return kSharedCells + 2 * num_threads * (config.context_length / kSegmentTokens + 1);
}

size_t activation_bytes(WeightType type, size_t cols) {
  switch (activation_kind(type)) {
    case ActivationKind::kA8:
      return cols + cols / 32 * 12;  // q, scale, sum and half sums
    case ActivationKind::kA16:
      return cols * 2;
    default:
      return cols * 4;
  }
}

}  // namespace

Forward::Forward(const DecoderConfig& config, const Model& model, const KernelTable& kernels,
                 ThreadPool& pool, const KvPool& kv, size_t step_tokens_max)
    : config_(config),
      model_(model),
      kernels_(kernels),
      pool_(pool),
      kv_(kv),
      tokens_max_((step_tokens_max + kTokenTile - 1) / kTokenTile * kTokenTile),
      plan_({.num_kv_heads = least_kv_heads(config),
             .block_size = kv.block_size(),
             .cells_max = cells_max(config, pool.size()),
             .window = widest_window(config)}),
      claims_(new std::atomic<size_t>[config.layers.size()]),
      shared_claims_(new std::atomic<size_t>[config.layers.size()]) {
  for (const RopeConfig& rope : config.ropes) ropes_.emplace_back(rope, config.context_length);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const SlotSet& set = model.layer(i);
    LayerKinds kinds;
    for (Slot slot : {Slot::kQ, Slot::kK, Slot::kV}) kinds.qkv.add(set.matrix(slot).type);
    for (Slot slot : {Slot::kGate, Slot::kUp}) kinds.mlp.add(set.matrix(slot).type);
    kinds.attn_output.add(set.matrix(Slot::kAttnOutput).type);
    kinds.down.add(set.matrix(Slot::kDown).type);
    kinds_.push_back(kinds);
  }
  output_kinds_.add(model.output().type);
  reserve();
}

void Forward::reserve() {
  size_t q_dim = 0, kv_dim = 0, mlp_dim = 0, attention_floats = 0, heads_max = 0, group_max = 0;
  for (const LayerConfig& layer : config_.layers) {
    q_dim = std::max(q_dim, layer.q_dim());
    kv_dim = std::max(kv_dim, layer.kv_dim());
    mlp_dim = std::max(mlp_dim, layer.mlp_dim);
    heads_max = std::max(heads_max, layer.num_heads);
    group_max = std::max(group_max, layer.num_heads / layer.num_kv_heads);
    attention_floats = std::max(attention_floats, attention_scratch_max(layer));
  }
  hidden_stride_ = whole_panels(config_.hidden_dim);
  q_stride_ = whole_panels(q_dim);
  kv_stride_ = whole_panels(kv_dim);
  logit_stride_ = whole_panels(config_.vocab_size);

  scratch_.want(delta_, tokens_max_ * hidden_stride_);
  scratch_.want(q_, tokens_max_ * q_stride_);
  scratch_.want(k_, tokens_max_ * kv_stride_);
  scratch_.want(v_, tokens_max_ * kv_stride_);
  streams_.resize(pool_.size());
  for (size_t i = 0; i < streams_.size(); ++i) {
    const size_t tokens = i == 0 ? tokens_max_ : kTokenTile;
    scratch_.want(streams_[i].x, tokens * config_.hidden_dim);
    scratch_.want(streams_[i].delta, config_.hidden_dim);
    streams_[i].hidden.reserve(scratch_, config_.hidden_dim, tokens);
  }
  heads_.reserve(scratch_, q_dim, tokens_max_);
  mlp_.reserve(scratch_, mlp_dim, tokens_max_);
  scratch_.want(logits_, std::min(kLogitRows, tokens_max_) * logit_stride_);
  const size_t num_cells = cells_max(config_, pool_.size());
  scratch_.want(cell_acc_, num_cells * q_dim);
  scratch_.want(cell_max_sum_, num_cells * heads_max * 2);
  attention_scratch_.resize(pool_.size());
  shared_acc_.resize(pool_.size());
  shared_max_sum_.resize(pool_.size());
  mlp_scratch_.resize(pool_.size());
  sampler_scratch_.resize(pool_.size());
  for (float*& floats : attention_scratch_) scratch_.want(floats, attention_floats);
  const size_t shared_tokens = AttentionPlan::kQueryTokensMax;
  for (float*& floats : shared_acc_) scratch_.want(floats, shared_tokens * q_dim);
  for (float*& floats : shared_max_sum_) scratch_.want(floats, shared_tokens * group_max * 2);
  for (float*& floats : mlp_scratch_) scratch_.want(floats, 3 * kMlpChunkTokens * kUnitRows);
  scratch_.commit();
}

size_t Forward::scratch_bytes() const {
  size_t total = scratch_.bytes();
  for (const RopeTable& rope : ropes_) total += rope.bytes();
  return total;
}

void Forward::run(const StepInput& input, std::span<RowOutcome> outcomes) {
  input_ = &input;
  outcomes_ = outcomes;
  is_small_ = input.tokens.size() <= kTokenTile;
  failed_.assign(input.logit_rows.size(), DrawFailure::kNone);
  fork_failed_.assign(input.forks.size(), DrawFailure::kNone);
  size_t num_positions = 0;
  for (const TokenRun& run : input.runs) {
    num_positions = std::max(num_positions, run.start + run.num_tokens);
  }
  for (RopeTable& rope : ropes_) rope.prepare(num_positions);
  plan_.make(input, pool_.size());
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    claims_[i].store(0);
    shared_claims_[i].store(0);
  }

  auto region = [this](size_t thread_idx) noexcept { run_thread(thread_idx); };
  pool_.run(region);
  report_failures();
}

void Forward::run_thread(size_t thread_idx) noexcept {
  embed(thread_idx);  // a thread normalises the tokens that it embedded: no barrier between
  for (size_t i = 0; i < config_.layers.size(); ++i) run_layer(i, thread_idx);
  logits(thread_idx);
}

// Phases of one layer, a barrier after each; 8, or 6 in a small step. Matrices are shared out by
// rows, everything else by tokens or by (query tile, KV head).
void Forward::run_layer(size_t layer_idx, size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const SlotSet& set = model_.layer(layer_idx);
  const SlotSet* before = layer_idx > 0 ? &model_.layer(layer_idx - 1) : nullptr;
  const LayerKinds& kinds = kinds_[layer_idx];
  const size_t num_tokens = input_->tokens.size();

  normalize({.add_delta = before != nullptr,
             .post_norm = before != nullptr ? before->vector(Slot::kPostMlpNorm) : nullptr,
             .norm = set.vector(Slot::kAttnNorm),
             .kinds = kinds.qkv},
            thread_idx);
  stream_barrier(thread_idx);
  const Product qkv[] = {{&set.matrix(Slot::kQ), q_, q_stride_},
                         {&set.matrix(Slot::kK), k_, kv_stride_},
                         {&set.matrix(Slot::kV), v_, kv_stride_}};
  multiply(qkv, stream(thread_idx).hidden.view(config_.hidden_dim), 0, num_tokens, thread_idx);
  pool_.barrier(thread_idx);
  finish_qkv(layer_idx, thread_idx);
  pool_.barrier(thread_idx);
  attend(layer_idx, thread_idx);
  pool_.barrier(thread_idx);
  const Product output[] = {{&set.matrix(Slot::kAttnOutput), delta_, hidden_stride_}};
  multiply(output, heads_.view(layer.q_dim()), 0, num_tokens, thread_idx);
  pool_.barrier(thread_idx);
  normalize({.add_delta = true,
             .post_norm = set.vector(Slot::kPostAttnNorm),
             .norm = set.vector(Slot::kMlpNorm),
             .kinds = kinds.mlp},
            thread_idx);
  stream_barrier(thread_idx);
  gate_and_up(layer_idx, thread_idx);
  pool_.barrier(thread_idx);
  const Product down[] = {{&set.matrix(Slot::kDown), delta_, hidden_stride_}};
  multiply(down, mlp_.view(layer.mlp_dim), 0, num_tokens, thread_idx);
  pool_.barrier(thread_idx);
}

// Whole tiles of 4 tokens, so that no two threads write to one tile of a quantised form.
Share Forward::token_share(size_t num_tokens, size_t thread_idx) const {
  const size_t num_tiles = (num_tokens + kTokenTile - 1) / kTokenTile;
  const Share tiles = pool_.share(num_tiles, thread_idx);
  return {std::min(tiles.begin * kTokenTile, num_tokens),
          std::min(tiles.end * kTokenTile, num_tokens)};
}

Share Forward::stream_share(size_t num_tokens, size_t thread_idx) const {
  return is_small_ ? Share{0, num_tokens} : token_share(num_tokens, thread_idx);
}

void Forward::embed(size_t thread_idx) noexcept {
  const PackedMatrix& table = model_.top().matrix(Slot::kEmbedding);
  const Share tokens = stream_share(input_->tokens.size(), thread_idx);
  for (size_t t = tokens.begin; t < tokens.end; ++t) {
    float* x = stream(thread_idx).x + t * config_.hidden_dim;
    unpack_row(table.type, table.panels, static_cast<size_t>(input_->tokens[t].id), table.cols, x);
    if (config_.embedding_scale != 1.0f) {
      kernels_.vector->scale(x, config_.embedding_scale, config_.hidden_dim);
    }
  }
}

void Forward::normalize(const Norms& norms, size_t thread_idx) noexcept {
  const Share tokens = stream_share(input_->tokens.size(), thread_idx);
  for (size_t t = tokens.begin; t < tokens.end; ++t) normalize_token(norms, t, t, thread_idx);
}

// Residual add, norm and quantisation of one token in one pass, while its row is in the first-level
// cache. Row `out_row` of the stream's normed form receives it.
void Forward::normalize_token(const Norms& norms, size_t token, size_t out_row,
                              size_t thread_idx) noexcept {
  const VectorKernels& vector = *kernels_.vector;
  const size_t hidden = config_.hidden_dim;
  Stream& to = stream(thread_idx);
  float* x = to.x + token * hidden;
  if (norms.add_delta) {
    const float* delta = delta_ + token * hidden_stride_;
    if (norms.post_norm != nullptr) {
      float* normed = streams_[thread_idx].delta;
      vector.rms_norm(delta, norms.post_norm, hidden, config_.norm_eps, normed);
      delta = normed;
    }
    vector.add(x, delta, hidden);
  }
  vector.rms_norm(x, norms.norm, hidden, config_.norm_eps, to.hidden.row(out_row, hidden));
  to.hidden.quantize(*kernels_.gemm, out_row, hidden, norms.kinds);
}

// Products that read the same input run as one phase: their units form one list, of which every
// thread takes a contiguous share. Tokens come in chunks whose activations stay in the second-level
// cache while the panels pass, so a panel is read from memory once per chunk.
void Forward::multiply(std::span<const Product> products, const Activations& x, size_t token_begin,
                       size_t token_end, size_t thread_idx) noexcept {
  size_t bytes = 1;
  for (const Product& product : products) {
    bytes = std::max(bytes, activation_bytes(product.matrix->type, product.matrix->cols));
  }
  const size_t chunk = std::max(kTokenTile, kChunkBytes / bytes / kTokenTile * kTokenTile);
  for (size_t t = token_begin; t < token_end; t += chunk) {
    multiply_chunk(products, x, {t, std::min(t + chunk, token_end)}, token_begin, thread_idx);
  }
}

// Row `token - origin` of each product's output receives `token`.
void Forward::multiply_chunk(std::span<const Product> products, const Activations& x, Share tokens,
                             size_t origin, size_t thread_idx) noexcept {
  size_t num_panels = 0;
  for (const Product& product : products) num_panels += product.matrix->num_panels();
  // With fewer than 8 units a thread, a share that is one unit too large costs more than 1/8 of the
  // phase.
  const bool fine = num_panels / kPanelsPerUnit < 8 * pool_.size();
  const size_t granule = fine ? 1 : kPanelsPerUnit;
  size_t num_granules = 0;
  for (const Product& p : products)
    num_granules += (p.matrix->num_panels() + granule - 1) / granule;
  const Share share = pool_.share(num_granules, thread_idx);

  size_t first = 0;  // granules before this product
  for (const Product& product : products) {
    const PackedMatrix& matrix = *product.matrix;
    const size_t count = (matrix.num_panels() + granule - 1) / granule;
    const size_t begin = std::max(share.begin, first);
    const size_t end = std::min(share.end, first + count);
    if (begin < end) {
      const size_t panel = (begin - first) * granule;
      const size_t panel_end = std::min((end - first) * granule, matrix.num_panels());
      gemm_for(*kernels_.gemm, matrix.type)(
          matrix.panel(panel), panel_end - panel, matrix.cols, x, tokens.begin, tokens.end,
          product.out + (tokens.begin - origin) * product.out_stride + panel * kPanelRows,
          product.out_stride);
    }
    first += count;
  }
}

void Forward::quantize_rows(ActivationBuffer& buffer, size_t cols, ActivationKinds kinds,
                            size_t thread_idx) noexcept {
  const Share tokens = token_share(input_->tokens.size(), thread_idx);
  for (size_t t = tokens.begin; t < tokens.end; ++t) {
    buffer.quantize(*kernels_.gemm, t, cols, kinds);
  }
}

// One thread owns the same 32 rows of gate and of up, so it can multiply them, and quantise the
// result in blocks of 32, before anyone else is done.
void Forward::gate_and_up(size_t layer_idx, size_t thread_idx) noexcept {
  const size_t mlp_dim = config_.layers[layer_idx].mlp_dim;
  const ActivationKinds kinds = kinds_[layer_idx].down;
  const size_t num_tokens = input_->tokens.size();
  const size_t num_units = (mlp_dim + kUnitRows - 1) / kUnitRows;
  const Share units = pool_.share(num_units, thread_idx);
  for (size_t t = 0; t < num_tokens; t += kMlpChunkTokens) {
    const Share tokens = {t, std::min(t + kMlpChunkTokens, num_tokens)};
    for (size_t unit = units.begin; unit < units.end; ++unit) {
      const Share rows = {unit * kUnitRows, std::min((unit + 1) * kUnitRows, mlp_dim)};
      activate_unit(layer_idx, tokens, rows, thread_idx);
    }
  }
  if (kinds.a16) {  // one scale per token: the whole row is needed
    pool_.barrier(thread_idx);
    quantize_rows(mlp_, mlp_dim, {.a16 = true}, thread_idx);
  }
}

void Forward::activate_unit(size_t layer_idx, Share tokens, Share rows,
                            size_t thread_idx) noexcept {
  const LayerConfig& layer = config_.layers[layer_idx];
  const SlotSet& set = model_.layer(layer_idx);
  const ActivationKinds kinds = kinds_[layer_idx].down;
  const size_t num_rows = rows.end - rows.begin;
  const size_t num_panels = (num_rows + kPanelRows - 1) / kPanelRows;
  float* gate = mlp_scratch_[thread_idx];
  float* up = gate + kMlpChunkTokens * kUnitRows;
  float* product = up + kMlpChunkTokens * kUnitRows;
  const Activations x = stream(thread_idx).hidden.view(config_.hidden_dim);
  for (auto [slot, out] : {std::pair{Slot::kGate, gate}, std::pair{Slot::kUp, up}}) {
    const PackedMatrix& matrix = set.matrix(slot);
    gemm_for(*kernels_.gemm, matrix.type)(matrix.panel(rows.begin / kPanelRows), num_panels,
                                          matrix.cols, x, tokens.begin, tokens.end, out, kUnitRows);
  }
  const auto activate = layer.activation == MlpActivation::kSilu ? kernels_.vector->silu_mul
                                                                 : kernels_.vector->gelu_tanh_mul;
  const bool keeps_f32 = kinds.f32 || kinds.a16;
  for (size_t t = tokens.begin; t < tokens.end; ++t) {
    const size_t at = (t - tokens.begin) * kUnitRows;
    float* out = keeps_f32 ? mlp_.row(t, layer.mlp_dim) + rows.begin : product + at;
    activate(gate + at, up + at, num_rows, out);
    if (kinds.a8) {
      mlp_.quantize_a8_columns(*kernels_.gemm, t, layer.mlp_dim, rows.begin, num_rows, out);
    }
  }
}

}  // namespace octavo
