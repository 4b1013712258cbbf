// SPDX-License-Identifier: Apache-2.0
// Every setting that edits or filters logits, alone and with all others, against its definition in
// float64; and each definition, bent a little, must be told from the right one.
#include <array>
#include <cmath>
#include <functional>

#include "check.h"
#include "kernel_tables.h"
#include "octavo/sampler.h"
#include "sampler_oracle.h"

namespace octavo {
namespace {

using check::runnable_tables;
using testing::Case;
using testing::draw_token;
using testing::exact_draw;
using testing::exact_odds;
using testing::normals;
using testing::Odds;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr size_t kVocab = 600;
constexpr uint64_t kDraws = 150;

const VectorKernels& kernels() { return *runnable_tables().front()->vector; }

std::vector<float> some_logits() {
  auto logits = normals(kVocab, 11, 1.5f);
  for (size_t i = 0; i < kVocab; i += 13) logits[i] = std::round(logits[i]);  // ties
  logits[33] = NAN;
  logits[34] = -kInf;
  return logits;
}

std::vector<int32_t> some_ids(uint32_t seed, size_t n, uint32_t below) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = int32_t(random() % below);
  return ids;
}

std::vector<uint8_t> mask_of(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> mask((kVocab + 7) / 8);
  for (uint8_t& byte : mask) byte = uint8_t(random());
  return mask;
}

using Change = std::function<void(Case&)>;

struct Setting {
  const char* name;
  Change set;
  Change bend;  // what a slip in the definition would compute
};

void swap_prompt_and_outputs(Case& c) { std::swap(c.prompt, c.outputs); }

// Bends act on what the definition is asked, so that it stays one definition.
const Setting kSettings[] = {
    {"repetition", [](Case& c) { c.spec.repetition_penalty = 1.4f; },
     [](Case& c) { c.prompt.clear(); }},
    {"repetition below 1", [](Case& c) { c.spec.repetition_penalty = 0.7f; },
     [](Case& c) { c.outputs.clear(); }},
    {"presence", [](Case& c) { c.spec.presence_penalty = 1.1f; }, swap_prompt_and_outputs},
    {"presence below 0", [](Case& c) { c.spec.presence_penalty = -0.8f; },
     [](Case& c) { c.spec.presence_penalty *= 0.9f; }},
    {"frequency", [](Case& c) { c.spec.frequency_penalty = 0.6f; },
     [](Case& c) { c.outputs.pop_back(); }},
    {"frequency is no presence", [](Case& c) { c.spec.frequency_penalty = 0.6f; },
     [](Case& c) { std::swap(c.spec.presence_penalty, c.spec.frequency_penalty); }},
    {"bias",
     [](Case& c) {
       for (int32_t id = 0; id < 60; ++id) c.spec.logit_bias.push_back({id * 7, 1.5f});
     },
     [](Case& c) { c.spec.logit_bias.pop_back(); }},
    {"allowed ids", [](Case& c) { c.spec.allowed_ids = some_ids(5, 40, kVocab); },
     [](Case& c) { c.spec.allowed_ids.resize(30); }},
    {"mask", [](Case& c) { c.allowed = mask_of(6); }, [](Case& c) { c.allowed[3] ^= 0xff; }},
    {"bad words", [](Case& c) { c.spec.bad_words = {{7}, {500, 8}, {c.outputs.back(), 9}, {10}}; },
     [](Case& c) { c.spec.bad_words.pop_back(); }},
    {"top n sigma", [](Case& c) { c.spec.top_n_sigma = 1.2f; },
     [](Case& c) { c.spec.top_n_sigma = 1.5f; }},
    {"typical p", [](Case& c) { c.spec.typical_p = 0.4f; },
     [](Case& c) { std::swap(c.spec.typical_p, c.spec.top_p); }},
};

// The words of `kSettings` on the ids that are likeliest, so that they matter.
Case base_case() {
  Case c{.spec = {.temperature = 0.9f}};
  c.prompt = some_ids(1, 40, kVocab);
  c.outputs = some_ids(2, 60, 90);
  for (int32_t id : {3, 3, 3, 3, 12, 12}) c.outputs.push_back(id);
  return c;
}

std::vector<float> base_logits() {
  auto logits = some_logits();
  for (const int32_t id : {3, 7, 8, 9, 10, 12, 413}) logits[id] = 4.0f + 0.001f * float(id);
  return logits;
}

struct Tally {
  size_t compared = 0, agreed = 0;
};

// Draws by `real`, and what the definition says of `told`.
Tally compare(const std::vector<float>& logits, Case real, const Case& told) {
  Tally tally;
  const auto odds = exact_odds(logits, told);
  for (uint64_t position = 0; position < kDraws; ++position) {
    real.position = position;
    const int32_t want = exact_draw(odds, uniform(real.spec.seed, real.spec.sample_idx, position));
    if (want < 0) continue;
    ++tally.compared;
    tally.agreed += draw_token(kernels(), logits, real).token_id == want;
  }
  return tally;
}

}  // namespace

