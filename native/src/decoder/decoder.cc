// SPDX-License-Identifier: Apache-2.0
#include "octavo/decoder.h"

#include <chrono>
#include <new>
#include <stdexcept>
#include <utility>

#include "decoder/forward.h"
#include "decoder/model.h"
#include "decoder/rows.h"
#include "octavo/kernels.h"
#include "octavo/kv_pool.h"
#include "octavo/swap_pool.h"
#include "octavo/thread_pool.h"

namespace octavo {
namespace {

size_t check_threads(size_t num_threads) {
  if (num_threads >= 1 && num_threads <= 1024) return num_threads;
  throw std::invalid_argument("num_threads must be in [1, 1024], got " +
                              std::to_string(num_threads));
}

std::vector<KvLayerShape> kv_shapes(const DecoderConfig& config) {
  std::vector<KvLayerShape> shapes;
  for (const LayerConfig& layer : config.layers) {
    shapes.push_back({layer.num_kv_heads, layer.head_dim});
  }
  return shapes;
}

}  // namespace

// Everything that exists once the sizes of a run are known.
struct Session {
  KvPool kv;
  RowTable rows;
  Forward forward;
  std::optional<SwapPool> swap;
  SwapTotals swap_totals;

  Session(const DecoderConfig& config, const Model& model, const KernelTable& kernels,
          ThreadPool& pool, const RowLimits& limits)
      : kv(kv_shapes(config), limits.num_blocks, limits.block_size),
        rows(limits),
        forward(config, model, kernels, pool, kv, limits.step_tokens_max) {}
};

struct Decoder::State {
  DecoderConfig config;
  const KernelTable& kernels;
  ThreadPool pool;
  Model model;
  bool is_loaded = false;
  std::unique_ptr<Session> session;
  StepInput input;  // kept to allocate once

  State(DecoderConfig wanted, size_t num_threads, std::optional<std::string_view> isa,
        uint32_t spin_us)
      : config(std::move(wanted)),
        kernels(select_kernels(cpu_features(), isa)),
        pool(check_threads(num_threads), spin_us),
        model(config) {}

