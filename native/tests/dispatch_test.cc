// SPDX-License-Identifier: Apache-2.0
// Which table is chosen, and that a forced name is obeyed or refused.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "check.h"
#include "kernel_tables.h"
#include "matrices.h"
#include "octavo/kernels.h"

namespace {

using namespace octavo;
using namespace octavo::testing;
using check::runnable_tables;

std::string refusal(uint32_t features, std::string_view forced) {
  try {
    select_kernels(features, forced);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(the_list_is_complete_and_ends_with_scalar) {
  std::set<std::string> names;
  for (const KernelTable* table : compiled_kernels()) {
    names.insert(std::string(table->name));
    CHECK(table->gemm != nullptr && table->attention != nullptr && table->vector != nullptr);
    for (WeightType type : kAllTypes) CHECK(gemm_for(*table->gemm, type) != nullptr);
    CHECK(table->gemm->quantize_a8 != nullptr && table->gemm->quantize_a16 != nullptr);
  }
  CHECK_EQ(names.size(), compiled_kernels().size());
  CHECK_EQ(std::string(compiled_kernels().back()->name), std::string("scalar"));
  CHECK_EQ(compiled_kernels().back()->required, 0u);
}

TEST(every_type_has_its_own_kernel) {
  for (const KernelTable* table : compiled_kernels()) {
    std::set<void*> kernels;
    for (WeightType type : kAllTypes) {
      kernels.insert(reinterpret_cast<void*>(gemm_for(*table->gemm, type)));
    }
    CHECK_EQ(kernels.size(), std::size(kAllTypes));
  }
  CHECK_THROWS(gemm_for(*compiled_kernels().back()->gemm, static_cast<WeightType>(9)),
               std::invalid_argument);
}

TEST(the_best_table_that_can_run_is_chosen) {
  CHECK_EQ(std::string(select_kernels(0, {}).name), std::string("scalar"));
  CHECK_EQ(&select_kernels(~0u, {}), compiled_kernels().front());
  for (const KernelTable* table : compiled_kernels()) {
    CHECK_EQ(&select_kernels(table->required, table->name), table);
  }
}

TEST(a_forced_name_gives_that_table_and_its_own_code) {
  std::set<void*> kernels;
  for (const KernelTable* table : runnable_tables()) {
    const KernelTable& chosen = select_kernels(cpu_features(), table->name);
    CHECK_EQ(&chosen, table);
    kernels.insert(reinterpret_cast<void*>(chosen.gemm->q4_1));
  }
  CHECK_EQ(kernels.size(), runnable_tables().size());
}

TEST(an_unknown_name_is_refused_with_the_choices) {
  const std::string message = refusal(cpu_features(), "axv2");
  CHECK(message.find("'axv2' does not exist") != std::string::npos);
  for (const KernelTable* table : runnable_tables()) {
    CHECK(message.find(table->name) != std::string::npos);
  }
}

TEST(a_table_that_cannot_run_here_is_refused) {
  for (const KernelTable* table : compiled_kernels()) {
    if (table->required == 0) continue;
    const std::string message = refusal(table->required & (table->required - 1), table->name);
    CHECK(message.find("cannot run on this CPU") != std::string::npos);
    CHECK(message.find("scalar") != std::string::npos);
  }
}

// kAllTypes is what the other tests iterate over: a format that is missing there would go untested.
TEST(every_supported_type_is_on_the_list_of_the_tests) {
  for (uint32_t number = 0; number < 256; ++number) {
    const auto type = static_cast<WeightType>(number);
    CHECK_EQ(is_supported(type), std::ranges::count(kAllTypes, type) == 1);
  }
}

}  // namespace

CHECK_MAIN()
