// SPDX-License-Identifier: Apache-2.0
// What a draw costs: microseconds per token for each setting by itself, and how many times a greedy
// draw that is.
//
//   sampler_bench [--smoke] [--vocab N] [--only NAME]
//
// One thread. Prints a table for people and one JSON line per row for tools. With --only it draws
// for as long as otherwise and reports one setting, for a count of instructions by other means.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "octavo/kernels.h"
#include "octavo/sampler.h"

namespace {

using namespace octavo;

struct Options {
  size_t vocab = 49152;
  size_t draws = 2000;
  std::string only;
};

struct Setting {
  const char* name;
  std::function<void(SamplingSpec&)> set;
  bool has_mask = false;
};

std::vector<Setting> settings(size_t vocab) {
  std::vector<int32_t> half;
  for (size_t id = 0; id < vocab; id += 2) half.push_back(static_cast<int32_t>(id));
  return {
      {"greedy", [](SamplingSpec&) {}},
      {"greedy, logprobs", [](SamplingSpec& s) { s.num_logprobs = 5; }},
      {"temperature", [](SamplingSpec& s) { s.temperature = 0.8f; }},
      {"top_k", [](SamplingSpec& s) { s.temperature = 0.8f, s.top_k = 40; }},
      {"top_p", [](SamplingSpec& s) { s.temperature = 0.8f, s.top_p = 0.95f; }},
      {"penalties", [](SamplingSpec& s) { s.repetition_penalty = 1.1f; }},
      {"logit_bias", [](SamplingSpec& s) { s.logit_bias = {{5, 1.0f}}; }},
      {"bad_words", [](SamplingSpec& s) { s.bad_words = {{5, 6}, {7}}; }},
      {"allowed_ids", [=](SamplingSpec& s) { s.allowed_ids = half; }},
      {"mask", [](SamplingSpec&) {}, true},
      {"top_n_sigma", [](SamplingSpec& s) { s.temperature = 0.8f, s.top_n_sigma = 2.0f; }},
      {"typical_p", [](SamplingSpec& s) { s.temperature = 0.8f, s.typical_p = 0.95f; }},
      {"processed logprobs",
       [](SamplingSpec& s) {
         s.temperature = 0.8f, s.num_logprobs = 5, s.has_processed_logprobs = true;
       }},
  };
}

double us_per_draw(const Setting& setting, const std::vector<float>& logits,
                   const TokenHistory& history, size_t draws) {
  const KernelTable& table = select_kernels(cpu_features(), std::nullopt);
  SamplingSpec spec;
  setting.set(spec);
  std::vector<uint8_t> mask;
  if (setting.has_mask) mask.assign((logits.size() + 7) / 8, 0xa5);
  SamplerScratch scratch;
  const auto draw = [&](uint64_t position) {
    return sample(*table.vector, logits, spec,
                  {.position = position, .history = &history, .allowed = mask}, scratch);
  };
  draw(0);
  const auto start = std::chrono::steady_clock::now();
  int64_t sum = 0;
  for (size_t i = 0; i < draws; ++i) sum += draw(i).token_id;
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  if (sum < 0) std::printf("impossible\n");  // the draws are used
  return spent.count() / static_cast<double>(draws);
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--smoke") {
      options.draws = 2;
    } else if (arg == "--vocab" && i + 1 < argc) {
      options.vocab = std::strtoul(argv[++i], nullptr, 10);
    } else if (arg == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else {
      return false;
    }
  }
  return options.vocab > 0 && options.vocab <= 1 << 24;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: sampler_bench [--smoke] [--vocab N] [--only NAME]\n");
    return 2;
  }
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(options.vocab);
  for (float& x : logits) x = normal(random);
  std::vector<int32_t> ids(2000);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % options.vocab);
  const TokenHistory history(ids, 1000);
  double greedy = 0;
  std::printf("%-20s %10s %8s   vocabulary %zu, history 2000\n", "setting", "us/draw", "x greedy",
              options.vocab);
  for (const Setting& setting : settings(options.vocab)) {
    if (!options.only.empty() && options.only != setting.name) continue;
    const double us = us_per_draw(setting, logits, history, options.draws);
    if (greedy == 0) greedy = us;
    std::printf("%-20s %10.1f %8.1f\n", setting.name, us, us / greedy);
    std::printf("{\"bench\":\"sampler\",\"setting\":\"%s\",\"vocab\":%zu,\"us\":%.2f}\n",
                setting.name, options.vocab, us);
  }
  return 0;
}