  void require_loading() const {
    if (is_loaded) throw std::runtime_error("the weights are complete: nothing more can be loaded");
  }
  void build_input(const Batch& batch, std::vector<RowOutcome>& outcomes);
  void add_run(const RowWork& work, const int32_t* ids);
  void add_logit_rows(const RowWork& work, const Draw& draw, const int32_t* targets,
                      RowOutcome& outcome);
  void add_forks(const Batch& batch, const std::vector<RowOutcome>& outcomes);
  Draw draw_of(const RowWork& work, size_t outcome_idx, const uint8_t* allowed) const;
  std::string failure_before(const RowWork& work) const;
  void settle(const RowWork& work, RowOutcome& outcome);
  void swap(const Batch& batch);
};

Decoder::Decoder(DecoderConfig config, size_t num_threads, std::optional<std::string_view> isa,
                 uint32_t spin_us) {
  check_config(config);
  state_ = std::make_unique<State>(std::move(config), num_threads, isa, spin_us);
}

Decoder::~Decoder() = default;

void Decoder::load_matrix(Slot slot, std::optional<size_t> layer_idx, WeightType type, size_t rows,
                          size_t cols, std::span<const std::byte> data) {
  state_->require_loading();
  state_->model.load_matrix(slot, layer_idx, type, rows, cols, data, state_->pool);
}

void Decoder::load_vector(Slot slot, std::optional<size_t> layer_idx,
                          std::span<const float> values) {
  state_->require_loading();
  state_->model.load_vector(slot, layer_idx, values);
}

void Decoder::finish_loading() {
  state_->require_loading();
  state_->model.check_complete();
  state_->is_loaded = true;
}

size_t Decoder::kv_bytes_per_block(size_t block_size) const {
  return KvPool::block_bytes(kv_shapes(state_->config), block_size);
}

void Decoder::create_kv(size_t num_blocks, size_t block_size, size_t num_rows,
                        size_t step_tokens_max) {
  if (!state_->is_loaded) throw std::runtime_error("create_kv needs finish_loading first");
  if (state_->session) throw std::runtime_error("the KV cache exists already");
  auto check = [](const char* field, size_t value, size_t max) {
    if (value >= 1 && value <= max) return;
    throw std::invalid_argument(std::string(field) + " must be in [1, " + std::to_string(max) +
                                "], got " + std::to_string(value));
  };
  check("num_rows", num_rows, 1 << 20);
  check("step_tokens_max", step_tokens_max, 1 << 20);
  check("block_size", block_size, 1 << 16);
  const DecoderConfig& config = state_->config;
  const RowLimits limits{.num_rows = num_rows,
                         .num_blocks = num_blocks,
                         .block_size = block_size,
                         .step_tokens_max = step_tokens_max,
                         .context_length = config.context_length,
                         .vocab_size = config.vocab_size};
  state_->session =
      std::make_unique<Session>(config, state_->model, state_->kernels, state_->pool, limits);
}

void Decoder::create_swap(size_t num_blocks, const std::optional<std::string>& path) {
  if (!state_->session) throw std::runtime_error("create_swap needs create_kv first");
  Session& session = *state_->session;
  if (session.swap) throw std::runtime_error("the swap tier exists already");
  session.swap.emplace(num_blocks, session.kv.block_bytes(), path);
  session.rows.set_num_swap_blocks(num_blocks);
}

std::vector<RowOutcome> Decoder::step(const Batch& batch) {
  if (!state_->session) throw std::runtime_error("step needs create_kv first");
  Session& session = *state_->session;
  session.rows.check(batch);
  session.rows.apply(batch);
  state_->swap(batch);
  for (const BlockCopy& copy : batch.copies) {
    session.kv.copy_block(copy.src, copy.dst, copy.num_tokens);
  }
  std::vector<RowOutcome> outcomes(batch.work.size());
  if (batch.work.empty()) return outcomes;
  state_->build_input(batch, outcomes);
  if (!state_->input.tokens.empty()) session.forward.run(state_->input, outcomes);
  for (size_t i = 0; i < batch.work.size(); ++i) {
    state_->settle(batch.work[i], outcomes[i]);
  }
  return outcomes;
}

void Decoder::abandon(const Batch& batch) {
  if (!state_->session) throw std::runtime_error("abandon needs create_kv first");
  state_->session->rows.abandon(batch);
}

void Decoder::State::swap(const Batch& batch) {
  if (batch.swap_ins.empty() && batch.swap_outs.empty()) return;
  const auto started = std::chrono::steady_clock::now();
  session->swap->load(batch.swap_ins, session->kv, pool);
  session->swap->store(batch.swap_outs, session->kv, pool);
  SwapTotals& totals = session->swap_totals;
  totals.blocks_in += batch.swap_ins.size();
  totals.blocks_out += batch.swap_outs.size();
  totals.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

void Decoder::State::settle(const RowWork& work, RowOutcome& outcome) {
  if (outcome.error.empty()) {
    const bool sampled = outcome.sampled.has_value();
    try {
      session->rows.advance(work,
                            sampled ? std::optional(outcome.sampled->token_id) : std::nullopt);
      return;
    } catch (const std::bad_alloc&) {
      outcome.error = "out of memory for the row's history";
    }
  }
  outcome.sampled.reset();
  outcome.scored.clear();
  session->rows.fail(work.row);
}

// What a failed row asks for is not run, nor is what would sample from its logits.
std::string Decoder::State::failure_before(const RowWork& work) const {
  const Row& row = session->rows.row(work.row);
  if (row.has_failed() || !work.logits_of) return row.failure;
  return session->rows.row(*work.logits_of).has_failed() ? kFailedBefore : "";
}

void Decoder::State::build_input(const Batch& batch, std::vector<RowOutcome>& outcomes) {
  input.runs.clear();
  input.tokens.clear();
  input.logit_rows.clear();
  input.forks.clear();
  const int32_t* ids = batch.token_ids.data();
  const int32_t* targets = batch.targets.data();
  const uint8_t* allowed = batch.allowed.data();
  for (size_t i = 0; i < batch.work.size(); ++i) {
    const RowWork& work = batch.work[i];
    outcomes[i].error = failure_before(work);
    if (outcomes[i].error.empty() && work.num_tokens > 0) {
      add_logit_rows(work, draw_of(work, i, allowed), targets, outcomes[i]);
      add_run(work, ids);
    }
    ids += work.num_token_ids;
    targets += work.num_targets;
    allowed += work.num_allowed_bytes;
  }
  add_forks(batch, outcomes);
}

Draw Decoder::State::draw_of(const RowWork& work, size_t outcome_idx,
                             const uint8_t* allowed) const {
  const Row& row = session->rows.row(work.row);
  return {.outcome_idx = outcome_idx,
          .sampling = &row.sampling,
          .context = {.position = work.start + work.num_tokens,
                      .history = row.sampling.needs_history() ? &row.history : nullptr,
                      .allowed = {allowed, work.num_allowed_bytes}}};
}

void Decoder::State::add_run(const RowWork& work, const int32_t* ids) {
  const Row& row = session->rows.row(work.row);
  const size_t run_idx = input.runs.size();
  input.runs.push_back({row.table.data(), work.start, work.num_tokens, input.tokens.size()});
  for (size_t t = 0; t < work.num_tokens; ++t) {
    const int32_t id = work.num_token_ids > 0 ? ids[t] : *row.last_token;
    input.tokens.push_back({id, run_idx, work.start + t});
  }
}

// Forks lie in the order of the logit rows that they sample from. A row's own sample is at its last
// token, so its outcome has one such row at most.
void Decoder::State::add_forks(const Batch& batch, const std::vector<RowOutcome>& outcomes) {
  std::vector<std::vector<Draw>> forks_of;  // by outcome of the parent
  const uint8_t* next_allowed = batch.allowed.data();
  for (size_t i = 0; i < batch.work.size(); ++i) {
    const RowWork& work = batch.work[i];
    const uint8_t* allowed = next_allowed;
    next_allowed += work.num_allowed_bytes;
    if (!work.logits_of || !outcomes[i].error.empty()) continue;
    forks_of.resize(batch.work.size());
    size_t parent = 0;
    while (batch.work[parent].row != *work.logits_of) ++parent;
    forks_of[parent].push_back(draw_of(work, i, allowed));
  }
  if (forks_of.empty()) return;
  for (LogitRow& row : input.logit_rows) {
    if (!row.samples) continue;
    const std::vector<Draw>& forks = forks_of[row.draw.outcome_idx];
    row.first_fork = input.forks.size();
    row.num_forks = forks.size();
    input.forks.insert(input.forks.end(), forks.begin(), forks.end());
  }
}

void Decoder::State::add_logit_rows(const RowWork& work, const Draw& draw, const int32_t* targets,
                                    RowOutcome& outcome) {
  outcome.scored.resize(work.num_targets);
  for (size_t t = 0; t < work.num_tokens; ++t) {
    const bool samples = work.samples && t + 1 == work.num_tokens;
    const bool scores = t < work.num_targets;
    if (!samples && !scores) continue;
    input.logit_rows.push_back({.token = input.tokens.size() + t,
                                .position = work.start + t + 1,
                                .draw = draw,
                                .samples = samples,
                                .scored = scores ? &outcome.scored[t] : nullptr,
                                .target = scores ? targets[t] : 0});
  }
}

std::string_view Decoder::isa() const { return state_->kernels.name; }

size_t Decoder::num_threads() const { return state_->pool.size(); }

MemoryReport Decoder::memory_report() const {
  MemoryReport report{.weights_bytes = state_->model.bytes()};
  if (state_->session) {
    const KvPool& kv = state_->session->kv;
    report.kv_bytes = kv.bytes();
    report.kv_bytes_per_block = kv_bytes_per_block(kv.block_size());
    report.scratch_bytes = state_->session->forward.scratch_bytes();
    if (state_->session->swap) report.swap_bytes = state_->session->swap->bytes();
  }
  return report;
}

SwapTotals Decoder::swap_totals() const {
  return state_->session ? state_->session->swap_totals : SwapTotals{};
}

}  // namespace octavo
