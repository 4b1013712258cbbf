// SPDX-License-Identifier: Apache-2.0
// Speed of every matrix product: GMAC/s, MAC per TSC cycle, and GB/s of packed weights read.
//
//   gemm_bench [--smoke] [--isa NAME] [--type NAME] [--tokens N] [--cold]
//
// One thread. By default one matrix of about 1 MB stays in cache; --cold walks 256 MB of weights
// instead, as decoding a model does. Prints a table for people and one JSON line per row for tools.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "../tests/matrices.h"
#include "octavo/kernels.h"
#include "octavo/weights.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace {

using namespace octavo;
using namespace octavo::testing;

uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return 0;
#endif
}

struct Options {
  bool smoke = false;
  bool cold = false;
  std::optional<std::string> isa;
  std::string type;
  size_t tokens = 0;  // 0: all of the usual counts
};

struct Shape {
  WeightType type;
  size_t cols;
};

constexpr Shape kShapes[] = {
    {WeightType::kQ4_1, 576},  {WeightType::kQ4_1, 1536}, {WeightType::kQ4_0, 576},
    {WeightType::kQ8_0, 576},  {WeightType::kQ8_0, 640},  {WeightType::kQ5_0, 640},
    {WeightType::kQ5_1, 640},  {WeightType::kQ4_K, 1024}, {WeightType::kQ4_K, 2048},
    {WeightType::kQ5_K, 2048}, {WeightType::kQ6_K, 2048}, {WeightType::kF16, 640},
    {WeightType::kBF16, 640},  {WeightType::kF32, 640},
};

class HugePages {  // where the engine keeps its weights
 public:
  explicit HugePages(size_t bytes) : bytes_((bytes + kHuge - 1) / kHuge * kHuge) {
    data_ = static_cast<std::byte*>(std::aligned_alloc(kHuge, bytes_));
    if (data_ == nullptr) throw std::bad_alloc();
#if defined(__linux__)
    madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
  }
  ~HugePages() { std::free(data_); }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  std::byte* data() const { return data_; }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  size_t bytes_;
  std::byte* data_;
};

// Repeats the product until the clock says enough and returns the best of several runs.
void measure(const KernelTable& table, const Shape& shape, size_t tokens, const Options& options) {
  Random random(1);
  const size_t one = panel_bytes(shape.type, shape.cols);
  const size_t wanted = options.smoke  ? 4 * one
                        : options.cold ? size_t{256} << 20
                                       : size_t{1} << 20;
  const size_t num_panels = (wanted + one - 1) / one;
  const auto file = random_rows(shape.type, 8, shape.cols, random);
  const auto panel = packed(shape.type, file, 8, shape.cols);
  const HugePages panels(num_panels * one);
  for (size_t i = 0; i < num_panels; ++i) std::memcpy(panels.data() + i * one, panel.data(), one);
  const Batch batch(*table.gemm, random_floats(tokens * shape.cols, random), shape.cols);
  const size_t stride = num_panels * kPanelRows;
  std::vector<float> out(tokens * stride);
  const double macs = static_cast<double>(stride) * static_cast<double>(shape.cols * tokens);
  double best_s = 1e9;
  uint64_t best_ticks = ~uint64_t{0};
  for (int run = 0; run < (options.smoke ? 1 : options.cold ? 5 : 9); ++run) {
    const int repeats = options.smoke ? 1 : 1 + static_cast<int>(2e8 / macs);
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t first = ticks();
    for (int i = 0; i < repeats; ++i) {
      // 32 rows at a time, as a thread of the engine takes them.
      for (size_t p = 0; p < num_panels; p += 4) {
        gemm_for(*table.gemm, shape.type)(
            panels.data() + p * one, num_panels - p < 4 ? num_panels - p : 4, shape.cols,
            batch.view(), 0, tokens, out.data() + p * kPanelRows, stride);
      }
    }
    const uint64_t spent = (ticks() - first) / static_cast<uint64_t>(repeats);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best_s = std::min(best_s, took.count() / repeats);
    best_ticks = std::min(best_ticks, spent);
  }
  const double gmacs = macs / best_s * 1e-9;
  const double per_tick = best_ticks == 0 ? 0.0 : macs / static_cast<double>(best_ticks);
  const double gbs = static_cast<double>(num_panels * one) / best_s * 1e-9;
  const std::string name(table.name);
  std::printf("%-12s %-5s K %5zu tokens %3zu  %7.1f GMAC/s  %6.1f MAC/tick  %6.1f GB/s\n",
              name.c_str(), type_name(shape.type), shape.cols, tokens, gmacs, per_tick, gbs);
  std::printf(
      "{\"bench\":\"gemm\",\"isa\":\"%s\",\"type\":\"%s\",\"cols\":%zu,\"tokens\":%zu,\"cold\":%s,"
      "\"gmac_s\":%.2f,\"gb_s\":%.2f}\n",
      name.c_str(), type_name(shape.type), shape.cols, tokens, options.cold ? "true" : "false",
      gmacs, gbs);
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--smoke") {
      options.smoke = true;
    } else if (arg == "--cold") {
      options.cold = true;
    } else if (arg == "--isa" && i + 1 < argc) {
      options.isa = argv[++i];
    } else if (arg == "--type" && i + 1 < argc) {
      options.type = argv[++i];
    } else if (arg == "--tokens" && i + 1 < argc) {
      options.tokens = std::strtoul(argv[++i], nullptr, 10);
    } else {
      std::fprintf(
          stderr, "usage: gemm_bench [--smoke] [--isa NAME] [--type NAME] [--tokens N] [--cold]\n");
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 2;
  try {
    const KernelTable& table = select_kernels(cpu_features(), options.isa);
    for (const Shape& shape : kShapes) {
      if (!options.type.empty() && options.type != type_name(shape.type)) continue;
      for (size_t tokens : {1, 2, 4, 6, 8, 64}) {
        if (options.tokens == 0 || options.tokens == tokens) measure(table, shape, tokens, options);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gemm_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
