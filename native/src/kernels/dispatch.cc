// SPDX-License-Identifier: Apache-2.0
// The one place that chooses kernels.
#include <stdexcept>
#include <string>

#include "octavo/kernels.h"

namespace octavo {

namespace scalar {
extern const KernelTable kTable;
}
#if defined(__x86_64__)
namespace avx512 {
extern const KernelTable kTable;
}
namespace avxvnni {
extern const KernelTable kTable;
}
namespace avx2 {
extern const KernelTable kTable;
}
#endif

std::span<const KernelTable* const> compiled_kernels() {
  static constexpr const KernelTable* kTables[] = {
#if defined(__x86_64__)
      &avx512::kTable,
      &avxvnni::kTable,
      &avx2::kTable,
#endif
      &scalar::kTable,
  };
  return kTables;
}

const KernelTable& select_kernels(uint32_t features, std::optional<std::string_view> forced) {
  std::string choices;
  bool known = !forced;
  for (const KernelTable* table : compiled_kernels()) {
    known = known || *forced == table->name;
    if ((table->required & ~features) != 0) continue;
    if (!forced || *forced == table->name) return *table;
    choices += (choices.empty() ? "" : ", ") + std::string(table->name);
  }
  throw std::invalid_argument("kernel table '" + std::string(forced.value_or("")) + "' " +
                              (known ? "cannot run on this CPU" : "does not exist") +
                              "; this CPU can run: " + choices);
}

GemmKernels::GemmFn gemm_for(const GemmKernels& kernels, WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return kernels.f32;
    case WeightType::kF16:
      return kernels.f16;
    case WeightType::kBF16:
      return kernels.bf16;
    case WeightType::kQ8_0:
      return kernels.q8_0;
    case WeightType::kQ4_0:
      return kernels.q4_0;
    case WeightType::kQ4_1:
      return kernels.q4_1;
    case WeightType::kQ5_0:
      return kernels.q5_0;
    case WeightType::kQ5_1:
      return kernels.q5_1;
    case WeightType::kQ4_K:
      return kernels.q4_k;
    case WeightType::kQ5_K:
      return kernels.q5_k;
    case WeightType::kQ6_K:
      return kernels.q6_k;
  }
  throw std::invalid_argument("no kernel for tensor type " +
                              std::to_string(static_cast<uint32_t>(type)));
}

}  // namespace octavo
