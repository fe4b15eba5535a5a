// SPDX-License-Identifier: Apache-2.0
#include "sched/registry/registry.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "intercept/chosen_slice.h"
#include "intercept/client_of.h"

namespace gpushare {
namespace {

// Of a crowd some are enough: they are named to people.
void note_heir(Process& process, pid_t heir) {
  constexpr std::size_t kMost = 4;
  if (process.heirs.size() >= kMost && !process.heirs.contains(heir))
    process.heirs.erase(process.heirs.begin());
  process.heirs.insert(heir);
}

std::pair<uint32_t, uint32_t> name_of(const ComputeGroup& group) {
  return {group.ref.client, group.ref.group};
}

}  // namespace

Registry::Registry(std::span<const GpuInfo> gpus) : gpus_(gpus.size()) {
  for (const GpuInfo& gpu : gpus)
    if (gpu.instance != kNoInstance) gpu_by_instance_[gpu.instance] = gpu.index;
}

void Registry::learn(const GpuInfo& gpu) {
  gpu_by_instance_[gpu.instance] = gpu.index;
  for (auto& [pid, process] : processes_) rebuild_holders(process);
}

void Registry::apply(const DriverEvent& event, Source source) {
  if (std::holds_alternative<EventsLost>(event.what)) {
    rescan_requested_ |= event.process.pid == 0;
    return;
  }
  if (std::holds_alternative<ProcessClosed>(event.what)) return end(event.process, event.time);
  if (event.process.pid <= 0) return;

  if (source == Source::kLive && !former_.empty()) note_use_of_remembered(event);
  Process* const owner = left_by(event);
  // Nobody would tell when it is freed.
  if (owner != nullptr && source == Source::kLive && owner->id != event.process &&
      std::holds_alternative<MemoryAllocated>(event.what))
    return;
  if (owner != nullptr && std::holds_alternative<ObjectFreed>(event.what)) {
    ++leavings_;  // said by whoever may not even have a descriptor of it: the driver is asked
    return;
  }
  Process& process = owner != nullptr ? *owner : opened(event, source);
  // Frees are not heard, so a group that is made may have the handle of one that is gone.
  if (const auto* group = std::get_if<GroupCreated>(&event.what);
      group != nullptr && owner != nullptr && source == Source::kLive)
    free(process, {group->client, group->group});
  std::visit(
      [&](const auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, ClientCreated>) {
          made(process, what.client, source);
        } else if constexpr (std::is_same_v<What, ObjectFreed>) {
          free(process, what);
        } else if constexpr (std::is_same_v<What, ControlMade>) {
          note(process, what);
        } else if constexpr (std::is_same_v<What, DeviceCreated>) {
          add(process, what, source);
        } else if constexpr (std::is_same_v<What, GroupCreated> ||
                             std::is_same_v<What, ChannelCreated> ||
                             std::is_same_v<What, MemoryAllocated>) {
          add(process, what);
        }
      },
      event.what);
}

Process& Registry::opened(const DriverEvent& event, Source source) {
  const auto known = processes_.find(event.process.pid);
  if (known != processes_.end() && known->second.id != event.process) {
    heirs_requested_ |= !clients_.at(event.process.pid).empty();  // they may not be gone
    close(ProcessId(known->second.id));
  }

  const auto [at, is_new] = processes_.try_emplace(event.process.pid);
  Process& process = at->second;
  if (is_new) {
    by_pid_[event.process.pid] = &process;
    process.id = event.process;
    process.seen = event.time;
    clients_[process.id.pid];
    ++generation_;
  }
  if (source == Source::kAttach && !process.uid && clients_[process.id.pid].empty())
    process.is_late_attach = true;  // nobody saw it begin
  const auto* what = std::get_if<ProcessOpened>(&event.what);
  if (what != nullptr && process.ended) {  // it lives, with another program
    process.ended.reset();
    ++generation_;
  }
  if (what != nullptr && (is_new || source == Source::kLive)) {  // a search knows nothing of it
    process.ns_pid = what->ns_pid;
    process.cgroup_id = what->cgroup_id;
    process.uid = what->uid;
    process.command = what->command;
    ++generation_;
  }
  return process;
}

