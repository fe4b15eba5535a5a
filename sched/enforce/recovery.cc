// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/recovery.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "sched/enforce/controlled.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {
namespace {

// The agent freezes a channel once; more in the ledger means that its list of channels grew. A
// larger number is damage, and a surplus thaw is harmless.
constexpr uint32_t kMostFreezes = 16;

void add_channels(const LedgerRecord& record, std::vector<ChannelRef>& channels) {
  for (uint32_t i = 0; i < record.channel_count; ++i)
    channels.push_back({record.client, record.channels[i]});
}

std::string text_of(const LedgerRecord& record, const Error& error) {
  return fmt::format("pid {}: {}", record.pid, error.message());
}

}  // namespace

Recovery::Recovery(const Ledger& ledger, const ProcReader& processes,
                   const std::set<LedgerKey>* groups) {
  ledger.for_each([&](uint32_t index, const LedgerRecord& record) {
    Entry entry{.index = index, .record = record};
    if (groups != nullptr && !groups->contains(entry.group())) return;
    entry.has_ended = processes.has_ended(entry.process());
    if (entry.has_ended) ++report_.gone;
    entries_.push_back(std::move(entry));
  });
}

std::vector<ProcessId> Recovery::resume(Gpu& gpu) {
  return resume([&gpu](const ProcessId& process) { return gpu.resume(process); });
}

std::vector<ProcessId> Recovery::resume(const Resume& resume) {
  for (Entry& entry : entries_) {
    if (entry.record.freezes == 0 || !entry.is_stop() || entry.has_ended) continue;
    const Result<> resumed = resume(entry.process());
    entry.is_undone = has_undone(resumed);
    if (entry.is_undone)
      report_.thawed.push_back(entry.process());
    else
      report_.errors.push_back(text_of(entry.record, resumed.error()));
  }
  return report_.thawed;
}

void Recovery::carry_out(Gpu& gpu, const std::stop_token& stop) {
  std::map<uint32_t, std::vector<Entry*>> frozen;  // by GPU
  for (Entry& entry : entries_) {
    if (entry.record.freezes == 0 || entry.is_stop()) continue;
    frozen[entry.record.gpu].push_back(&entry);
    add_channels(entry.record, report_.channels);
  }
  for (auto& [index, list] : frozen) {
    for (uint32_t round = 0; round < kMostFreezes && !list.empty(); ++round) {
      if (stop.stop_requested()) break;
      thaw_once(gpu, index, list);
      std::erase_if(list, [&](const Entry* entry) {
        if (entry->is_undone && !entry->has_ended) report_.thawed.push_back(entry->process());
        return !entry->is_undone || round + 1 >= entry->record.freezes;
      });
    }
    if (stop.stop_requested())
      for (Entry* entry : list) entry->is_undone = false;
  }
  for (Entry& entry : entries_) {
    if (entry.record.slice_changed == 0 || entry.has_ended) continue;
    if (stop.stop_requested())
      entry.is_undone = false;
    else
      restore(gpu, entry);
  }
}

// Thaws the entries once, each of which asks for it still. All in one call; if that fails, one by
// one, to tell whose channels resist.
void Recovery::thaw_once(Gpu& gpu, uint32_t index, std::span<Entry* const> entries) {
  std::vector<ChannelRef> channels;
  for (const Entry* entry : entries) add_channels(entry->record, channels);
  if (channels.empty() || gpu.thaw(index, channels)) return;
  for (Entry* entry : entries) {
    channels.clear();
    add_channels(entry->record, channels);
    const Result<> thawed = gpu.thaw(index, channels);
    if (has_undone(thawed)) continue;
    entry->is_undone = false;
    report_.errors.push_back(text_of(entry->record, thawed.error()));
  }
}

void Recovery::restore(Gpu& gpu, Entry& entry) {
  const GroupRef group{entry.process(), entry.record.fd, entry.record.client, entry.record.group};
  const Result<> restored =
      gpu.set_slice(group, Micros(std::max(1u, entry.record.original_slice_us)));
  if (restored) ++report_.slices_restored;
  if (!has_undone(restored)) entry.refusal = restored.error();
}

void Recovery::judge_slices(const ProcReader& processes) {
  for (Entry& entry : entries_) {
    if (!entry.refusal || processes.has_ended(entry.process())) continue;
    entry.is_undone = false;
    report_.errors.push_back(text_of(entry.record, *entry.refusal));
  }
}

RecoveryReport Recovery::tell(const ProcReader& processes) {
  judge_slices(processes);
  return report();
}

RecoveryReport Recovery::finish(Ledger& ledger, const ProcReader& processes) {
  judge_slices(processes);
  for (const Entry& entry : entries_)
    if (entry.is_undone) ledger.clear(entry.index);
  return report();
}

RecoveryReport Recovery::report() {
  std::ranges::sort(report_.thawed);
  const auto twice = std::ranges::unique(report_.thawed);
  report_.thawed.erase(twice.begin(), twice.end());
  return std::move(report_);
}

RecoveryReport recover(Gpu& gpu, Region& region, const ProcReader& processes) {
  Ledger ledger(region);
  Recovery recovery(ledger, processes);
  recovery.resume(gpu);
  recovery.carry_out(gpu);
  return recovery.finish(ledger, processes);
}

Result<AllPrograms> find_all_programs(Gpu& gpu) {
  auto users = gpu.users();
  if (!users) return std::unexpected(users.error());
  AllPrograms all{.users = std::move(*users), .channels = {}, .is_complete = {}};
  for (const pid_t pid : all.users) {
    const auto found = gpu.attach(pid)->finish();
    if (!found && !is_gone(found.error()) && all.is_complete)
      all.is_complete = std::unexpected(found.error());
    if (!found) continue;
    for (const DriverEvent& event : *found)
      if (const auto* const channel = std::get_if<ChannelCreated>(&event.what))
        all.channels[pid].push_back({channel->client, channel->channel});
  }
  return all;
}

// A GPU passes over the channels of others.
Result<> thaw_all(Gpu& gpu, uint32_t index, const AllPrograms& programs) {
  constexpr int kRounds = 4;  // freezes of one channel at a time that an agent can have left
  Result<> first;
  for (const auto& [pid, channels] : programs.channels)
    for (int round = 0; round < kRounds; ++round)
      if (Result<> thawed = gpu.thaw(index, channels); !has_undone(thawed) && first)
        first = std::move(thawed);
  return first;
}

}  // namespace gpushare
