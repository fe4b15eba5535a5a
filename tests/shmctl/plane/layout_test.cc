// SPDX-License-Identifier: Apache-2.0
// Compares shmctl/LAYOUT.md with the compiler: every documented member lies where the document
// says, and every member is documented. It must run in the repository's root, as `make test` does.
#include "shmctl/plane/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace gpushare {
namespace {

struct Member {
  std::string of;
  std::string name;
  std::size_t offset;
  std::size_t size;
};

#define MEMBER(Struct, member) \
  Member { #Struct, #member, offsetof(Struct, member), sizeof(Struct::member) }

// In declaration order; RecordsHaveNoHoles fails when one is missing.
const Member kMembers[] = {
    MEMBER(Region, header),
    MEMBER(Region, agent),
    MEMBER(Region, gpus),
    MEMBER(Region, tenants),
    MEMBER(Region, processes),
    MEMBER(Region, ledger),
    MEMBER(Region, ending),
    MEMBER(Region, roster),
    MEMBER(Region, roster_tenants),
    MEMBER(Region, roster_processes),
    MEMBER(Region, roster_scopes),
    MEMBER(Region, waiting),
    MEMBER(Region, owners),
    MEMBER(Region, owner_entries),
    MEMBER(RegionHeader, magic),
    MEMBER(RegionHeader, version),
    MEMBER(RegionHeader, header_bytes),
    MEMBER(RegionHeader, region_bytes),
    MEMBER(RegionHeader, max_gpus),
    MEMBER(RegionHeader, max_tenants),
    MEMBER(RegionHeader, max_processes),
    MEMBER(RegionHeader, max_ledger),
    MEMBER(RegionHeader, created_ns),
    MEMBER(RegionHeader, publication),
    MEMBER(RegionHeader, ledger_format),
    MEMBER(RegionHeader, ledger_offset),
    MEMBER(Slot<AgentRecord>, version),
    MEMBER(Slot<AgentRecord>, copies),
    MEMBER(Slot<GpuRecord>, version),
    MEMBER(Slot<GpuRecord>, copies),
    MEMBER(Slot<TenantRecord>, version),
    MEMBER(Slot<TenantRecord>, copies),
    MEMBER(Slot<ProcessRecord>, version),
    MEMBER(Slot<ProcessRecord>, copies),
    MEMBER(Slot<LedgerRecord>, version),
    MEMBER(Slot<LedgerRecord>, copies),
    MEMBER(Slot<EndingRecord>, version),
    MEMBER(Slot<EndingRecord>, copies),
    MEMBER(Slot<RosterHead>, version),
    MEMBER(Slot<RosterHead>, copies),
    MEMBER(Slot<RosterTenant>, version),
    MEMBER(Slot<RosterTenant>, copies),
    MEMBER(Slot<RosterProcess>, version),
    MEMBER(Slot<RosterProcess>, copies),
    MEMBER(Slot<RosterScope>, version),
    MEMBER(Slot<RosterScope>, copies),
    MEMBER(Slot<WaitingRecord>, version),
    MEMBER(Slot<WaitingRecord>, copies),
    MEMBER(Slot<OwnersHead>, version),
    MEMBER(Slot<OwnersHead>, copies),
    MEMBER(Slot<OwnerRecord>, version),
    MEMBER(Slot<OwnerRecord>, copies),
    MEMBER(TenantSlot, record),
    MEMBER(TenantSlot, buckets),
    MEMBER(ProcessSlot, record),
    MEMBER(ProcessSlot, bucket),
    // Private members; WordsOfABucket checks them by what they hold.
    Member{"TokenBucket", "state", 0, 8},
    Member{"TokenBucket", "refilled_ns", 8, 8},
    Member{"TokenBucket", "quota_ns_0", 16, 8},
    Member{"TokenBucket", "period_ns_0", 24, 8},
    Member{"TokenBucket", "burst_ns_0", 32, 8},
    Member{"TokenBucket", "quota_ns_1", 40, 8},
    Member{"TokenBucket", "period_ns_1", 48, 8},
    Member{"TokenBucket", "burst_ns_1", 56, 8},
    MEMBER(AgentRecord, agent_pid),
    MEMBER(AgentRecord, supervisor_pid),
    MEMBER(AgentRecord, started_ns),
    MEMBER(AgentRecord, published_ns),
    MEMBER(AgentRecord, ticks),
    MEMBER(AgentRecord, events),
    MEMBER(AgentRecord, events_dropped),
    MEMBER(AgentRecord, restarts),
    MEMBER(AgentRecord, gpu_count),
    MEMBER(AgentRecord, is_simulated),
    MEMBER(AgentRecord, tick_us),
    MEMBER(AgentRecord, can_freeze),
    MEMBER(AgentRecord, can_set_slice),
    MEMBER(AgentRecord, has_switch_log),
    MEMBER(AgentRecord, are_tenants_in_sysfs),
    MEMBER(AgentRecord, false_claims),
    MEMBER(AgentRecord, driver_version),
    MEMBER(AgentRecord, policy),
    MEMBER(AgentRecord, mps_pid),
    MEMBER(AgentRecord, mps_state),
    MEMBER(AgentRecord, mps_clients),
    MEMBER(AgentRecord, mps_faults),
    MEMBER(AgentRecord, observe_only_reason),
    MEMBER(AgentRecord, interferences),
    MEMBER(AgentRecord, reserved),
    MEMBER(GpuRecord, index),
    MEMBER(GpuRecord, instance),
    MEMBER(GpuRecord, sm_count),
    MEMBER(GpuRecord, busy_permille),
    MEMBER(GpuRecord, switches_per_s),
    MEMBER(GpuRecord, process_count),
    MEMBER(GpuRecord, tenant_count),
    MEMBER(GpuRecord, sharing),
    MEMBER(GpuRecord, memory_bytes),
    MEMBER(GpuRecord, memory_used_bytes),
    MEMBER(GpuRecord, log_records),
    MEMBER(GpuRecord, log_lost),
    MEMBER(GpuRecord, uuid),
    MEMBER(GpuRecord, name),
    MEMBER(GpuRecord, pci),
    MEMBER(GpuRecord, policy),
    MEMBER(GpuRecord, gaps),
    MEMBER(GpuRecord, gaps_missed),
    MEMBER(GpuRecord, gap_p50_us),
    MEMBER(GpuRecord, gap_p99_us),
    MEMBER(TenantRecord, name),
    MEMBER(TenantRecord, weight),
    MEMBER(TenantRecord, priority),
    MEMBER(TenantRecord, quota_us),
    MEMBER(TenantRecord, period_us),
    MEMBER(TenantRecord, memory_max_bytes),
    MEMBER(TenantRecord, sm_percent),
    MEMBER(TenantRecord, slo_us),
    MEMBER(TenantRecord, process_count),
    MEMBER(TenantRecord, frozen_by_user),
    MEMBER(TenantRecord, throttled_ns),
    MEMBER(TenantRecord, freezes),
    MEMBER(TenantRecord, memory_bytes),
    MEMBER(TenantRecord, length_us),
    MEMBER(TenantRecord, iterations),
    MEMBER(TenantRecord, phase),
    MEMBER(TenantRecord, gang),
    MEMBER(TenantRecord, sm_min),
    MEMBER(TenantRecord, sm_shown),
    MEMBER(TenantRecord, frozen_turn_ns),
    MEMBER(TenantRecord, frozen_user_ns),
    MEMBER(TenantRecord, turns),
    MEMBER(TenantRecord, held_ns),
    MEMBER(TenantRecord, iteration_us),
    MEMBER(TenantRecord, iteration_counts),
    MEMBER(TenantRecord, gpu),
    MEMBER(TenantGpuUse, gpu_time_ns),
    MEMBER(TenantGpuUse, share_permille),
    MEMBER(TenantGpuUse, target_permille),
    MEMBER(TenantGpuUse, sms_entitled),
    MEMBER(TenantGpuUse, sms_in_use),
    MEMBER(TenantGpuUse, slo_state),
    MEMBER(TenantGpuUse, slo_us),
    MEMBER(TenantGpuUse, latency_us),
    MEMBER(TenantGpuUse, p99_us),
    MEMBER(TenantGpuUse, iterations_per_ks),
    MEMBER(TenantGpuUse, iteration_source),
    MEMBER(TenantGpuUse, confidence_permille),
    MEMBER(TenantGpuUse, sms_knee),
    MEMBER(TenantGpuUse, sms_needed),
    MEMBER(TenantGpuUse, sms_sharers),
    MEMBER(TenantGpuUse, sms_set),
    MEMBER(TenantGpuUse, sms_follows),
    MEMBER(TenantGpuUse, phase),
    MEMBER(TenantGpuUse, reserved),
    MEMBER(ProcessRecord, pid),
    MEMBER(ProcessRecord, ns_pid),
    MEMBER(ProcessRecord, start_ticks),
    MEMBER(ProcessRecord, uid),
    MEMBER(ProcessRecord, gpu),
    MEMBER(ProcessRecord, tenant),
    MEMBER(ProcessRecord, state),
    MEMBER(ProcessRecord, cgroup_id),
    MEMBER(ProcessRecord, slice_us),
    MEMBER(ProcessRecord, target_permille),
    MEMBER(ProcessRecord, share_permille),
    MEMBER(ProcessRecord, is_late_attach),
    MEMBER(ProcessRecord, tokens_ns),
    MEMBER(ProcessRecord, has_bucket),
    MEMBER(ProcessRecord, switches_per_s),
    MEMBER(ProcessRecord, gpu_time_ns),
    MEMBER(ProcessRecord, memory_bytes),
    MEMBER(ProcessRecord, freezes),
    MEMBER(ProcessRecord, throttled_ns),
    MEMBER(ProcessRecord, state_since_ns),
    MEMBER(ProcessRecord, command),
    MEMBER(ProcessRecord, command_line),
    MEMBER(ProcessRecord, note),
    MEMBER(ProcessRecord, history_permille),
    MEMBER(ProcessRecord, job),
    MEMBER(ProcessRecord, job_arrived_ns),
    MEMBER(ProcessRecord, job_service_ns),
    MEMBER(ProcessRecord, job_left_us),
    MEMBER(ProcessRecord, job_iterations),
    MEMBER(ProcessRecord, turn_since_ns),
    MEMBER(ProcessRecord, run),
    MEMBER(ProcessRecord, job_place),
    MEMBER(ProcessRecord, job_left_by),
    MEMBER(ProcessRecord, turn),
    MEMBER(LedgerRecord, pid),
    MEMBER(LedgerRecord, fd),
    MEMBER(LedgerRecord, start_ticks),
    MEMBER(LedgerRecord, gpu),
    MEMBER(LedgerRecord, client),
    MEMBER(LedgerRecord, group),
    MEMBER(LedgerRecord, slice_changed),
    MEMBER(LedgerRecord, original_slice_us),
    MEMBER(LedgerRecord, freezes),
    MEMBER(LedgerRecord, channel_count),
    MEMBER(LedgerRecord, part),
    MEMBER(LedgerRecord, channels),
    MEMBER(EndingRecord, agent_pid),
    MEMBER(EndingRecord, kind),
    MEMBER(EndingRecord, code),
    MEMBER(EndingRecord, reserved),
    MEMBER(EndingRecord, ended_ns),
    MEMBER(RosterHead, are_tenants_in_sysfs),
    MEMBER(RosterHead, module_instance),
    MEMBER(RosterTenant, name),
    MEMBER(RosterTenant, flags),
    MEMBER(RosterTenant, set),
    MEMBER(RosterTenant, weight),
    MEMBER(RosterTenant, priority),
    MEMBER(RosterTenant, quota_us),
    MEMBER(RosterTenant, period_us),
    MEMBER(RosterTenant, memory_max_bytes),
    MEMBER(RosterTenant, sm_percent),
    MEMBER(RosterTenant, slo_us),
    MEMBER(RosterTenant, length_us),
    MEMBER(RosterTenant, iterations),
    MEMBER(RosterTenant, phase),
    MEMBER(RosterTenant, gang),
    MEMBER(RosterTenant, sm_min),
    MEMBER(RosterTenant, sm_shown),
    MEMBER(RosterProcess, pid),
    MEMBER(RosterProcess, tenant),
    MEMBER(RosterProcess, start_ticks),
    MEMBER(RosterProcess, flags),
    MEMBER(RosterProcess, run),
    MEMBER(RosterScope, cgroup),
    MEMBER(RosterScope, tenant),
    MEMBER(RosterScope, reserved),
    MEMBER(WaitingRecord, pid),
    MEMBER(WaitingRecord, uid),
    MEMBER(WaitingRecord, start_ticks),
    MEMBER(WaitingRecord, since_ns),
    MEMBER(WaitingRecord, memory_bytes),
    MEMBER(WaitingRecord, length_us),
    MEMBER(WaitingRecord, gpu),
    MEMBER(WaitingRecord, reserved),
    MEMBER(WaitingRecord, command),
    MEMBER(WaitingRecord, why),
    MEMBER(OwnersHead, driver_load),
    MEMBER(OwnerRecord, pid),
    MEMBER(OwnerRecord, uid),
    MEMBER(OwnerRecord, start_ticks),
    MEMBER(OwnerRecord, run),
    MEMBER(OwnerRecord, reserved),
    MEMBER(OwnerRecord, job_arrived_ns),
    MEMBER(OwnerRecord, job_service_ns),
    MEMBER(OwnerRecord, tenant),
    MEMBER(OwnerRecord, command),
    MEMBER(OwnerRecord, command_line),
    MEMBER(OwnerRecord, clients),
};
#undef MEMBER

const std::map<std::string, std::size_t> kSizes = {
    {"Region", sizeof(Region)},
    {"RegionHeader", sizeof(RegionHeader)},
    {"Slot<AgentRecord>", sizeof(Slot<AgentRecord>)},
    {"Slot<GpuRecord>", sizeof(Slot<GpuRecord>)},
    {"Slot<TenantRecord>", sizeof(Slot<TenantRecord>)},
    {"Slot<ProcessRecord>", sizeof(Slot<ProcessRecord>)},
    {"Slot<LedgerRecord>", sizeof(Slot<LedgerRecord>)},
    {"Slot<EndingRecord>", sizeof(Slot<EndingRecord>)},
    {"Slot<RosterHead>", sizeof(Slot<RosterHead>)},
    {"Slot<RosterTenant>", sizeof(Slot<RosterTenant>)},
    {"Slot<RosterProcess>", sizeof(Slot<RosterProcess>)},
    {"Slot<RosterScope>", sizeof(Slot<RosterScope>)},
    {"Slot<WaitingRecord>", sizeof(Slot<WaitingRecord>)},
    {"Slot<OwnersHead>", sizeof(Slot<OwnersHead>)},
    {"Slot<OwnerRecord>", sizeof(Slot<OwnerRecord>)},
    {"TenantSlot", sizeof(TenantSlot)},
    {"ProcessSlot", sizeof(ProcessSlot)},
    {"TokenBucket", sizeof(TokenBucket)},
    {"AgentRecord", sizeof(AgentRecord)},
    {"GpuRecord", sizeof(GpuRecord)},
    {"TenantRecord", sizeof(TenantRecord)},
    {"TenantGpuUse", sizeof(TenantGpuUse)},
    {"ProcessRecord", sizeof(ProcessRecord)},
    {"LedgerRecord", sizeof(LedgerRecord)},
    {"EndingRecord", sizeof(EndingRecord)},
    {"RosterHead", sizeof(RosterHead)},
    {"RosterTenant", sizeof(RosterTenant)},
    {"RosterProcess", sizeof(RosterProcess)},
    {"RosterScope", sizeof(RosterScope)},
    {"WaitingRecord", sizeof(WaitingRecord)},
    {"OwnersHead", sizeof(OwnersHead)},
    {"OwnerRecord", sizeof(OwnerRecord)},
};

struct Document {
  std::string title;
  std::map<std::string, std::size_t> sizes;  // by struct, from the headings
  std::vector<Member> members;               // from the tables
};

Document read_document() {
  Document document;
  std::ifstream file("shmctl/LAYOUT.md");
  if (!file) ADD_FAILURE() << "shmctl/LAYOUT.md is not here; run this in the repository's root";
  std::string of;
  for (std::string line; std::getline(file, line);) {
    char name[64] = "";
    std::size_t offset = 0, size = 0;
    if (document.title.empty()) document.title = line;
    if (line.starts_with("#")) {
      std::erase_if(line, [](char c) { return c == '#' || c == '`'; });
      if (std::sscanf(line.c_str(), " %63s (%zu bytes)", name, &size) == 2)
        document.sizes[of = name] = size;
    } else if (std::sscanf(line.c_str(), "| %zu | %zu | `%63[a-z_0-9]` |", &offset, &size, name) ==
               3) {
      document.members.push_back({of, name, offset, size});
    }
  }
  return document;
}

std::vector<std::string> as_text(const auto& members) {
  std::vector<std::string> text;
  text.reserve(std::size(members));
  for (const Member& member : members)
    text.push_back(member.of + "." + member.name + " at " + std::to_string(member.offset) + ", " +
                   std::to_string(member.size) + " bytes");
  std::ranges::sort(text);
  return text;
}

TEST(Layout, DocumentIsOfThisVersion) {
  EXPECT_TRUE(read_document().title.ends_with("version " + std::to_string(kLayoutVersion)));
}

TEST(Layout, DocumentAndCompilerAgreeOnEveryMember) {
  EXPECT_EQ(as_text(read_document().members), as_text(kMembers));
}

TEST(Layout, DocumentAndCompilerAgreeOnEverySize) { EXPECT_EQ(read_document().sizes, kSizes); }

TEST(Layout, RecordsHaveNoHoles) {
  // What holds slots or buckets is aligned to 64; all else is packed by padding members of its own.
  const auto round_up = [](const std::string& of, std::size_t offset) {
    const bool is_aligned = of == "Region" || of.ends_with("Slot") || of.starts_with("Slot<");
    return is_aligned ? (offset + 63) / 64 * 64 : offset;
  };
  std::map<std::string, std::size_t> ends;
  for (const Member& member : kMembers) {
    std::size_t& end = ends[member.of];
    EXPECT_GE(member.offset, end) << member.of << "." << member.name;
    EXPECT_LE(member.offset, round_up(member.of, end))
        << "something lies before " << member.of << "." << member.name;
    end = member.offset + member.size;
  }
  for (const auto& [of, size] : kSizes)
    EXPECT_EQ(round_up(of, ends[of]), size) << "something lies at the end of " << of;
}

TEST(Layout, WordsOfABucketLieAsDocumented) {
  using namespace std::chrono_literals;
  TokenBucket bucket{};
  bucket.configure(3ms, 10ms, 4ms, Time(1s));
  bucket.configure(5ms, 20ms, 6ms, Time(1s));
  bucket.charge(1ms);
  int64_t words[8];
  static_assert(sizeof words == sizeof bucket);
  std::memcpy(words, &bucket, sizeof words);
  const int64_t spent = 250'000'000 - 4'000'000 + 1'000'000;  // C(1 s) less the tokens, the charge
  const int64_t expected[8] = {spent << 6 | 2, 1'000'000'000, 5'000'000,  20'000'000,
                               6'000'000,      3'000'000,     10'000'000, 4'000'000};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(words[i], expected[i]) << "word " << i;
}

}  // namespace
}  // namespace gpushare
