// SPDX-License-Identifier: Apache-2.0
// The kernel tables that this machine can run, for tests that must hold on each of them.
#pragma once
#include <cstdio>
#include <vector>

#include "octavo/kernels.h"

namespace octavo::check {

// Says aloud which compiled tables are left out: an unseen skip looks like a pass.
inline const std::vector<const KernelTable*>& runnable_tables() {
  static const std::vector<const KernelTable*> tables = [] {
    std::vector<const KernelTable*> usable;
    for (const KernelTable* table : compiled_kernels()) {
      const bool runs = (table->required & ~cpu_features()) == 0;
      std::printf("table %.*s: %s\n", static_cast<int>(table->name.size()), table->name.data(),
                  runs ? "tested" : "NOT TESTED, this machine cannot run it");
      if (runs) usable.push_back(table);
    }
    return usable;
  }();
  return tables;
}

inline const KernelTable& scalar_table() { return *compiled_kernels().back(); }

}  // namespace octavo::check
