// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/ledger.h"

#include <fmt/core.h>

#include <algorithm>

namespace gpushare {
namespace {

// A process gets so many entries as long as there are any, and more only of those that are not
// reserved for the small shares of others: a part of what is free, so that many such processes
// together leave something, too.
constexpr std::size_t kSmallShare = 4, kReserved = 512, kLargestPart = 4;

std::size_t most_entries(std::size_t free) {
  const std::size_t rest = free > kReserved ? free - kReserved : 0;
  return std::max(kSmallShare, rest / kLargestPart);
}

LedgerKey key_of(const LedgerRecord& record) {
  return {record.pid, record.start_ticks, record.gpu, record.client, record.group};
}

LedgerRecord new_record(const LedgerKey& key) {
  LedgerRecord record;
  record.pid = key.pid;
  record.start_ticks = key.start_ticks;
  record.gpu = key.gpu;
  record.client = key.client;
  record.group = key.group;
  return record;
}

std::size_t parts_for(std::size_t channels) {
  return std::max<std::size_t>(1, (channels + kLedgerChannels - 1) / kLedgerChannels);
}

}  // namespace

void for_each_entry(const Region& region,
                    const std::function<void(uint32_t, const LedgerRecord&)>& fn) {
  for (uint32_t index = 0; index < kMaxLedger; ++index) {
    if (!is_written(region.ledger[index])) continue;
    auto record = read_record(region.ledger[index]);
    if (!record || record->pid == 0) continue;
    record->channel_count = std::min(record->channel_count, kLedgerChannels);
    fn(index, *record);
  }
}

Ledger::Ledger(Region& region) : region_(region), entries_(kMaxLedger) {
  for_each([this](uint32_t index, const LedgerRecord& record) {
    entries_[index] = record;
    groups_[key_of(record)].push_back(index);
  });
  for (auto& [key, parts] : groups_)
    std::ranges::sort(parts, {}, [this](uint32_t index) { return entries_[index].part; });
  for (uint32_t index = kMaxLedger; index-- > 0;)
    if (entries_[index].pid == 0) free_.push_back(index);
}

Result<std::vector<uint32_t>*> Ledger::reserve(const LedgerKey& key, std::size_t parts) {
  const auto found = groups_.find(key);
  const std::size_t present = found == groups_.end() ? 0 : found->second.size();
  const std::size_t added = parts > present ? parts - present : 0;
  if (added > free_.size())
    return make_error(
        std::errc::no_space_on_device, "write ledger",
        fmt::format("{} entries are taken, at most {}", kMaxLedger - free_.size(), kMaxLedger));
  const bool is_process = key.is_process();
  const std::size_t held = added == 0 || is_process ? 0 : entries_of(key);
  if (held + added > most_entries(free_.size()))
    return make_error(std::errc::no_space_on_device, "write ledger",
                      fmt::format("the process has {} entries and wants {} more, {} are free", held,
                                  added, free_.size()));
  auto& entries = groups_[key];
  while (entries.size() < parts) {
    entries_[free_.back()] = new_record(key);
    entries_[free_.back()].part = static_cast<uint32_t>(entries.size());
    entries.push_back(free_.back());
    free_.pop_back();
  }
  return &entries;
}

Result<uint32_t> Ledger::begin_freeze(const LedgerKey& key, int32_t fd,
                                      std::span<const uint32_t> channels) {
  // Channels that are frozen stay listed, even if the caller does not name them again; new ones go
  // behind them.
  uint32_t freezes = 0;
  std::vector<uint32_t> all;
  if (const auto found = groups_.find(key); found != groups_.end()) {
    for (const uint32_t index : found->second) {
      const LedgerRecord& entry = entries_[index];
      freezes = std::max(freezes, entry.freezes);
      if (entry.freezes > 0)
        all.insert(all.end(), entry.channels, entry.channels + entry.channel_count);
    }
  }
  for (const uint32_t channel : channels)
    if (std::ranges::find(all, channel) == all.end()) all.push_back(channel);

  const auto reserved = reserve(key, parts_for(all.size()));
  if (!reserved) return std::unexpected(reserved.error());
  std::span<const uint32_t> rest = all;
  for (const uint32_t index : **reserved) {
    LedgerRecord& entry = entries_[index];
    entry.fd = fd;
    entry.freezes = freezes + 1;
    const auto here = rest.first(std::min<std::size_t>(rest.size(), kLedgerChannels));
    rest = rest.subspan(here.size());
    entry.channel_count = static_cast<uint32_t>(here.size());
    std::ranges::fill(std::ranges::copy(here, entry.channels).out, std::end(entry.channels), 0);
    publish(index);
  }
  return (*reserved)->front();
}

void Ledger::end_thaw(uint32_t index) {
  for (const uint32_t part : parts_of(index)) {
    LedgerRecord& entry = entries_[part];
    if (entry.freezes > 0) --entry.freezes;
    settle(part);
  }
}

Result<uint32_t> Ledger::note_slice(const LedgerKey& key, int32_t fd, uint32_t original_us) {
  const auto reserved = reserve(key, 1);
  if (!reserved) return std::unexpected(reserved.error());
  const uint32_t index = (*reserved)->front();
  LedgerRecord& entry = entries_[index];
  if (entry.slice_changed == 0) {
    entry.fd = fd;
    entry.slice_changed = 1;
    entry.original_slice_us = original_us;
    publish(index);
  }
  return index;
}

void Ledger::end_slice(uint32_t index) {
  LedgerRecord& entry = entries_[index];
  entry.slice_changed = 0;
  entry.original_slice_us = 0;
  settle(index);
}

void Ledger::clear(uint32_t index) {
  LedgerRecord& entry = entries_[index];
  if (entry.pid == 0) return;
  const auto group = groups_.find(key_of(entry));
  std::erase(group->second, index);
  if (group->second.empty()) groups_.erase(group);
  free_.push_back(index);
  entry = {};
  publish(index);
}

void Ledger::clear_group(const LedgerKey& key) {
  const auto group = groups_.find(key);
  if (group == groups_.end()) return;
  for (const uint32_t index : parts_of(group->second.front())) clear(index);
}

std::size_t Ledger::entries_of(const LedgerKey& process) const {
  std::size_t count = 0;
  for (auto group = groups_.lower_bound({.pid = process.pid, .start_ticks = process.start_ticks});
       group != groups_.end() && group->first.pid == process.pid &&
       group->first.start_ticks == process.start_ticks;
       ++group)
    count += group->second.size();
  return count;
}

std::vector<LedgerKey> Ledger::groups() const {
  std::vector<LedgerKey> keys;
  for (const auto& [key, parts] : groups_) keys.push_back(key);
  return keys;
}

uint32_t Ledger::freezes(const LedgerKey& key) const {
  const auto group = groups_.find(key);
  uint32_t freezes = 0;
  if (group != groups_.end())
    for (const uint32_t index : group->second) freezes = std::max(freezes, entries_[index].freezes);
  return freezes;
}

void Ledger::for_each(const std::function<void(uint32_t, const LedgerRecord&)>& fn) const {
  for_each_entry(region_, fn);
}

// Returns the last part first, so that part 0 is freed last. It is a copy, because the caller frees
// entries while it iterates.
std::vector<uint32_t> Ledger::parts_of(uint32_t index) const {
  const auto group = groups_.find(key_of(entries_[index]));
  if (group == groups_.end()) return {};
  return {group->second.rbegin(), group->second.rend()};
}

void Ledger::publish(uint32_t index) { write_record(region_.ledger[index], entries_[index]); }

void Ledger::settle(uint32_t index) {
  if (entries_[index].freezes == 0 && entries_[index].slice_changed == 0)
    clear(index);
  else
    publish(index);
}

bool is_ledger_empty(const Region& region) {
  bool is_empty = true;
  for_each_entry(region, [&](uint32_t, const LedgerRecord&) { is_empty = false; });
  return is_empty;
}

}  // namespace gpushare
