// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/support/fake_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "shmctl/plane/fields.h"

namespace gpushare {
namespace {

struct TenantSketch {
  const char* name;
  uint32_t weight;
  Priority priority;
  uint64_t quota_us;
};
constexpr std::array<TenantSketch, 4> kTenants{{
    {"default", 100, Priority::kNormal, kUnknown64},
    {"research", 300, Priority::kNormal, kUnknown64},
    {"capped", 100, Priority::kNormal, 20'000},
    {"batch", 100, Priority::kIdle, kUnknown64},
}};

struct ProcessSketch {
  uint32_t tenant;
  const char* command_line;
  ProcessState state;
  uint32_t slice_us, target, share;
  const char* note;
};
constexpr std::array<ProcessSketch, 7> kProcesses{{
    {1, "python train.py --epochs 90", ProcessState::kRunning, 6000, 600, 597, ""},
    {0, "./simulate", ProcessState::kRunning, 2000, 200, 203, ""},
    {2, "./render --scene castle.json", ProcessState::kFrozenCap, 2000, 200, 199, ""},
    {3, "./batch-a", ProcessState::kWaiting, 1, 0, 1, ""},
    {3, "./batch-b", ProcessState::kFrozenTurn, 1, 0, 0, ""},
    {0, "./old-driver", ProcessState::kObserveOnly, kUnknown32, kUnknown32, kUnknown32,
     "set slice: operation not permitted"},
    {0, "notebook", ProcessState::kFrozenUser, 2000, 0, 0, ""},
}};

// One tenant has a set of its own, two share one, and one has the rest.
void add_targets(std::vector<Numbered<TenantRecord>>& tenants) {
  const auto use = [&](size_t tenant) -> TenantGpuUse& { return tenants[tenant].record.gpu[0]; };
  use(0) = {.sms_entitled = 16,
            .sms_in_use = 16,
            .slo_state = SloState::kRest,
            .slo_us = 0,
            .sms_sharers = 1};
  use(1) = use_with_target(SloState::kGrows, 64, 20'000, 21'500, 30'100, 46'500);
  use(1).sms_in_use = 48;
  use(1).sms_knee = 96;
  use(1).sms_needed = 64;
  use(1).sms_sharers = 1;
  use(2) = use_with_target(SloState::kStarved, 40, 5'000, 7'250, 12'400, 137'900);
  use(2).iteration_source = 1;
  use(2).confidence_permille = 930;
  use(2).sms_needed = 56;
  use(2).sms_sharers = 2;
  use(3) = use(2);
  use(3).slo_state = SloState::kUnmeasured;
  use(3).latency_us = use(3).p99_us = use(3).iterations_per_ks = kUnknown32;
}

void add_counters(AgentRecord& agent, uint64_t step) {
  put_text(agent.observe_only_reason, "the driver refuses it");
  agent.events = 100 * step;
  agent.restarts = agent.events_dropped = step;
  agent.interferences = agent.false_claims = agent.mps_faults = static_cast<uint32_t>(step);
  agent.mps_clients = 2;
}

void add_turns(GpuRecord& gpu, uint64_t step) {
  put_text(gpu.uuid, fmt::format("GPU-{:08x}-0000-0000-0000-000000000000", gpu.index));
  put_text(gpu.pci, fmt::format("0000:{:02x}:00.0", 16 + gpu.index));
  gpu.log_records = 800 * step;
  gpu.log_lost = gpu.gaps = gpu.gaps_missed = step;
  gpu.gap_p50_us = 250;
  gpu.gap_p99_us = 1500;
}

void add_use(TenantRecord& tenant, uint32_t gpus, uint64_t step) {
  tenant.memory_max_bytes = uint64_t{32} << 30;
  tenant.turns = tenant.freezes = step;
  tenant.throttled_ns = tenant.frozen_turn_ns = tenant.frozen_user_ns = tenant.held_ns =
      step * 10'000'000;
  tenant.iteration_us = 300'000 * step;
  for (uint64_t& count : tenant.iteration_counts) count = step;
  for (uint32_t g = 0; g < gpus; ++g) {
    TenantGpuUse& use = tenant.gpu[g];
    use.gpu_time_ns = step * 50'000'000;
    use.share_permille = 100;
    use.target_permille = 600;
    use.phase = 2;  // ShimPhase::kDecode
  }
}

// After the processes, the first of which is in a tenant of Slurm's.
void add_all(PlaneSnapshot& snapshot, uint64_t step) {
  add_counters(snapshot.agent, step);
  for (GpuRecord& gpu : snapshot.gpus) add_turns(gpu, step);
  Numbered<TenantRecord> job{.slot = static_cast<uint32_t>(kTenants.size()), .record = {}};
  put_text(job.record.name, "slurm-7");
  if (!snapshot.processes.empty()) {
    ProcessRecord& first = snapshot.processes.front().record;
    --snapshot.tenants[first.tenant].record.process_count;
    first.tenant = job.slot;
    job.record.process_count = 1;
  }
  snapshot.tenants.push_back(job);
  for (auto& [slot, tenant] : snapshot.tenants)
    add_use(tenant, static_cast<uint32_t>(snapshot.gpus.size()), step);
  for (auto& [slot, process] : snapshot.processes) process.switches_per_s = 100 + slot;
}

ProcessRecord fake_process(const FakePlane& fake, uint32_t index, Time now) {
  const ProcessSketch& sketch = kProcesses[index % kProcesses.size()];
  ProcessRecord process;
  process.pid = static_cast<int32_t>(4000 + index);
  process.gpu = index % std::max(fake.gpus, 1u);
  process.tenant = sketch.tenant;
  process.state = sketch.state;
  process.slice_us = sketch.slice_us;
  process.target_permille = sketch.target;
  process.share_permille = sketch.share;
  process.has_bucket = sketch.state == ProcessState::kFrozenCap ? 1 : 0;
  process.tokens_ns = -12'300'000;
  process.memory_bytes = (uint64_t{index} + 1) << 30;
  process.state_since_ns = static_cast<uint64_t>(now.time_since_epoch().count());
  put_text(process.command_line, sketch.command_line);
  put_text(process.command, std::string_view(sketch.command_line).substr(0, 15));
  put_text(process.note, sketch.note);
  for (uint32_t i = 0; i < kHistory; ++i) {
    const uint64_t wave = (fake.step + i) * 37 % 200;
    process.history_permille[i] =
        sketch.share == kUnknown32 || i < 10
            ? 0xFFFF
            : static_cast<uint16_t>(std::min<uint64_t>(1000, sketch.share + wave));
  }
  return process;
}

}  // namespace

TenantGpuUse use_with_target(SloState state, uint32_t sms, uint32_t slo_us, uint32_t latency_us,
                             uint32_t p99_us, uint32_t iterations_per_ks) {
  TenantGpuUse use;
  use.sms_entitled = use.sms_in_use = sms;
  use.slo_state = state;
  use.slo_us = slo_us;
  use.latency_us = latency_us;
  use.p99_us = p99_us;
  use.iterations_per_ks = iterations_per_ks;
  use.iteration_source = 2;
  use.confidence_permille = 1000;
  return use;
}

PlaneSnapshot fake_snapshot(const FakePlane& fake, Time now) {
  PlaneSnapshot snapshot;
  snapshot.is_consistent = true;
  AgentRecord& agent = snapshot.agent;
  agent.agent_pid = fake.agent_pid;
  agent.published_ns = static_cast<uint64_t>(now.time_since_epoch().count());
  agent.started_ns = agent.published_ns - std::min<uint64_t>(agent.published_ns, 185'000'000'000);
  agent.tick_us = 2000;
  agent.gpu_count = fake.gpus;
  agent.can_freeze = agent.can_set_slice = agent.has_switch_log = 1;
  put_text(agent.policy, "fair");
  put_text(agent.driver_version, "580.159.04");
  for (uint32_t g = 0; g < fake.gpus; ++g) {
    GpuRecord gpu;
    gpu.index = g;
    gpu.busy_permille = 950 - 100 * (g % 9);
    gpu.switches_per_s = 400 + g;
    gpu.memory_bytes = uint64_t{141} << 30;
    gpu.memory_used_bytes = uint64_t{20} << 30;
    gpu.process_count = fake.processes / fake.gpus;
    gpu.tenant_count = 4;
    put_text(gpu.name, "NVIDIA H200");
    snapshot.gpus.push_back(gpu);
  }
  for (uint32_t t = 0; t < kTenants.size(); ++t) {
    Numbered<TenantRecord> tenant{.slot = t, .record = {}};
    put_text(tenant.record.name, kTenants[t].name);
    tenant.record.weight = kTenants[t].weight;
    tenant.record.priority = kTenants[t].priority;
    tenant.record.quota_us = kTenants[t].quota_us;
    snapshot.tenants.push_back(tenant);
  }
  if (fake.has_targets || fake.has_all) add_targets(snapshot.tenants);
  if (fake.has_waiting || fake.has_all) snapshot.waiting.push_back({.pid = 9000});
  for (uint32_t p = 0; p < fake.processes; ++p) {
    snapshot.processes.push_back({.slot = p, .record = fake_process(fake, p, now)});
    if (fake.has_jobs || fake.has_all) {
      snapshot.processes.back().record.job = 1 + p;
      snapshot.processes.back().record.turn = TurnState::kHeld;
    }
    ++snapshot.tenants[snapshot.processes.back().record.tenant].record.process_count;
  }
  if (fake.has_all) add_all(snapshot, fake.step);
  return snapshot;
}

void write_plane(Region& region, const PlaneSnapshot& snapshot) {
  const Publication publication(region);
  write_record(region.agent, snapshot.agent);
  for (const GpuRecord& gpu : snapshot.gpus) write_record(region.gpus[gpu.index], gpu);
  for (const auto& [slot, record] : snapshot.tenants)
    write_record(region.tenants[slot].record, record);
  for (const auto& [slot, record] : snapshot.processes)
    write_record(region.processes[slot].record, record);
}

}  // namespace gpushare