TEST(each_setting_follows_its_definition) {
  const auto logits = base_logits();
  for (const Setting& setting : kSettings) {
    Case c = base_case();
    const Tally off = compare(logits, c, c);
    CHECK_EQ(off.agreed, off.compared);
    const Case plain = c;
    setting.set(c);
    const Tally right = compare(logits, c, c);
    if (right.agreed != right.compared) std::printf("%s is wrong\n", setting.name);
    CHECK_EQ(right.agreed, right.compared);
    CHECK(right.compared > kDraws * 9 / 10);
    Case bent = c;
    setting.bend(bent);
    for (const Case& wrong : {plain, bent}) {
      const Tally slip = compare(logits, c, wrong);
      if (slip.agreed == slip.compared) std::printf("%s: a slip passes\n", setting.name);
      CHECK(slip.agreed < slip.compared);
    }
  }
}

TEST(all_settings_together_follow_the_order_of_the_definition) {
  const auto logits = base_logits();
  size_t compared = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Case c = base_case();
    c.spec = {.temperature = 0.8f + 0.1f * float(seed % 5),
              .top_k = 30,
              .top_p = 0.9f,
              .min_p = 0.02f,
              .seed = seed,
              .banned_until = 1000,
              .banned_ids = {12, 3},
              .typical_p = 0.9f,
              .top_n_sigma = 2.5f,
              .repetition_penalty = 1.2f,
              .presence_penalty = 0.5f,
              .frequency_penalty = 0.25f,
              .logit_bias = {{5, 4.0f}, {12, 90.0f}, {77, -100.0f}},
              .bad_words = {{10}, {3, 12}, {12, 12, 8}}};
    c.allowed = mask_of(seed);
    c.outputs.back() = int32_t(seed);
    const Tally tally = compare(logits, c, c);
    CHECK_EQ(tally.agreed, tally.compared);
    compared += tally.compared;
  }
  CHECK(compared > 20 * kDraws * 9 / 10);
}

TEST(greedy_sees_the_edits_and_no_filter) {
  const auto logits = base_logits();
  for (const Setting& setting : kSettings) {
    Case c = base_case();
    setting.set(c);
    c.spec.temperature = 0.0f;
    const auto x = testing::edited(logits, c);
    CHECK_EQ(draw_token(kernels(), logits, c).token_id,
             int32_t(std::max_element(x.begin(), x.end()) - x.begin()));
  }
}

TEST(bad_words_look_at_the_output_alone) {
  const std::vector<float> logits = {1, 2, 9, 3};
  Case c{.spec = {.bad_words = {{0, 1, 2}, {3, 3, 3, 3, 3, 2}}}};
  const auto greedy = [&] { return draw_token(kernels(), logits, c).token_id; };
  c.prompt = {0, 1};
  CHECK_EQ(greedy(), 2);
  c.prompt = {0};
  c.outputs = {1};
  CHECK_EQ(greedy(), 2);
  c.outputs = {0, 1};
  CHECK_EQ(greedy(), 3);
  c.outputs = {0, 1, 0, 1};
  CHECK_EQ(greedy(), 3);
  c.outputs = {0, 1, 1};
  CHECK_EQ(greedy(), 2);
}

TEST(a_history_that_grows_is_the_one_that_was_given) {
  const std::vector<int32_t> ids = some_ids(3, 50, 20);
  const std::span<const int32_t> all(ids);
  TokenHistory grown(all.first(30), 10);
  for (const int32_t id : all.subspan(30)) grown.append(id);
  const TokenHistory given(ids, 10);
  CHECK_EQ(grown.size(), 50u);
  CHECK(std::equal(grown.outputs().begin(), grown.outputs().end(), ids.begin() + 10, ids.end()));
  CHECK_EQ(grown.seen().size(), given.seen().size());
  for (size_t i = 0; i < given.seen().size(); ++i) {
    const auto [id, num_outputs] = given.seen()[i];
    CHECK_EQ(grown.seen()[i].token_id, id);
    CHECK_EQ(grown.seen()[i].num_outputs, num_outputs);
    CHECK_EQ(long(num_outputs), std::count(ids.begin() + 10, ids.end(), id));
  }
  CHECK_EQ(TokenHistory(ids, 50).outputs().size(), 0u);
}

TEST(when_nothing_is_left_the_draw_says_so) {
  const std::vector<float> logits = {1, 2, 3};
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingSpec spec{.temperature = temperature};
    Case cases[] = {{spec}, {spec}, {spec}, {spec}};
    cases[0].allowed = {0b11111000};
    cases[1].spec.allowed_ids = {7};
    cases[2].spec.bad_words = {{0}, {1}, {2}};
    cases[3].spec.logit_bias = {{0, -kInf}, {1, -kInf}, {2, -kInf}};
    for (Case& c : cases) {
      c.spec.typical_p = 0.5f;
      c.spec.top_n_sigma = 1.0f;
      CHECK(draw_token(kernels(), logits, c).failed);
    }
  }
  CHECK_THROWS(draw_token(kernels(), logits, {.spec = {}, .allowed = {1, 2}}),
               std::invalid_argument);
}

