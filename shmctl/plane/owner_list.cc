// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/owner_list.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

namespace gpushare {
namespace {

template <std::size_t N>
void put_text(char (&field)[N], std::string_view text) {
  text.copy(field, N - 1);  // the rest is zero
}

template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return {field, ::strnlen(field, N - 1)};
}

// With the clients from `part` * kOwnerClients on.
OwnerRecord record_of(const OwnerList::Owner& owner, uint32_t part) {
  OwnerRecord record{.pid = owner.process.pid,
                     .uid = owner.uid,
                     .start_ticks = owner.process.start_ticks,
                     .run = owner.run,
                     .part = part,
                     .job_arrived_ns = owner.job_arrived_ns,
                     .job_service_ns = owner.job_service_ns};
  put_text(record.tenant, owner.tenant);
  put_text(record.command, owner.command);
  put_text(record.command_line, owner.command_line);
  const std::size_t first = std::size_t{part} * kOwnerClients;
  const std::size_t end = std::min(first + kOwnerClients, owner.clients.size());
  for (std::size_t i = first; i < end; ++i) record.clients[i - first] = owner.clients[i];
  return record;
}

uint32_t parts_of(const OwnerList::Owner& owner) {
  const std::size_t clients = std::max<std::size_t>(owner.clients.size(), 1);
  return static_cast<uint32_t>((clients + kOwnerClients - 1) / kOwnerClients);
}

}  // namespace

OwnerList::OwnerList(Region& region, uint64_t driver_load) : region_(region) {
  const OwnersHead before =
      is_written(region.owners) ? read_record(region.owners).value_or(OwnersHead{}) : OwnersHead{};
  const bool is_same_driver = before.driver_load == driver_load;
  for (uint32_t place = kMaxOwners; place-- > 0;) {
    Slot<OwnerRecord>& slot = region.owner_entries[place];
    const OwnerRecord found =
        is_written(slot) ? read_record(slot).value_or(OwnerRecord{}) : OwnerRecord{};
    if (found.pid == 0 || !is_same_driver) {
      if (found.pid != 0) write_record(slot, OwnerRecord{});
      free_.push_back(place);
      continue;
    }
    const ProcessId process{found.pid, found.start_ticks};
    Entry& entry = by_process_[process];
    entry.places.push_back(place);
    Owner& owner = entry.owner;
    owner.process = process;
    owner.uid = found.uid;
    owner.run = found.run;
    owner.tenant = text_of(found.tenant);
    owner.command = text_of(found.command);
    owner.command_line = text_of(found.command_line);
    owner.job_arrived_ns = found.job_arrived_ns;
    owner.job_service_ns = found.job_service_ns;
    std::ranges::copy_if(found.clients, std::back_inserter(owner.clients),
                         [](uint32_t client) { return client != 0; });
  }
  if (!is_same_driver) write_record(region.owners, OwnersHead{driver_load});
}

bool OwnerList::put(Owner owner) {
  owner.tenant.resize(std::min(owner.tenant.size(), sizeof(OwnerRecord::tenant) - 1));
  owner.command.resize(std::min(owner.command.size(), sizeof(OwnerRecord::command) - 1));
  owner.command_line.resize(
      std::min(owner.command_line.size(), sizeof(OwnerRecord::command_line) - 1));
  const bool is_whole = owner.clients.size() <= kMostClients;
  if (!is_whole) owner.clients.resize(kMostClients);
  const auto known = by_process_.find(owner.process);
  if (known != by_process_.end() && known->second.owner == owner) return is_whole;

  Entry& entry = known != by_process_.end() ? known->second : by_process_[owner.process];
  const uint32_t parts = parts_of(owner);
  while (entry.places.size() > parts) {
    write_record(region_.owner_entries[entry.places.back()], OwnerRecord{});
    free_.push_back(entry.places.back());
    entry.places.pop_back();
  }
  while (entry.places.size() < parts && !free_.empty()) {
    entry.places.push_back(free_.back());
    free_.pop_back();
  }
  const bool has_room = entry.places.size() == parts;
  for (uint32_t part = 0; part < entry.places.size(); ++part)
    write_record(region_.owner_entries[entry.places[part]], record_of(owner, part));
  if (entry.places.empty())
    by_process_.erase(owner.process);
  else
    entry.owner = std::move(owner);
  return is_whole && has_room;
}

void OwnerList::erase(const ProcessId& process) {
  const auto known = by_process_.find(process);
  if (known == by_process_.end()) return;
  for (const uint32_t place : known->second.places) {
    write_record(region_.owner_entries[place], OwnerRecord{});
    free_.push_back(place);
  }
  by_process_.erase(known);
}

const OwnerList::Owner* OwnerList::find(const ProcessId& process) const {
  const auto known = by_process_.find(process);
  return known == by_process_.end() ? nullptr : &known->second.owner;
}

std::vector<ProcessId> OwnerList::processes() const {
  std::vector<ProcessId> all;
  all.reserve(by_process_.size());
  for (const auto& [process, entry] : by_process_) all.push_back(process);
  return all;
}

std::set<ProcessId> OwnerList::with_clients(const Region& region) {
  std::set<ProcessId> all;
  for (const Slot<OwnerRecord>& slot : region.owner_entries) {
    if (!is_written(slot)) continue;
    const OwnerRecord found = read_record(slot).value_or(OwnerRecord{});
    if (found.pid != 0 && found.clients[0] != 0) all.insert({found.pid, found.start_ticks});
  }
  return all;
}

}  // namespace gpushare
