// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>
#include <thread>

#include "shmctl/plane/fields.h"
#include "shmctl/plane/ledger.h"
#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

TenantRecord tenant(std::string_view name) {
  TenantRecord record;
  put_text(record.name, name);
  return record;
}

TEST(Snapshot, OfAnEmptyRegionIsEmpty) {
  TempPlane plane;
  const auto snapshot = take_snapshot(plane.plane());
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->agent.agent_pid, 0u);
  EXPECT_TRUE(snapshot->gpus.empty());
  EXPECT_TRUE(snapshot->tenants.empty());
  EXPECT_TRUE(snapshot->processes.empty());
  EXPECT_TRUE(snapshot->ledger.empty());
  EXPECT_EQ(snapshot->rejected, 0u);
  EXPECT_TRUE(snapshot->is_consistent);
}

TEST(Snapshot, HoldsUsedSlotsWithTheirNumbers) {
  TempPlane plane;
  Region& region = plane.region();
  write_record(region.agent, AgentRecord{.agent_pid = 5, .gpu_count = 2});
  write_record(region.gpus[1], GpuRecord{.index = 1, .sm_count = 132});
  write_record(region.tenants[3].record, tenant("batch"));
  write_record(region.tenants[4].record, tenant("gone"));
  write_record(region.tenants[4].record, TenantRecord{});
  write_record(region.processes[1000].record, ProcessRecord{.pid = 77, .tenant = 3});
  Ledger ledger(region);
  ASSERT_TRUE(ledger.note_slice({.pid = 77}, 3, 2048));

  const auto reader = ControlPlane::open_read_only(plane.name());
  const auto snapshot = take_snapshot(*reader);
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->agent.agent_pid, 5u);
  ASSERT_EQ(snapshot->gpus.size(), 2u);
  EXPECT_EQ(snapshot->gpus[1].sm_count, 132u);
  EXPECT_EQ(snapshot->gpus[0].sm_count, kUnknown32);
  ASSERT_EQ(snapshot->tenants.size(), 1u);
  EXPECT_EQ(snapshot->tenants[0].slot, 3u);
  EXPECT_STREQ(snapshot->tenants[0].record.name, "batch");
  ASSERT_EQ(snapshot->processes.size(), 1u);
  EXPECT_EQ(snapshot->processes[0].slot, 1000u);
  EXPECT_EQ(snapshot->processes[0].record.pid, 77);
  ASSERT_EQ(snapshot->ledger.size(), 1u);
  EXPECT_EQ(snapshot->ledger[0].original_slice_us, 2048u);
}

TEST(Snapshot, TextsWithoutAnEndAreEnded) {
  TempPlane plane;
  TenantRecord endless_tenant;
  ProcessRecord endless_process{.pid = 1};
  AgentRecord endless_agent{.gpu_count = 1};
  GpuRecord endless_gpu;
  std::ranges::fill(endless_tenant.name, 'x');
  std::ranges::fill(endless_process.command_line, 'x');
  std::ranges::fill(endless_agent.observe_only_reason, 'x');
  std::ranges::fill(endless_gpu.pci, 'x');
  write_record(plane.region().tenants[0].record, endless_tenant);
  write_record(plane.region().processes[0].record, endless_process);
  write_record(plane.region().agent, endless_agent);
  write_record(plane.region().gpus[0], endless_gpu);

  const auto snapshot = take_snapshot(plane.plane());
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(std::strlen(snapshot->tenants[0].record.name), sizeof endless_tenant.name - 1);
  EXPECT_EQ(std::strlen(snapshot->processes[0].record.command_line),
            sizeof endless_process.command_line - 1);
  EXPECT_EQ(std::strlen(snapshot->agent.observe_only_reason),
            sizeof endless_agent.observe_only_reason - 1);
  EXPECT_EQ(std::strlen(snapshot->gpus[0].pci), sizeof endless_gpu.pci - 1);
}

TEST(Snapshot, RecordsThatPointOutsideTheTablesAreLeftOutAndCounted) {
  TempPlane plane;
  Region& region = plane.region();
  write_record(region.agent, AgentRecord{.gpu_count = 4'000'000});
  TenantRecord bad_priority = tenant("bad");
  bad_priority.priority = static_cast<Priority>(9);
  write_record(region.tenants[0].record, bad_priority);
  write_record(region.processes[0].record, ProcessRecord{.pid = 1, .gpu = kMaxGpus});
  write_record(region.processes[1].record, ProcessRecord{.pid = 1, .tenant = kMaxTenants});
  write_record(region.processes[2].record, ProcessRecord{.pid = -1});
  write_record(region.processes[3].record,
               ProcessRecord{.pid = 1, .state = static_cast<ProcessState>(77)});
  const auto snapshot = take_snapshot(plane.plane());
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->gpus.size(), kMaxGpus);
  EXPECT_TRUE(snapshot->tenants.empty());
  EXPECT_TRUE(snapshot->processes.empty());
  EXPECT_EQ(snapshot->rejected, 5u);
}

TEST(Snapshot, DuringAPublicationIsTakenAndSaysSo) {
  TempPlane plane;
  {
    Publication publication(plane.region());
    const auto snapshot = take_snapshot(plane.plane());
    ASSERT_TRUE(snapshot);
    EXPECT_FALSE(snapshot->is_consistent);
  }
  EXPECT_TRUE(take_snapshot(plane.plane())->is_consistent);
}

TEST(Snapshot, AWriterThatDiedInAPublicationIsHealedByTheNextOne) {
  TempPlane plane;
  plane.region().header.publication = 41;
  EXPECT_FALSE(take_snapshot(plane.plane())->is_consistent);
  {
    Publication publication(plane.region());
    EXPECT_FALSE(take_snapshot(plane.plane())->is_consistent);
  }
  EXPECT_TRUE(take_snapshot(plane.plane())->is_consistent);
  EXPECT_GT(plane.region().header.publication, 41u);
}

TEST(Snapshot, ConsistentOnesNeverMixTwoPublications) {
  constexpr uint64_t kTicks = 20'000;
  TempPlane plane;
  std::atomic<bool> is_done = false;
  uint64_t mixed = 0;
  {
    std::jthread reader([&] {
      while (!is_done) {
        const auto snapshot = take_snapshot(plane.plane());
        if (!snapshot || !snapshot->is_consistent) continue;
        for (const auto& process : snapshot->processes)
          mixed += process.record.freezes != snapshot->agent.ticks;
      }
    });
    for (uint64_t tick = 1; tick <= kTicks; ++tick) {
      Publication publication(plane.region());
      write_record(plane.region().agent, AgentRecord{.ticks = tick});
      for (uint32_t slot : {0u, 500u, kMaxProcesses - 1})
        write_record(plane.region().processes[slot].record,
                     ProcessRecord{.pid = 1, .freezes = tick});
    }
    is_done = true;
  }
  EXPECT_EQ(mixed, 0u);
  const auto last = take_snapshot(plane.plane());
  EXPECT_TRUE(last->is_consistent);
  EXPECT_EQ(last->processes.size(), 3u);
}

}  // namespace
}  // namespace gpushare