// Sum of 600 weights in float32 by 8 lanes (75 additions), exp's own error, the exponent's rounding
// (at most 20 wide) and the result's.
double logprob_bound(double logprob) { return 100 * 0x1p-24 + 4 * 0x1p-24 * std::fabs(logprob); }

TEST(processed_logprobs_are_of_what_is_drawn_from) {
  const auto logits = base_logits();
  const SamplingSpec filters[] = {
      {.temperature = 0.9f},
      {.temperature = 1.3f, .top_k = 12},
      {.temperature = 0.7f, .top_p = 0.8f},
      {.temperature = 1.0f, .top_k = 40, .top_p = 0.7f, .min_p = 0.05f},
      {.temperature = 1.0f, .min_p = 0.1f},
      {.temperature = 1.0f, .typical_p = 0.5f, .repetition_penalty = 1.5f},
  };
  for (const SamplingSpec& spec : filters) {
    Case c = base_case();
    c.spec = spec;
    c.spec.num_logprobs = 20;
    const SampledToken raw = draw_token(kernels(), logits, c);
    c.spec.has_processed_logprobs = true;
    const SampledToken token = draw_token(kernels(), logits, c);
    CHECK_EQ(token.token_id, raw.token_id);
    const auto odds = exact_odds(logits, c);
    CHECK_EQ(token.top.size(), std::min<size_t>(20, odds.size()));
    for (size_t i = 0; i < token.top.size(); ++i) {
      const double want = std::log(odds[i].probability);
      CHECK_EQ(token.top[i].token_id, odds[i].token_id);
      CHECK_NEAR(token.top[i].logprob, want, logprob_bound(want));
      if (token.top[i].token_id != token.token_id) continue;
      CHECK_EQ(token.rank, int32_t(i + 1));
      CHECK_EQ(token.logprob, token.top[i].logprob);
    }
    // Far from the raw ones, so that a mix-up cannot pass.
    CHECK(std::fabs(raw.top[0].logprob - token.top[0].logprob) > 100 * logprob_bound(-5));
  }
}

TEST(processed_logprobs_of_a_greedy_token_are_of_the_edited_logits) {
  const auto logits = base_logits();
  Case c = base_case();
  c.spec = {.top_k = 1, .num_logprobs = 5, .presence_penalty = 2.0f};
  c.spec.has_processed_logprobs = true;
  const auto x = testing::edited(logits, c);
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - max);
  const SampledToken token = draw_token(kernels(), logits, c);
  CHECK_EQ(token.top.size(), 5u);
  for (const TokenLogprob& top : token.top) {
    const double want = x[top.token_id] - max - std::log(sum);
    CHECK_NEAR(top.logprob, want, logprob_bound(want));
  }
}

TEST(wild_ids_and_settings_touch_no_memory) {
  const auto logits = base_logits();
  const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, int32_t(kVocab)};
  Case c = base_case();
  c.spec.repetition_penalty = 2.0f;
  const int32_t want = draw_token(kernels(), logits, c).token_id;
  for (const int32_t id : wild) {
    c.spec.logit_bias.push_back({id, 5.0f});
    c.spec.bad_words.push_back({id});
    c.spec.banned_ids.push_back(id);
    c.prompt.push_back(id);
  }
  c.spec.bad_words.push_back({});
  c.spec.banned_until = 1;
  CHECK_EQ(draw_token(kernels(), logits, c).token_id, want);
}

TEST(extreme_numbers_still_draw) {
  const auto logits = base_logits();
  const float extremes[] = {std::numeric_limits<float>::min(), 1e-20f, 1e20f,
                            std::numeric_limits<float>::max()};
  for (const float extreme : extremes) {
    for (const float temperature : {1e-5f, 1.0f, extreme}) {
      Case c = base_case();
      c.spec.temperature = temperature;
      c.spec.top_n_sigma = extreme;
      c.spec.typical_p = 0.5f;
      c.spec.repetition_penalty = extreme;
      c.spec.presence_penalty = -extreme;
      c.spec.frequency_penalty = extreme;
      c.spec.logit_bias = {{3, extreme}, {12, -extreme}};
      c.spec.num_logprobs = 3;
      for (const bool processed : {false, true}) {
        c.spec.has_processed_logprobs = processed;
        const SampledToken token = draw_token(kernels(), logits, c);
        CHECK(!token.failed);
        CHECK(token.logprob <= 0.0f);
        for (const TokenLogprob& top : token.top) CHECK(top.logprob <= 0.0f);
      }
    }
  }
}

TEST(every_table_draws_the_same_with_all_settings) {
  const auto logits = base_logits();
  Case c = base_case();
  for (const Setting& setting : kSettings) setting.set(c);
  c.spec.allowed_ids.clear();
  c.spec.num_logprobs = 3;
  c.spec.has_processed_logprobs = true;
  for (c.position = 0; c.position < 50; ++c.position) {
    const SampledToken want = draw_token(*check::scalar_table().vector, logits, c);
    for (const KernelTable* table : runnable_tables()) {
      const SampledToken token = draw_token(*table->vector, logits, c);
      CHECK_EQ(token.token_id, want.token_id);
      CHECK_EQ(token.logprob, want.logprob);
    }
  }
}

}  // namespace octavo

CHECK_MAIN()