void Registry::close(ProcessId process) {
  const auto at = processes_.find(process.pid);
  if (at == processes_.end() || at->second.id != process) return;
  for (const auto& [handle, client] : clients_.at(process.pid))
    if (client.is_left) left_.erase(handle);
  by_pid_.erase(process.pid);
  processes_.erase(at);
  clients_.erase(process.pid);
  ++generation_;
}

// What is on it may be known already: then that was said in another order. One that is known is on
// the GPU that it was made on, whatever a program says of it; if it was freed unseen, a search
// says.
void Registry::add(Process& process, const DeviceCreated& made, Source source) {
  Client& client = clients_[process.id.pid][made.client];
  const auto [at, is_new] = client.devices.try_emplace(made.device, made.instance);
  if (!is_new && source == Source::kLive) return;
  if (!is_new && std::exchange(at->second, made.instance) == made.instance) return;
  if (!client.groups.empty() || !client.memory.empty()) rebuild_holders(process);
}

void Registry::add(Process& process, const GroupCreated& made) {
  const auto [at, is_new] = clients_[process.id.pid][made.client].groups.try_emplace(made.group);
  Group& group = at->second;
  if (!is_new && group.device == made.device && group.fd == made.fd) {
    // What another thread has said of its engine while the probe read it a search puts right.
    if (made.engine != Engine::kGraphics || group.engine == Engine::kGraphics) return;
    group.engine = Engine::kGraphics;
    return rebuild_holders(process);
  }
  // A new group, or a handle that was freed unseen and used again.
  const bool was_shown = !is_new && group.engine == Engine::kGraphics;
  if (!is_new) group = {};
  group.device = made.device;
  group.engine = made.engine;
  group.fd = made.fd;
  group.serial = ++last_serial_;
  if (made.engine != Engine::kGraphics && !was_shown) return;
  if (!is_new || !show_new(process, made.client, made.group)) rebuild_holders(process);
}

void Registry::add(Process& process, const ChannelCreated& made) {
  Client& client = clients_[process.id.pid][made.client];
  const auto group = client.groups.find(made.parent);
  if (group == client.groups.end()) return;  // bare channels have no slice and are left alone
  const auto [at, is_new] = group->second.channels.try_emplace(made.channel);
  if (!is_new && at->second.class_id == made.class_id) return;
  at->second = {made.class_id, ++last_serial_};
  if (group->second.engine != Engine::kGraphics) return;
  const Shown shows = shown(process, made.client, made.parent);
  if (!is_new || shows.group == nullptr) return rebuild_holders(process);
  ComputeGroup& its = *shows.group;
  const auto place = std::ranges::lower_bound(its.channels, made.channel) - its.channels.begin();
  its.channels.insert(its.channels.begin() + place, made.channel);
  its.serials.insert(its.serials.begin() + place, at->second.serial);
  shows.holder->channel_classes.insert(made.class_id);
  changed(*shows.holder);
}

void Registry::add(Process& process, const MemoryAllocated& made) {
  if (!made.is_video) return;
  Client& client = clients_[process.id.pid][made.client];
  Memory& memory = client.memory[made.memory];
  charge_memory(process, client, memory, -1);  // zero unless the handle is used again
  memory = {made.device, made.bytes};
  charge_memory(process, client, memory, 1);
}

void Registry::note(Process& process, const ControlMade& made) {
  const std::optional<Micros> slice = chosen_slice(made);
  if (!slice) return;
  Clients& clients = clients_[process.id.pid];
  const auto client = clients.find(made.client);
  if (client == clients.end()) return;
  const auto group = client->second.groups.find(made.object);
  if (group == client->second.groups.end()) return;
  group->second.own_slice = slice;
  ++group->second.own_slice_count;
  ++generation_;
  const Shown shows = shown(process, made.client, made.object);
  if (shows.group == nullptr) return;
  shows.group->own_slice = slice;
  shows.group->own_slice_count = group->second.own_slice_count;
  changed(*shows.holder);
}

