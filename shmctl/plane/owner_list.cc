// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/owner_list.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "shmctl/plane/fields.h"

namespace gpushare {
namespace {

OwnerRecord record_of(const OwnerList::Owner& owner,
                      const std::array<uint32_t, kOwnerClients>& clients) {
  OwnerRecord record{.pid = owner.process.pid,
                     .uid = owner.uid,
                     .start_ticks = owner.process.start_ticks,
                     .run = owner.run,
                     .job_arrived_ns = owner.job_arrived_ns,
                     .job_service_ns = owner.job_service_ns};
  put_text(record.tenant, owner.tenant);
  put_text(record.command, owner.command);
  put_text(record.command_line, owner.command_line);
  std::ranges::copy(clients, record.clients);
  return record;
}

// What another part of it says.
void add(OwnerList::Owner& owner, const OwnerRecord& found) {
  owner.process = {found.pid, found.start_ticks};
  owner.uid = found.uid;
  owner.run = found.run;
  owner.tenant = text_in(found.tenant);
  owner.command = text_in(found.command);
  owner.command_line = text_in(found.command_line);
  owner.job_arrived_ns = found.job_arrived_ns;
  owner.job_service_ns = found.job_service_ns;
  for (const uint32_t client : found.clients)
    if (client != 0) owner.clients.push_back(client);
  std::ranges::sort(owner.clients);
}

}  // namespace

OwnerList::OwnerList(Region& region, uint64_t driver_load) : region_(region) {
  const OwnersHead before = last_record(region.owners);
  const bool is_same_driver = driver_load != 0 && before.driver_load == driver_load;
  for (uint32_t place = kMaxOwners; place-- > 0;) {
    Slot<OwnerRecord>& slot = region.owner_entries[place];
    const OwnerRecord found = last_record(slot);
    if (found.pid != 0 && is_same_driver) {
      Entry& entry = by_process_[{found.pid, found.start_ticks}];
      std::ranges::copy(found.clients, entry.parts.emplace_back(place).clients.begin());
      add(entry.owner, found);
      continue;
    }
    if (found.pid != 0) write_record(slot, OwnerRecord{});
    free_.push_back(place);
  }
  for (const auto& [process, entry] : by_process_) count(entry, /*is_there=*/true);
  if (before.driver_load != driver_load) write_record(region.owners, OwnersHead{driver_load});
}

bool OwnerList::put(Owner owner) {
  owner.tenant.resize(std::min(owner.tenant.size(), sizeof(OwnerRecord::tenant) - 1));
  owner.command.resize(std::min(owner.command.size(), sizeof(OwnerRecord::command) - 1));
  owner.command_line.resize(
      std::min(owner.command_line.size(), sizeof(OwnerRecord::command_line) - 1));
  std::ranges::sort(owner.clients);
  const std::size_t wanted = owner.clients.size();
  owner.clients.resize(std::min<std::size_t>(wanted, kMostClients));
  const auto known = by_process_.find(owner.process);
  if (known != by_process_.end() && known->second.owner == owner)
    return owner.clients.size() == wanted;

  Entry entry = known == by_process_.end() ? Entry{} : std::move(known->second);
  if (known != by_process_.end()) {
    count(entry, /*is_there=*/false);
    by_process_.erase(known);  // so that it is not driven out for itself
  }
  std::vector<uint32_t> more = keep(entry, owner.clients);
  while ((!more.empty() || entry.parts.empty()) &&
         (!free_.empty() || make_room(owner.uid, entry.parts.size()))) {
    Part& part = entry.parts.emplace_back(free_.back());
    free_.pop_back();
    const std::size_t fit = std::min<std::size_t>(more.size(), kOwnerClients);
    std::copy(more.end() - static_cast<std::ptrdiff_t>(fit), more.end(), part.clients.begin());
    more.resize(more.size() - fit);
  }
  if (entry.parts.empty()) return false;
  std::erase_if(owner.clients,
                [&](uint32_t client) { return std::ranges::find(more, client) != more.end(); });
  for (std::size_t i = entry.parts.size(); i-- > 0;) {
    const Part& part = entry.parts[i];
    const bool is_needed = entry.parts.size() == 1 || part.clients != Part{}.clients;
    write_record(region_.owner_entries[part.place],
                 is_needed ? record_of(owner, part.clients) : OwnerRecord{});
    if (is_needed) continue;
    free_.push_back(part.place);
    entry.parts.erase(entry.parts.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const bool is_whole = owner.clients.size() == wanted;
  const ProcessId process = owner.process;
  entry.owner = std::move(owner);
  count(entry, /*is_there=*/true);
  by_process_[process] = std::move(entry);
  return is_whole;
}

// Those that stay keep their places, so that none is missing while the others are written; the new
// ones come into the places of those that go. Returns those for which there is none.
std::vector<uint32_t> OwnerList::keep(Entry& entry, const std::vector<uint32_t>& wanted) {
  std::set<uint32_t> more(wanted.begin(), wanted.end());
  for (Part& part : entry.parts)
    for (uint32_t& client : part.clients)
      if (client != 0 && more.erase(client) == 0) client = 0;
  for (Part& part : entry.parts)
    for (uint32_t& client : part.clients)
      if (client == 0 && !more.empty()) client = more.extract(more.begin()).value();
  return {more.begin(), more.end()};
}

void OwnerList::erase(const ProcessId& process) {
  const auto known = by_process_.find(process);
  if (known == by_process_.end()) return;
  for (const Part& part : known->second.parts) {
    write_record(region_.owner_entries[part.place], OwnerRecord{});
    free_.push_back(part.place);
  }
  count(known->second, /*is_there=*/false);
  by_process_.erase(known);
}

void OwnerList::count(const Entry& entry, bool is_there) {
  const std::size_t places = entry.parts.size();
  const std::pair<uint64_t, pid_t> name{entry.owner.process.start_ticks, entry.owner.process.pid};
  User& user = by_user_[entry.owner.uid];
  user.places = is_there ? user.places + places : user.places - places;
  if (is_there)
    user.processes.insert(name);
  else
    user.processes.erase(name);
  if (user.processes.empty()) by_user_.erase(entry.owner.uid);
}

// Where several users have as many, nobody gives way to another one.
bool OwnerList::make_room(uint32_t by_user, std::size_t taken) {
  const auto own = by_user_.find(by_user);
  const std::size_t its = taken + (own == by_user_.end() ? 0 : own->second.places);
  const auto most =
      std::ranges::max_element(by_user_, {}, [](const auto& user) { return user.second.places; });
  if (most == by_user_.end() || most->first == by_user || most->second.places <= its) return false;
  const auto [start_ticks, pid] = *most->second.processes.begin();
  erase({pid, start_ticks});
  return true;
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
    const OwnerRecord found = last_record(slot);
    const bool has_some = std::ranges::any_of(found.clients, [](uint32_t one) { return one != 0; });
    if (found.pid != 0 && has_some) all.insert({found.pid, found.start_ticks});
  }
  return all;
}

void OwnerList::forget(Region& region) {
  for (Slot<OwnerRecord>& slot : region.owner_entries) {
    OwnerRecord record = last_record(slot);
    if (record.pid == 0) continue;
    std::ranges::fill(record.tenant, '\0');
    record.run = 0;
    record.job_arrived_ns = record.job_service_ns = 0;
    write_record(slot, record);
  }
}

}  // namespace gpushare
