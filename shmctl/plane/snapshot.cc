// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/snapshot.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "shmctl/plane/ledger.h"

namespace gpushare {
namespace {

constexpr int kAttempts = 4;  // for a consistent snapshot

template <std::size_t N>
void terminate(char (&text)[N]) {
  text[N - 1] = '\0';
}

bool is_used(const TenantRecord& record) { return record.name[0] != '\0'; }
bool is_used(const ProcessRecord& record) { return record.pid != 0; }

bool makes_sense(const TenantRecord& record) { return record.priority <= Priority::kHigh; }
bool makes_sense(const ProcessRecord& record) {
  return record.pid > 0 && record.gpu < kMaxGpus && record.tenant < kMaxTenants &&
         record.state <= ProcessState::kObserveOnly;
}

void terminate_texts(TenantRecord& record) { terminate(record.name); }
void terminate_texts(ProcessRecord& record) {
  terminate(record.command);
  terminate(record.command_line);
  terminate(record.note);
}

template <class SlotOf, class T>
void copy_table(const SlotOf* table, uint32_t count, std::vector<Numbered<T>>& out,
                uint32_t& rejected) {
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (!is_written(table[slot].record)) continue;
    auto record = read_record(table[slot].record);
    if (record && !is_used(*record)) continue;
    if (!record || !makes_sense(*record)) {
      ++rejected;
      continue;
    }
    terminate_texts(*record);
    out.push_back({slot, *record});
  }
}

Result<PlaneSnapshot> copy_all(const Region& region) {
  PlaneSnapshot snapshot;
  const auto agent = read_record(region.agent);
  if (!agent)
    return make_error(std::errc::resource_unavailable_try_again, "read control plane",
                      "the agent's record changes faster than it can be read");
  snapshot.agent = *agent;
  terminate(snapshot.agent.driver_version);
  terminate(snapshot.agent.policy);
  terminate(snapshot.agent.observe_only_reason);

  snapshot.ending = read_record(region.ending).value_or(EndingRecord{});
  const uint32_t gpu_count = std::min(snapshot.agent.gpu_count, kMaxGpus);
  for (uint32_t index = 0; index < gpu_count; ++index) {
    auto gpu = read_record(region.gpus[index]);
    if (!gpu) {
      ++snapshot.rejected;
      continue;
    }
    terminate(gpu->uuid);
    terminate(gpu->name);
    terminate(gpu->pci);
    snapshot.gpus.push_back(*gpu);
  }
  copy_table(region.tenants, kMaxTenants, snapshot.tenants, snapshot.rejected);
  copy_table(region.processes, kMaxProcesses, snapshot.processes, snapshot.rejected);
  snapshot.waiting = read_waiting(region, snapshot.rejected);
  for_each_entry(region,
                 [&](uint32_t, const LedgerRecord& entry) { snapshot.ledger.push_back(entry); });
  return snapshot;
}

}  // namespace

std::vector<WaitingRecord> read_waiting(const Region& region, uint32_t& rejected) {
  std::vector<WaitingRecord> list;
  for (const Slot<WaitingRecord>& slot : region.waiting) {
    if (!is_written(slot)) continue;
    auto waiting = read_record(slot);
    if (!waiting) ++rejected;
    if (!waiting || waiting->pid <= 0) continue;
    terminate(waiting->command);
    terminate(waiting->why);
    list.push_back(*waiting);
  }
  return list;
}

Result<PlaneSnapshot> take_snapshot(const ControlPlane& plane) {
  const Region& region = plane.region();
  for (int attempt = 1;; ++attempt) {
    const uint64_t before = region.header.publication.load(std::memory_order_acquire);
    auto snapshot = copy_all(region);
    // Relaxed is enough: the acquires in read_record() keep this load behind them.
    const uint64_t after = region.header.publication.load(std::memory_order_relaxed);
    if (!snapshot) return snapshot;
    snapshot->is_consistent = before == after && before % 2 == 0;
    if (snapshot->is_consistent || attempt == kAttempts) return snapshot;
  }
}

Publication::Publication(Region& region) : region_(region) {
  // The new value is odd, and not the one that a dead writer left. Relaxed is enough: the release
  // stores in write_record() keep it before them. It pairs with the loads in take_snapshot().
  const uint64_t last = region_.header.publication.load(std::memory_order_relaxed);
  region_.header.publication.store(last + 1 + last % 2, std::memory_order_relaxed);
}

Publication::~Publication() {
  const uint64_t mine = region_.header.publication.load(std::memory_order_relaxed);
  // Pairs with the acquire in take_snapshot(): a reader that sees this value sees every record of
  // this publication.
  region_.header.publication.store(mine + 1, std::memory_order_release);
}

}  // namespace gpushare