void Registry::free(Process& process, const ObjectFreed& freed) {
  Clients& clients = clients_[process.id.pid];
  const auto at = clients.find(freed.client);
  if (at == clients.end()) return;
  if (freed.object == freed.client) {
    if (at->second.is_left) left_.erase(freed.client);
    former_.erase(freed.client);
    clients.erase(at);
    rebuild_holders(process);
    return;
  }
  Client& client = at->second;
  if (const auto memory = client.memory.find(freed.object); memory != client.memory.end()) {
    charge_memory(process, client, memory->second, -1);
    client.memory.erase(memory);
  } else if (client.groups.erase(freed.object) > 0) {
    if (!hide(process, freed.client, freed.object)) rebuild_holders(process);
  } else if (client.devices.erase(freed.object) > 0) {
    std::erase_if(client.groups, [&](auto& g) { return g.second.device == freed.object; });
    std::erase_if(client.memory, [&](auto& m) { return m.second.device == freed.object; });
    rebuild_holders(process);
  } else {
    for (auto& [handle, group] : client.groups) {
      if (group.channels.erase(freed.object) == 0) continue;
      if (!hide_channel(process, freed.client, handle, freed.object)) rebuild_holders(process);
      return;
    }
  }
}

std::optional<uint32_t> Registry::gpu_of(const Client& client, uint32_t device) const {
  const auto known = client.devices.find(device);
  if (known == client.devices.end()) {
    // Its creation was lost. With one GPU there is no doubt.
    if (gpus_ == 1 && gpu_by_instance_.size() == 1) return gpu_by_instance_.begin()->second;
    return std::nullopt;
  }
  const auto gpu = gpu_by_instance_.find(known->second);
  if (gpu == gpu_by_instance_.end()) return std::nullopt;
  return gpu->second;
}

void Registry::charge_memory(Process& process, const Client& client, const Memory& memory,
                             int sign) {
  if (memory.bytes == 0) return;
  const std::optional<uint32_t> gpu = gpu_of(client, memory.device);
  for (Holder& holder : process.holders)
    if (gpu == holder.gpu) holder.memory_bytes += sign > 0 ? memory.bytes : -memory.bytes;
}

Registry::Shown Registry::shown(Process& process, uint32_t client, uint32_t group) {
  for (Holder& holder : process.holders) {
    const auto at = std::ranges::lower_bound(holder.groups, std::pair(client, group), {}, name_of);
    if (at != holder.groups.end() && name_of(*at) == std::pair(client, group))
      return {&holder, &*at};
  }
  return {};
}

void Registry::changed(Holder& holder) { holder.generation = ++generation_; }

bool Registry::show_new(Process& process, uint32_t client, uint32_t handle) {
  const Client& owner = clients_.at(process.id.pid).at(client);
  const Group& group = owner.groups.at(handle);
  const std::optional<uint32_t> gpu = gpu_of(owner, group.device);
  const auto holder = std::ranges::find(process.holders, gpu,
                                        [](const Holder& one) { return std::optional(one.gpu); });
  if (!gpu || holder == process.holders.end()) return false;
  const auto place =
      std::ranges::lower_bound(holder->groups, std::pair(client, handle), {}, name_of);
  holder->groups.insert(place, show(process, client, handle, group));
  changed(*holder);
  return true;
}

// A holder knows its classes without looking at all channels only where there is one, and another
// channel of it.
bool Registry::hide(Process& process, uint32_t client, uint32_t handle) {
  const Shown shows = shown(process, client, handle);
  if (shows.group == nullptr) return true;
  Holder& holder = *shows.holder;
  const bool is_last_with_channels =
      !shows.group->channels.empty() &&
      std::ranges::none_of(holder.groups, [&](const ComputeGroup& other) {
        return &other != shows.group && !other.channels.empty();
      });
  if (is_last_with_channels || holder.groups.size() == 1 || holder.channel_classes.size() > 1)
    return false;
  holder.groups.erase(holder.groups.begin() + (shows.group - holder.groups.data()));
  changed(holder);
  return true;
}

bool Registry::hide_channel(Process& process, uint32_t client, uint32_t group, uint32_t channel) {
  const Shown shows = shown(process, client, group);
  if (shows.group == nullptr) return true;
  ComputeGroup& its = *shows.group;
  if (its.channels.size() == 1 || shows.holder->channel_classes.size() > 1) return false;
  const auto place = std::ranges::lower_bound(its.channels, channel) - its.channels.begin();
  its.channels.erase(its.channels.begin() + place);
  its.serials.erase(its.serials.begin() + place);
  changed(*shows.holder);
  return true;
}

