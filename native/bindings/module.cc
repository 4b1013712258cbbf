// SPDX-License-Identifier: Apache-2.0
// octavo._native: the core as Python sees it. Conversions only; whatever decides or computes is in
// the core.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>
#include <tuple>

#include "octavo/decoder.h"
#include "octavo/kernels.h"
#include "octavo/weights.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const std::byte> as_span(const Bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

WeightType weight_type(uint32_t ggml_type) {
  const auto type = static_cast<WeightType>(ggml_type);
  if (is_supported(type)) return type;
  throw std::invalid_argument("tensor type " + std::to_string(ggml_type) + " is not supported");
}

// Vectors arrive as bytes of little-endian float32, which is what every supported machine stores;
// they may start at any address of a mapped file, so they are copied out.
void load_vector(Decoder& decoder, Slot slot, std::optional<size_t> layer_idx, const Bytes& bytes) {
  if (bytes.size() % sizeof(float) != 0) {
    throw std::invalid_argument(std::string(slot_name(slot)) + " has " +
                                std::to_string(bytes.size()) + " bytes, wanted whole float32");
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  decoder.load_vector(slot, layer_idx, values);
}

void load_matrix(Decoder& decoder, Slot slot, std::optional<size_t> layer_idx, uint32_t ggml_type,
                 size_t rows, size_t cols, const Bytes& bytes) {
  decoder.load_matrix(slot, layer_idx, weight_type(ggml_type), rows, cols, as_span(bytes));
}

// (row, start, num_tokens, num_token_ids, num_new_blocks, num_targets, samples, num_replaced,
// logits_of, num_allowed_bytes)
using WorkTuple = std::tuple<size_t, size_t, size_t, size_t, size_t, size_t, bool, size_t,
                             std::optional<size_t>, size_t>;
using CopyTuple = std::tuple<int32_t, int32_t, size_t>;
using MoveTuple = std::tuple<int32_t, int32_t>;
using ReplacementTuple = std::tuple<size_t, int32_t>;

void set_work(Batch& batch, const std::vector<WorkTuple>& work) {
  for (const auto& [row, start, tokens, ids, blocks, targets, samples, replaced, parent, allowed] :
       work) {
    batch.work.push_back(
        {row, start, tokens, ids, blocks, targets, samples, replaced, parent, allowed});
  }
}

// A Batch from lists of tuples: one conversion each, with the GIL held.
Batch make_batch(std::vector<size_t> closed, std::vector<RowOpen> opened,
                 const std::vector<MoveTuple>& swap_ins, const std::vector<MoveTuple>& swap_outs,
                 const std::vector<CopyTuple>& copies, const std::vector<WorkTuple>& work,
                 std::vector<int32_t> token_ids, std::vector<int32_t> new_blocks,
                 std::vector<int32_t> targets, const std::vector<ReplacementTuple>& replaced,
                 const nb::bytes& allowed) {
  Batch batch;
  batch.closed = std::move(closed);
  batch.opened = std::move(opened);
  for (const auto& [src, dst] : swap_ins) batch.swap_ins.push_back({src, dst});
  for (const auto& [src, dst] : swap_outs) batch.swap_outs.push_back({src, dst});
  for (const auto& [src, dst, num_tokens] : copies) batch.copies.push_back({src, dst, num_tokens});
  set_work(batch, work);
  batch.token_ids = std::move(token_ids);
  batch.new_blocks = std::move(new_blocks);
  batch.targets = std::move(targets);
  for (const auto& [table_idx, block] : replaced) batch.replaced.push_back({table_idx, block});
  const auto* mask = static_cast<const uint8_t*>(allowed.data());
  batch.allowed.assign(mask, mask + allowed.size());
  return batch;
}

std::vector<std::tuple<int32_t, float>> top_of(const SampledToken& token) {
  std::vector<std::tuple<int32_t, float>> top;
  for (const TokenLogprob& entry : token.top) top.emplace_back(entry.token_id, entry.logprob);
  return top;
}

std::vector<std::string> feature_names() {
  static constexpr std::pair<CpuFeature, const char*> kNames[] = {{kSse42, "sse4.2"},
                                                                  {kAvx2, "avx2"},
                                                                  {kFma, "fma"},
                                                                  {kF16c, "f16c"},
                                                                  {kBmi2, "bmi2"},
                                                                  {kAvxVnni, "avx_vnni"},
                                                                  {kAvx512, "avx512"},
                                                                  {kAvx512Vnni, "avx512_vnni"},
                                                                  {kNeonDotProd, "dotprod"},
                                                                  {kNeonI8mm, "i8mm"}};
  const uint32_t features = cpu_features();
  std::vector<std::string> names;
  for (const auto& [bit, name] : kNames) {
    if ((features & bit) != 0) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> kernel_names(bool runnable_only) {
  const uint32_t features = cpu_features();
  std::vector<std::string> names;
  for (const KernelTable* table : compiled_kernels()) {
    if (!runnable_only || (table->required & ~features) == 0) names.emplace_back(table->name);
  }
  return names;
}

std::string selected_kernel(std::optional<std::string_view> forced) {
  return std::string(select_kernels(cpu_features(), forced).name);
}

std::vector<float> dequantize(uint32_t ggml_type, size_t cols, const Bytes& row) {
  const WeightType type = weight_type(ggml_type);
  if (cols % block_elements(type) != 0 || row.size() != row_bytes(type, cols)) {
    throw std::invalid_argument("a row of " + std::to_string(cols) + " columns does not fit " +
                                std::to_string(row.size()) + " bytes");
  }
  std::vector<float> values(cols);
  dequantize_row(type, as_span(row).data(), cols, values.data());
  return values;
}

void bind_config(nb::module_& m) {
  nb::enum_<RopePairing>(m, "RopePairing")
      .value("INTERLEAVED", RopePairing::kInterleaved)
      .value("HALVES", RopePairing::kHalves);
  nb::enum_<MlpActivation>(m, "MlpActivation")
      .value("SILU", MlpActivation::kSilu)
      .value("GELU_TANH", MlpActivation::kGeluTanh);
  nb::class_<RopeConfig>(m, "RopeConfig")
      .def(nb::init<>())
      .def_rw("pairing", &RopeConfig::pairing)
      .def_rw("inv_freq", &RopeConfig::inv_freq)
      .def_rw("magnitude", &RopeConfig::magnitude);
  nb::class_<LayerConfig>(m, "LayerConfig")
      .def(nb::init<>())
      .def_rw("num_heads", &LayerConfig::num_heads)
      .def_rw("num_kv_heads", &LayerConfig::num_kv_heads)
      .def_rw("head_dim", &LayerConfig::head_dim)
      .def_rw("mlp_dim", &LayerConfig::mlp_dim)
      .def_rw("activation", &LayerConfig::activation)
      .def_rw("rope_idx", &LayerConfig::rope_idx)
      .def_rw("attn_scale", &LayerConfig::attn_scale)
      .def_rw("window", &LayerConfig::window)
      .def_rw("attn_soft_cap", &LayerConfig::attn_soft_cap)
      .def_rw("has_qk_norm", &LayerConfig::has_qk_norm)
      .def_rw("has_post_norms", &LayerConfig::has_post_norms)
      .def_rw("has_qkv_bias", &LayerConfig::has_qkv_bias);
  nb::class_<DecoderConfig>(m, "DecoderConfig")
      .def(nb::init<>())
      .def_rw("hidden_dim", &DecoderConfig::hidden_dim)
      .def_rw("vocab_size", &DecoderConfig::vocab_size)
      .def_rw("context_length", &DecoderConfig::context_length)
      .def_rw("norm_eps", &DecoderConfig::norm_eps)
      .def_rw("layers", &DecoderConfig::layers)
      .def_rw("ropes", &DecoderConfig::ropes)
      .def_rw("embedding_scale", &DecoderConfig::embedding_scale)
      .def_rw("logit_scale", &DecoderConfig::logit_scale)
      .def_rw("logit_soft_cap", &DecoderConfig::logit_soft_cap)
      .def_rw("tied_output", &DecoderConfig::tied_output);
}

void bind_sampling(nb::module_& m) {
  nb::class_<SamplingSpec>(m, "SamplingSpec")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingSpec::temperature)
      .def_rw("top_k", &SamplingSpec::top_k)
      .def_rw("top_p", &SamplingSpec::top_p)
      .def_rw("min_p", &SamplingSpec::min_p)
      .def_rw("seed", &SamplingSpec::seed)
      .def_rw("sample_idx", &SamplingSpec::sample_idx)
      .def_rw("num_logprobs", &SamplingSpec::num_logprobs, nb::arg().none())
      .def_rw("banned_until", &SamplingSpec::banned_until)
      .def_rw("banned_ids", &SamplingSpec::banned_ids)
      .def_rw("typical_p", &SamplingSpec::typical_p)
      .def_rw("top_n_sigma", &SamplingSpec::top_n_sigma)
      .def_rw("repetition_penalty", &SamplingSpec::repetition_penalty)
      .def_rw("presence_penalty", &SamplingSpec::presence_penalty)
      .def_rw("frequency_penalty", &SamplingSpec::frequency_penalty)
      .def_rw("logit_bias", &SamplingSpec::logit_bias)
      .def_rw("allowed_ids", &SamplingSpec::allowed_ids)
      .def_rw("bad_words", &SamplingSpec::bad_words)
      .def_rw("has_processed_logprobs", &SamplingSpec::has_processed_logprobs);
}

void bind_slots(nb::module_& m) {
  nb::enum_<Slot> slots(m, "Slot");
  for (size_t i = 0; i < kNumSlots; ++i) {
    const auto slot = static_cast<Slot>(i);
    std::string name(slot_name(slot));
    for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    slots.value(name.c_str(), slot);
  }
}

void bind_results(nb::module_& m) {
  nb::class_<SampledToken>(m, "SampledToken")
      .def_ro("token_id", &SampledToken::token_id)
      .def_ro("logprob", &SampledToken::logprob)
      .def_ro("rank", &SampledToken::rank)
      .def_prop_ro("top", &top_of);
  nb::class_<RowOutcome>(m, "RowOutcome")
      .def_ro("sampled", &RowOutcome::sampled)
      .def_ro("scored", &RowOutcome::scored)
      .def_ro("error", &RowOutcome::error);
  nb::class_<MemoryReport>(m, "MemoryReport")
      .def_ro("weights_bytes", &MemoryReport::weights_bytes)
      .def_ro("kv_bytes", &MemoryReport::kv_bytes)
      .def_ro("kv_bytes_per_block", &MemoryReport::kv_bytes_per_block)
      .def_ro("scratch_bytes", &MemoryReport::scratch_bytes)
      .def_ro("swap_bytes", &MemoryReport::swap_bytes);
  nb::class_<SwapTotals>(m, "SwapTotals")
      .def_ro("blocks_in", &SwapTotals::blocks_in)
      .def_ro("blocks_out", &SwapTotals::blocks_out)
      .def_ro("seconds", &SwapTotals::seconds);
}

void bind_decoder(nb::module_& m) {
  using NoGil = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<RowOpen>(m, "RowOpen")
      .def(nb::init<size_t, SamplingSpec, size_t, std::vector<int32_t>, std::vector<int32_t>,
                    size_t, std::optional<std::string>>(),
           "row"_a, nb::kw_only(), "sampling"_a, "num_computed"_a = 0,
           "blocks"_a = std::vector<int32_t>(), "history"_a = std::vector<int32_t>(),
           "num_prompt"_a = 0, "refusal"_a.none() = nb::none());
  nb::class_<Batch>(m, "Batch")
      .def(
          "__init__",
          [](Batch* self, std::vector<size_t> closed, std::vector<RowOpen> opened,
             const std::vector<MoveTuple>& swap_ins, const std::vector<MoveTuple>& swap_outs,
             const std::vector<CopyTuple>& copies, const std::vector<WorkTuple>& work,
             std::vector<int32_t> token_ids, std::vector<int32_t> new_blocks,
             std::vector<int32_t> targets, const std::vector<ReplacementTuple>& replaced,
             const nb::bytes& allowed) {
            new (self) Batch(make_batch(std::move(closed), std::move(opened), swap_ins, swap_outs,
                                        copies, work, std::move(token_ids), std::move(new_blocks),
                                        std::move(targets), replaced, allowed));
          },
          nb::kw_only(), "closed"_a, "opened"_a, "swap_ins"_a, "swap_outs"_a, "copies"_a, "work"_a,
          "token_ids"_a, "new_blocks"_a, "targets"_a, "replaced"_a, "allowed"_a);
  nb::class_<Decoder>(m, "Decoder")
      .def(nb::init<DecoderConfig, size_t, std::optional<std::string_view>, uint32_t>(), "config"_a,
           "num_threads"_a, "isa"_a.none(), "spin_us"_a = 50, NoGil())
      .def("load_matrix", &load_matrix, "slot"_a, "layer_idx"_a.none(), "ggml_type"_a, "rows"_a,
           "cols"_a, "data"_a, NoGil())
      .def("load_vector", &load_vector, "slot"_a, "layer_idx"_a.none(), "data"_a, NoGil())
      .def("finish_loading", &Decoder::finish_loading)
      .def("kv_bytes_per_block", &Decoder::kv_bytes_per_block, "block_size"_a)
      .def("create_kv", &Decoder::create_kv, "num_blocks"_a, "block_size"_a, "num_rows"_a,
           "step_tokens_max"_a, NoGil())
      .def("create_swap", &Decoder::create_swap, "num_blocks"_a, "path"_a.none(), NoGil())
      .def("step", &Decoder::step, "batch"_a, NoGil())
      .def("abandon", &Decoder::abandon, "batch"_a)
      .def_prop_ro("isa", &Decoder::isa)
      .def_prop_ro("num_threads", &Decoder::num_threads)
      .def("memory_report", &Decoder::memory_report)
      .def("swap_totals", &Decoder::swap_totals);
}

}  // namespace
}  // namespace octavo

NB_MODULE(_native, m) {
  m.doc() = "The native core of octavo: weights, KV memory, and one call per step.";
  octavo::bind_config(m);
  octavo::bind_sampling(m);
  octavo::bind_slots(m);
  octavo::bind_results(m);
  octavo::bind_decoder(m);
  m.def("cpu_features", &octavo::feature_names);
  m.def("kernel_names", &octavo::kernel_names, "runnable_only"_a);
  m.def("selected_kernel", &octavo::selected_kernel, "forced"_a.none());
  m.def(
      "is_supported",
      [](uint32_t ggml_type) {
        return octavo::is_supported(static_cast<octavo::WeightType>(ggml_type));
      },
      "ggml_type"_a);
  m.def("dequantize_row", &octavo::dequantize, "ggml_type"_a, "cols"_a, "data"_a);
}
