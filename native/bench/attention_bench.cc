// SPDX-License-Identifier: Apache-2.0
// Nanoseconds per (query head, key position) of each table, for the shapes of small models. Decode
// reads a cache that is far larger than the caches of the CPU unless --warm is given, as a step
// that has just streamed the weights would. Last line: the same as JSON. --smoke: one short round.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "octavo/kernels.h"

namespace octavo {
namespace {

struct Shape {
  const char* name;
  size_t head_dim;
  size_t group;
  size_t window;
};

constexpr Shape kShapes[] = {{"hd64 g3", 64, 3, 0},
                             {"hd256 g4 w512", 256, 4, 512},
                             {"hd64 g1", 64, 1, 0},
                             {"hd128 g8", 128, 8, 0}};

struct Options {
  bool smoke = false;
  bool warm = false;
  std::string table;  // empty: all
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

float* aligned_floats(size_t n) {
  float* p = static_cast<float*>(std::aligned_alloc(64, (n + 15) / 16 * 64));
  std::fill(p, p + n, 0.25f);
  return p;
}

class Bench {
 public:
  Bench(const Shape& shape, size_t length, const Options& options) : shape_(shape) {
    const size_t block_halves = 2 * kBlock * shape.head_dim;
    blocks_per_sequence_ = (length + kBlock - 1) / kBlock;
    const size_t cold_halves = size_t(32) << 20;  // 64 MiB
    sequences_ = options.warm || options.smoke
                     ? 1
                     : std::max<size_t>(1, cold_halves / (blocks_per_sequence_ * block_halves));
    std::mt19937 random(1);
    pool_.resize(sequences_ * blocks_per_sequence_ * block_halves);
    for (uint16_t& half : pool_) half = uint16_t(0x3000 + random() % 0x800) | (random() & 0x8000);
    table_.resize(sequences_ * blocks_per_sequence_);
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random);
  }

  // Seconds for tokens [first, first + num) of one
  // sequence after the other, in tiles of kTile tokens.
  double run(const AttentionKernels& kernels, size_t first, size_t num, size_t repeats) {
    const size_t row_floats = shape_.group * shape_.head_dim;
    float* q = aligned_floats(num * row_floats);
    float* out = aligned_floats(num * row_floats);
    AttentionTile tile = make_tile(std::min(kTile, num));
    float* scratch = aligned_floats(attention_scratch_floats(tile));
    double best = 1e9;
    for (size_t round = 0; round < 3; ++round) {
      const double start = seconds_now();
      for (size_t r = 0; r < repeats; ++r) {
        tile.kv.table = table_.data() + r % sequences_ * blocks_per_sequence_;
        for (size_t i = 0; i < num; i += kTile) {
          tile.first_position = first + i;
          tile.num_tokens = std::min(kTile, num - i);
          tile.q = q + i * row_floats;
          kernels.attend(tile, out + i * row_floats, row_floats, scratch);
        }
      }
      best = std::min(best, (seconds_now() - start) / double(repeats));
    }
    std::free(q);
    std::free(out);
    std::free(scratch);
    return best;
  }

 private:
  static constexpr size_t kBlock = 32;
  static constexpr size_t kTile = 64;

  AttentionTile make_tile(size_t num_tokens) {
    AttentionTile tile;
    tile.kv = {pool_.data(),   2 * kBlock * shape_.head_dim, table_.data(), kBlock, 1,
               shape_.head_dim};
    tile.group = shape_.group;
    tile.num_tokens = num_tokens;
    tile.window = shape_.window;
    tile.q_token_stride = shape_.group * shape_.head_dim;
    tile.scale = 0.125f;
    return tile;
  }

  Shape shape_;
  size_t blocks_per_sequence_ = 0;
  size_t sequences_ = 1;
  std::vector<uint16_t> pool_;
  std::vector<int32_t> table_;
};

// (head, key) pairs of tokens [first, first + num).
double pairs(const Shape& shape, size_t first, size_t num) {
  double sum = 0.0;
  for (size_t p = first; p < first + num; ++p) {
    sum += double(shape.window ? std::min(shape.window, p + 1) : p + 1);
  }
  return sum * double(shape.group);
}

void measure(const KernelTable& table, const Shape& shape, const Options& options,
             std::string& json) {
  struct Case {
    const char* name;
    size_t first;
    size_t num;
  };
  const bool scalar = table.name == "scalar";
  for (const Case& c :
       {Case{"decode 256", 255, 1}, Case{"decode 2048", 2047, 1}, Case{"prefill 512", 0, 512}}) {
    const size_t first = options.smoke ? c.first / 16 : c.first;
    const size_t num = options.smoke ? std::min<size_t>(c.num, 20) : c.num;
    const double work = pairs(shape, first, num);
    const double budget = options.smoke ? 0.0 : scalar ? 2e6 : 4e7;  // head_dim-64 pairs per round
    const size_t repeats = std::max<size_t>(1, size_t(budget / work * 64 / double(shape.head_dim)));
    Bench bench(shape, first + num, options);
    const double ns = bench.run(*table.attention, first, num, repeats) * 1e9 / work;
    const double gmacs = 2.0 * double(shape.head_dim) / ns;
    std::printf("%-8s %-14s %-12s %9.2f ns/(head, position) %8.2f GMAC/s\n",
                std::string(table.name).c_str(), shape.name, c.name, ns, gmacs);
    char row[256];
    std::snprintf(
        row, sizeof row,
        "%s{\"table\":\"%s\",\"shape\":\"%s\",\"case\":\"%s\",\"ns\":%.3f,\"gmacs\":%.2f}",
        json.empty() ? "" : ",", std::string(table.name).c_str(), shape.name, c.name, ns, gmacs);
    json += row;
  }
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0) options.smoke = true;
    if (std::strcmp(argv[i], "--warm") == 0) options.warm = true;
    if (std::strcmp(argv[i], "--table") == 0 && i + 1 < argc) options.table = argv[++i];
  }
  std::string json;
  for (const KernelTable* table : compiled_kernels()) {
    if ((table->required & ~cpu_features()) != 0) continue;
    if (!options.table.empty() && options.table != table->name) continue;
    for (const Shape& shape : kShapes) measure(*table, shape, options, json);
  }
  std::printf("{\"bench\":\"attention\",\"threads\":1,\"warm\":%s,\"smoke\":%s,\"rows\":[%s]}\n",
              options.warm ? "true" : "false", options.smoke ? "true" : "false", json.c_str());
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::run(argc, argv); }