ComputeGroup Registry::show(const Process& process, uint32_t client, uint32_t handle,
                            const Group& group) {
  ComputeGroup seen{.ref = {process.id, group.fd, client, handle},
                    .serial = group.serial,
                    .channels = {},
                    .serials = {},
                    .own_slice = group.own_slice,
                    .own_slice_count = group.own_slice_count};
  for (const auto& [name, channel] : group.channels) {
    seen.channels.push_back(name);
    seen.serials.push_back(channel.serial);
  }
  return seen;
}

// Of all that the process has: where a holder comes or goes, and where much of it changes.
void Registry::rebuild_holders(Process& process) {
  ++generation_;
  std::map<uint32_t, Holder> by_gpu;
  for (const auto& [client_handle, client] : clients_[process.id.pid]) {
    for (const auto& [handle, group] : client.groups) {
      if (group.engine != Engine::kGraphics) continue;
      const std::optional<uint32_t> gpu = gpu_of(client, group.device);
      if (!gpu) continue;
      Holder& holder = by_gpu[*gpu];
      for (const auto& [name, channel] : group.channels)
        holder.channel_classes.insert(channel.class_id);
      holder.groups.push_back(show(process, client_handle, handle, group));
      looked_at_ += 1 + group.channels.size();
    }
  }
  process.holders.clear();
  for (auto& [gpu, holder] : by_gpu) {
    holder.process = process.id;
    holder.gpu = gpu;
    holder.generation = generation_;
    process.holders.push_back(std::move(holder));
  }
  for (const auto& [handle, client] : clients_[process.id.pid])
    for (const auto& [memory_handle, memory] : client.memory) {
      charge_memory(process, client, memory, 1);
      ++looked_at_;
    }
}

void Registry::doubt(Process& process) {
  for (auto& [handle, client] : clients_[process.id.pid])
    for (auto& [name, group] : client.groups)
      for (auto& [channel, state] : group.channels) state.serial = ++last_serial_;
  rebuild_holders(process);
}

void Registry::doubt(pid_t pid) {
  if (const auto known = processes_.find(pid); known != processes_.end()) doubt(known->second);
}

void Registry::doubt_all() {
  for (auto& [pid, process] : processes_) doubt(process);
}

std::vector<ObjectRef> Registry::objects(pid_t pid) const {
  std::vector<ObjectRef> objects;
  const auto known = clients_.find(pid);
  if (known == clients_.end()) return objects;
  for (const auto& [handle, client] : known->second) {
    objects.push_back({handle, handle});
    for (const auto& [group_handle, group] : client.groups) {
      objects.push_back({handle, group_handle});
      for (const auto& [name, channel] : group.channels) objects.push_back({handle, name});
    }
  }
  return objects;
}

void Registry::forget(Process& process, std::span<const DriverEvent> found,
                      std::span<const ObjectRef> known) {
  std::set<ObjectRef> gone(known.begin(), known.end());
  for (const DriverEvent& event : found) {
    if (const auto* client = std::get_if<ClientCreated>(&event.what))
      gone.erase({client->client, client->client});
    if (const auto* group = std::get_if<GroupCreated>(&event.what))
      gone.erase({group->client, group->group});
    if (const auto* channel = std::get_if<ChannelCreated>(&event.what))
      gone.erase({channel->client, channel->channel});
  }
  // What it has left is not on its descriptors, and the driver says when it is gone.
  for (const ObjectRef& object : gone)
    if (!left_.contains(object.client)) free(process, {object.client, object.object});
}

const Process* Registry::other_owner(const ProcessId& process, uint32_t client) const {
  for (const auto& [pid, clients] : clients_)
    if (pid != process.pid && clients.contains(client)) return &processes_.at(pid);
  return nullptr;
}

bool Registry::owns(const Owned& owned) const {
  const Process* owner = find(owned.owner.pid);
  return owner != nullptr && owner->id == owned.owner &&
         clients_.at(owned.owner.pid).contains(owned.client);
}

