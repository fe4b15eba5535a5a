// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/recovery.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "shmctl/plane/ledger.h"

namespace gpushare {
namespace {

// The agent freezes a channel once; more in the ledger means that its list of channels grew. A
// larger number is damage, and a surplus thaw is harmless.
constexpr uint32_t kMostFreezes = 16;

struct Entry {
  uint32_t index = 0;
  LedgerRecord record;
  bool is_undone = true;
  bool has_ended = false;  // its process
  ProcessId process() const { return {record.pid, record.start_ticks}; }
  // Not a group's channels are frozen, but the process is stopped (an MPS client).
  bool is_stop() const { return record.client == 0 && record.group == 0; }
  LedgerKey group() const {
    return {record.pid, record.start_ticks, record.gpu, record.client, record.group};
  }
};

bool is_gone(const Error& error) { return error.code == std::errc::no_such_process; }

// Thaws the entries once, each of which asks for it still. All in one call; if that fails, one by
// one, to tell whose channels resist.
void thaw_once(Gpu& gpu, uint32_t index, std::span<Entry* const> entries,
               std::vector<std::string>& errors) {
  const auto channels_of = [](const Entry& entry, std::vector<ChannelRef>& channels) {
    for (uint32_t i = 0; i < entry.record.channel_count; ++i)
      channels.push_back({entry.record.client, entry.record.channels[i]});
  };
  std::vector<ChannelRef> channels;
  for (const Entry* entry : entries) channels_of(*entry, channels);
  if (channels.empty() || gpu.thaw(index, channels)) return;
  for (Entry* entry : entries) {
    channels.clear();
    channels_of(*entry, channels);
    const Result<> thawed = gpu.thaw(index, channels);
    if (thawed || is_gone(thawed.error())) continue;
    entry->is_undone = false;
    errors.push_back(fmt::format("pid {}: {}", entry->record.pid, thawed.error().message()));
  }
}

RecoveryReport undo(Gpu& gpu, Ledger& ledger, const ProcReader& processes,
                    std::vector<Entry> entries) {
  RecoveryReport report;
  for (Entry& entry : entries) {
    entry.has_ended = processes.has_ended(entry.process());
    if (entry.has_ended) ++report.gone;
  }

  std::map<uint32_t, std::vector<Entry*>> frozen;  // by GPU
  std::set<ProcessId> thawed;
  for (Entry& entry : entries) {
    if (entry.record.freezes == 0) continue;
    if (!entry.is_stop()) {
      frozen[entry.record.gpu].push_back(&entry);
      continue;
    }
    if (entry.has_ended) continue;
    const Result<> resumed = gpu.resume(entry.process());
    entry.is_undone = resumed || is_gone(resumed.error());
    if (entry.is_undone)
      thawed.insert(entry.process());
    else
      report.errors.push_back(
          fmt::format("pid {}: {}", entry.record.pid, resumed.error().message()));
  }
  for (auto& [index, list] : frozen) {
    for (uint32_t round = 0; round < kMostFreezes && !list.empty(); ++round) {
      thaw_once(gpu, index, list, report.errors);
      std::erase_if(list, [&](const Entry* entry) {
        if (entry->is_undone && !entry->has_ended) thawed.insert(entry->process());
        return !entry->is_undone || round + 1 >= entry->record.freezes;
      });
    }
  }
  report.thawed.assign(thawed.begin(), thawed.end());

  for (Entry& entry : entries) {
    if (entry.record.slice_changed == 0 || entry.has_ended) continue;
    const GroupRef group{entry.process(), entry.record.fd, entry.record.client, entry.record.group};
    const Micros original(std::max(1u, entry.record.original_slice_us));
    const Result<> restored = gpu.set_slice(group, original);
    if (restored) {
      ++report.slices_restored;
    } else if (!is_gone(restored.error()) && !processes.has_ended(entry.process())) {
      entry.is_undone = false;
      report.errors.push_back(
          fmt::format("pid {}: {}", entry.record.pid, restored.error().message()));
    }
  }
  for (const Entry& entry : entries)
    if (entry.is_undone) ledger.clear(entry.index);
  return report;
}

}  // namespace

RecoveryReport recover(Gpu& gpu, Region& region, const ProcReader& processes) {
  Ledger ledger(region);
  std::vector<Entry> entries;
  ledger.for_each([&](uint32_t index, const LedgerRecord& record) {
    entries.push_back({.index = index, .record = record});
  });
  return undo(gpu, ledger, processes, std::move(entries));
}

RecoveryReport recover(Gpu& gpu, Ledger& ledger, const ProcReader& processes,
                       const std::set<LedgerKey>& groups) {
  std::vector<Entry> entries;
  ledger.for_each([&](uint32_t index, const LedgerRecord& record) {
    Entry entry{.index = index, .record = record};
    if (groups.contains(entry.group())) entries.push_back(entry);
  });
  return undo(gpu, ledger, processes, std::move(entries));
}

Result<uint32_t> thaw_everything(Gpu& gpu) {
  constexpr int kRounds = 4;  // freezes of one channel at a time that an agent can have left
  const auto users = gpu.users();
  if (!users) return std::unexpected(users.error());
  uint32_t programs = 0;
  for (const pid_t pid : *users) {
    const auto found = gpu.attach(pid)->finish();
    if (!found) continue;  // it has ended
    std::vector<ChannelRef> channels;
    for (const DriverEvent& event : *found)
      if (const auto* const channel = std::get_if<ChannelCreated>(&event.what))
        channels.push_back({channel->client, channel->channel});
    if (channels.empty()) continue;
    ++programs;
    // A GPU passes over the channels of others.
    for (const GpuInfo& info : gpu.gpus())
      for (int round = 0; round < kRounds; ++round) (void)gpu.thaw(info.index, channels);
  }
  return programs;
}

}  // namespace gpushare
