// SPDX-License-Identifier: Apache-2.0
// Which table is chosen, and that a forced name is obeyed or refused.
#include <set>
#include <stdexcept>
#include <string>

#include "check.h"
#include "matrices.h"
#include "octavo/kernels.h"

namespace {

using namespace octavo;
using namespace octavo::testing;

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
  CHECK_EQ(std::string(select_kernels(0, "").name), std::string("scalar"));
  CHECK_EQ(&select_kernels(~0u, ""), compiled_kernels().front());
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

TEST(what_did_not_run_is_said) {
  for (const KernelTable* table : compiled_kernels()) {
    const bool runs = (table->required & ~cpu_features()) == 0;
    std::printf("     table %s: %s\n", std::string(table->name).c_str(),
                runs ? "tested" : "NOT TESTED, this CPU cannot run it");
  }
  CHECK(!runnable_tables().empty());
}

}  // namespace

CHECK_MAIN()
