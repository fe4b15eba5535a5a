// SPDX-License-Identifier: Apache-2.0
// What processes have left: see invariant 5 of registry.h.
#include <algorithm>
#include <utility>

#include "intercept/client_of.h"
#include "sched/registry/registry.h"

namespace gpushare {

// Who has left the client in which this was done; nullptr: nobody has. A client that is made has a
// handle of one that is gone, or is not left at all.
Process* Registry::left_by(const DriverEvent& event) {
  const std::optional<uint32_t> client = client_of(event);
  if (left_.empty() || !client || std::holds_alternative<ClientCreated>(event.what)) return nullptr;
  const auto left = left_.find(*client);
  return left == left_.end() ? nullptr : &processes_.at(left->second);
}

void Registry::end(const ProcessId& process, Time now) {
  const auto at = processes_.find(process.pid);
  if (at == processes_.end() || at->second.id != process) return;
  if (clients_.at(process.pid).empty()) return close(process);
  if (at->second.ended) return;
  at->second.ended = now;
  for (const auto& [handle, client] : clients_.at(process.pid)) leave(at->second, handle);
  ++generation_;
}

// Of two that are thought to have had it the last one is believed.
void Registry::leave(Process& process, uint32_t client) {
  const pid_t pid = process.id.pid;
  if (const auto other = left_.find(client); other != left_.end() && other->second != pid)
    drop_left(client);
  clients_.at(pid).at(client).is_left = true;
  if (left_.emplace(client, pid).second) ++leavings_;
}

// Forgets its owner, if that has ended, with the last one.
void Registry::drop_left(uint32_t client) {
  Process& owner = processes_.at(left_.at(client));
  free(owner, {client, client});
  close_if_over(owner);
}

void Registry::close_if_over(Process& process) {
  if (process.ended && clients_.at(process.id.pid).empty()) close(ProcessId(process.id));
}

std::vector<ObjectRef> Registry::unsettled() const {
  std::vector<ObjectRef> objects;
  for (const auto& [handle, pid] : left_) {
    objects.push_back({handle, handle});
    for (const auto& [name, group] : clients_.at(pid).at(handle).groups) {
      objects.push_back({handle, name});
      for (const auto& [channel, is] : group.channels) objects.push_back({handle, channel});
    }
  }
  for (const auto& [handle, owner] : former_)
    if (!left_.contains(handle)) objects.push_back({handle, handle});
  return objects;
}

// Whether it is a group or channel that was not there when last_serial() was `as_of`.
bool Registry::is_younger(const Client& client, uint32_t object, uint64_t as_of) {
  if (const auto group = client.groups.find(object); group != client.groups.end())
    return group->second.serial > as_of;
  for (const auto& [name, group] : client.groups)
    if (const auto channel = group.channels.find(object); channel != group.channels.end())
      return channel->second.serial > as_of;
  return false;
}

void Registry::gone(std::span<const ObjectRef> objects, uint64_t as_of) {
  for (const ObjectRef& object : objects) {
    const auto left = left_.find(object.client);
    if (left == left_.end()) {
      if (former_.erase(object.client) > 0) ++generation_;
      continue;
    }
    Process& process = processes_.at(left->second);
    if (is_younger(clients_.at(left->second).at(object.client), object.object, as_of)) continue;
    free(process, {object.client, object.object});
    close_if_over(process);
  }
}

std::set<pid_t> Registry::remembered() const {
  std::set<pid_t> pids;
  for (const auto& [client, owner] : former_) pids.insert(owner.pid);
  for (const auto& [client, pid] : left_) {
    const Client& left = clients_.at(pid).at(client);
    if (left.was_remembered && left.groups.empty()) pids.insert(pid);
  }
  return pids;
}

std::set<pid_t> Registry::ended() const {
  std::set<pid_t> pids;
  for (const auto& [handle, pid] : left_)
    if (processes_.at(pid).ended) pids.insert(pid);
  return pids;
}

// Who says that it has made a client which another one has left may only hold its descriptor: the
// driver is asked whether that is gone, and the switch log tells who works in it (reconcile()).
void Registry::made(Process& process, uint32_t client, Source source) {
  if (source == Source::kLive && left_.contains(client)) {
    ++leavings_;
    return;
  }
  if (former_.erase(client) > 0) ++generation_;
  clients_[process.id.pid][client].was_seen_made |= source == Source::kLive;
}

// It was found on its maker's own descriptors, who has not left it after all.
void Registry::give_back(const Process& process, uint32_t client) {
  const auto left = left_.find(client);
  if (left == left_.end() || left->second != process.id.pid) return;
  clients_.at(process.id.pid).at(client).is_left = false;
  left_.erase(left);
  ++generation_;
}

// Who is said to make something in a remembered client may hold no more than a copy of its
// descriptor, so it is its owner's from then on. That it is told something, or that something in it
// is freed, anybody may claim who knows its name: then the driver is asked about it, and no more.
void Registry::note_use_of_remembered(const DriverEvent& event) {
  const std::optional<uint32_t> client = client_of(event);
  if (!client || !former_.contains(*client)) return;
  const bool makes = std::holds_alternative<ClientCreated>(event.what) ||
                     std::holds_alternative<DeviceCreated>(event.what) ||
                     std::holds_alternative<GroupCreated>(event.what) ||
                     std::holds_alternative<ChannelCreated>(event.what) ||
                     std::holds_alternative<MemoryAllocated>(event.what);
  if (!makes)
    ++leavings_;
  else if (former_owner(event.process, *client) != nullptr)
    heirs_requested_ = true;
}

void Registry::remember(const FormerOwner& former) {
  for (const uint32_t client : former.clients) former_[client] = former.process;
  if (!former.clients.empty()) ++leavings_;
}

bool Registry::remembers(const Owned& owned) const {
  const auto former = former_.find(owned.client);
  return former != former_.end() && former->second == owned.owner;
}

// Whether a group was found in `process` that is in no client which another one has left.
bool Registry::has_own_group(const ProcessId& process, std::span<const DriverEvent> found) const {
  return std::ranges::any_of(found, [&](const DriverEvent& event) {
    const auto* const group = std::get_if<GroupCreated>(&event.what);
    if (group == nullptr || group->engine != Engine::kGraphics) return false;
    const auto left = left_.find(group->client);
    return left == left_.end() || left->second == process.pid;
  });
}

// Who made a client that was found in `process`, or that this one tells of, as is remembered, if
// that is another one. It counts as having left the client: it has ended while no agent was there,
// or has closed its own descriptor; or it lives and was only not looked at yet, and is given the
// client back when it is found there (reconcile()). nullptr: nobody is remembered, or another has
// its pid by now.
const Process* Registry::former_owner(const ProcessId& process, uint32_t client) {
  const auto former = former_.find(client);
  if (former == former_.end() || former->second == process) return nullptr;
  const auto own = clients_.find(process.pid);
  if (own != clients_.end() && own->second.contains(client)) return nullptr;
  const ProcessId owner = former->second;
  const Process* const bearer = find(owner.pid);
  if (bearer != nullptr && bearer->id != owner) return nullptr;
  former_.erase(former);
  Process& taken = opened({{}, owner, ClientCreated{client, -1}}, Source::kAttach);
  if (bearer == nullptr) taken.ended = Time{};
  clients_[owner.pid][client].was_remembered = true;
  leave(taken, client);
  return &taken;
}

// What an heir shows of a client that was left, and of which no event told.
void Registry::learn(const ProcessId& owner, uint32_t client, std::span<const DriverEvent> found) {
  for (const DriverEvent& event : found) {
    if (client_of(event) != client || std::holds_alternative<ClientCreated>(event.what)) continue;
    const auto* const group = std::get_if<GroupCreated>(&event.what);
    if (group != nullptr && clients_.at(owner.pid).at(client).groups.contains(group->group))
      continue;  // its descriptor may have another number in the heir
    apply({event.time, owner, event.what}, Source::kAttach);
  }
}

bool Registry::take_heirs_request() { return std::exchange(heirs_requested_, false); }

}  // namespace gpushare