std::vector<Registry::Owned> Registry::reconcile(const ProcessId& process,
                                                 std::span<const DriverEvent> found,
                                                 std::span<const ObjectRef> known,
                                                 bool works_unseen) {
  if (const auto at = processes_.find(process.pid);
      at != processes_.end() && at->second.id == process) {
    for (const DriverEvent& event : found)
      if (const auto* const made = std::get_if<ClientCreated>(&event.what))
        give_back(at->second, made->client);
    forget(at->second, found, known);
  }

  const auto is_older = [](const ProcessId& a, const ProcessId& b) {
    return std::tie(a.start_ticks, a.pid) < std::tie(b.start_ticks, b.pid);
  };
  std::vector<Owned> of_others;
  std::set<pid_t> heirs;
  for (const DriverEvent& event : found) {
    const auto* made = std::get_if<ClientCreated>(&event.what);
    const Process* other = made == nullptr ? nullptr : other_owner(process, made->client);
    if (made != nullptr && other == nullptr) other = former_owner(process, made->client);
    if (other == nullptr) continue;
    const ProcessId theirs = other->id;
    Process& owner = processes_.at(theirs.pid);
    const Client& client = clients_.at(theirs.pid).at(made->client);
    const bool is_taken = client.is_left && works_unseen && !has_own_group(process, found);
    if (client.is_left && !is_taken) learn(theirs, made->client, found);
    if (!is_taken && (client.is_left || client.was_seen_made || is_older(theirs, process))) {
      of_others.push_back({owner.id, made->client});
    } else {
      free(owner, {made->client, made->client});
      if (!is_taken) heirs.insert(theirs.pid);
      close_if_over(owner);
    }
  }
  for (const Owned& owned : of_others) note_heir(processes_.at(owned.owner.pid), process.pid);
  const auto is_of_other = [&](const DriverEvent& event) {
    const std::optional<uint32_t> client = client_of(event);
    return client && std::ranges::find(of_others, *client, &Owned::client) != of_others.end();
  };
  // Nothing of its own: then it has not opened the driver.
  const bool has_own = std::ranges::any_of(
      found, [&](const DriverEvent& event) { return client_of(event) && !is_of_other(event); });
  if (!has_own && !of_others.empty()) return of_others;
  for (const DriverEvent& event : found)
    if (!is_of_other(event)) apply(event, Source::kAttach);
  if (const auto at = processes_.find(process.pid); at != processes_.end())
    for (const pid_t heir : heirs) note_heir(at->second, heir);
  return of_others;
}

const Process* Registry::find(pid_t pid) const {
  const auto at = by_pid_.find(pid);
  return at == by_pid_.end() ? nullptr : at->second;
}

const Process* Registry::find(const ProcessId& process) const {
  const Process* const found = find(process.pid);
  return found == nullptr || found->id != process ? nullptr : found;
}

bool Registry::is_on(pid_t pid, uint32_t gpu) const {
  const Process* found = find(pid);
  return found != nullptr &&
         std::ranges::find(found->holders, gpu, &Holder::gpu) != found->holders.end();
}

std::optional<ProcessId> Registry::owner_of(uint32_t client) const {
  for (const auto& [pid, clients] : clients_)
    if (clients.contains(client)) return processes_.at(pid).id;
  return std::nullopt;
}

bool Registry::has_channel(const ProcessId& owner, const ChannelRef& channel) const {
  const auto clients = clients_.find(owner.pid);
  if (clients == clients_.end()) return false;
  const auto client = clients->second.find(channel.client);
  return client != clients->second.end() &&
         std::ranges::any_of(client->second.groups, [&](const auto& group) {
           return group.second.channels.contains(channel.channel);
         });
}

std::vector<ChannelRef> Registry::channels(const ProcessId& owner, uint32_t gpu) const {
  std::vector<ChannelRef> all;
  if (find(owner) == nullptr) return all;
  for (const auto& [handle, client] : clients_.at(owner.pid))
    for (const auto& [name, group] : client.groups)
      if (gpu_of(client, group.device) == gpu)
        for (const auto& [channel, is] : group.channels) all.push_back({handle, channel});
  return all;
}

const Holder* Registry::holder(const ProcessId& process, uint32_t gpu) const {
  const Process* found = find(process);
  if (found == nullptr) return nullptr;
  for (const Holder& holder : found->holders)
    if (holder.gpu == gpu) return &holder;
  return nullptr;
}

bool Registry::take_rescan_request() { return std::exchange(rescan_requested_, false); }

}  // namespace gpushare
