// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/percent_partitions.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

constexpr uint32_t kGroups = 16;

struct PercentRow {
  const char* description;
  bool has_overlap;
  std::vector<std::optional<uint32_t>> percents;  // of the tenants 0, 1, ...
  std::vector<PlannedPartition> partitions;
};
void PrintTo(const PercentRow& row, std::ostream* out) { *out << row.description; }

class PartitionsByPercent : public testing::TestWithParam<PercentRow> {};

TEST_P(PartitionsByPercent, Are) {
  const PercentRow& row = GetParam();
  std::vector<TenantView> tenants;
  for (std::size_t i = 0; i < row.percents.size(); ++i)
    tenants.push_back(
        {.id = static_cast<uint32_t>(i), .sm_percent = row.percents[i], .has_shim = true});
  Snapshot snapshot{.tenants = tenants};
  snapshot.gpu.geometry.groups = kGroups;
  snapshot.gpu.has_overlap = row.has_overlap;
  const auto planned = partitions_by_percent(snapshot);
  ASSERT_EQ(planned.size(), row.partitions.size());
  for (std::size_t i = 0; i < planned.size(); ++i) {
    EXPECT_EQ(planned[i].tenants, row.partitions[i].tenants) << i;
    EXPECT_EQ(planned[i].groups, row.partitions[i].groups) << i;
    EXPECT_EQ(planned[i].idle_after, row.partitions[i].idle_after) << i;
  }
}

PlannedPartition part(std::vector<uint32_t> tenants, uint32_t groups,
                      Nanos idle_after = PlannedPartition::kIdleAfter) {
  return {.tenants = std::move(tenants), .groups = groups, .idle_after = idle_after};
}

TEST(PartitionsByPercentLend, AtOnceWhereThatIsAskedFor) {
  std::vector<TenantView> tenants{{.id = 0, .sm_percent = 40, .has_shim = true},
                                  {.id = 1, .sm_percent = 60, .has_shim = true}};
  Snapshot snapshot{.tenants = tenants};
  snapshot.gpu.geometry.groups = kGroups;
  for (const PlannedPartition& one : partitions_by_percent(snapshot))
    EXPECT_FALSE(one.is_returned_at_once) << "its next launches run in what it has kept";
  for (const PlannedPartition& one :
       partitions_by_percent(snapshot, std::chrono::milliseconds(4))) {
    EXPECT_EQ(one.idle_after, std::chrono::milliseconds(4));
    EXPECT_TRUE(one.is_returned_at_once);
  }
  tenants.pop_back();
  snapshot.tenants = tenants;
  EXPECT_EQ(partitions_by_percent(snapshot, std::chrono::milliseconds(4)).front().idle_after,
            Nanos::max())
      << "there is nobody to lend to";
}

INSTANTIATE_TEST_SUITE_P(
    Rows, PartitionsByPercent,
    testing::Values(
        PercentRow{"nobody", true, {}, {}},
        PercentRow{"apart", false, {50, 25, {}}, {part({0}, 8), part({1}, 4), part({2}, kGroups)}},
        PercentRow{"all together", true, {{}, {}, {}}, {part({0, 1, 2}, kGroups, Nanos::max())}},
        PercentRow{"in what one leaves", true, {{}, 50, {}}, {part({1}, 8), part({0, 2}, 8)}},
        PercentRow{"nothing is left", true, {100, {}}, {part({0}, kGroups), part({1}, 1)}},
        PercentRow{"more than all is asked for",
                   true,
                   {75, 75, {}},
                   {part({0}, 12), part({1}, 12), part({2}, 1)}},
        PercentRow{"all ask", true, {25, 75}, {part({0}, 4), part({1}, 12)}}));

}  // namespace
}  // namespace gpushare
