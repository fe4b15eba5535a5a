// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/model/model.h"

#include <algorithm>
#include <cassert>
#include <cstdio>

#include "intercept/sim/model/model_state.h"

namespace gpushare::sim {

Model::Model(std::vector<GpuModel> gpus, const Parameters& parameters, Time start)
    : parameters_(parameters), now_(start) {
  for (uint32_t index = 0; index < gpus.size(); ++index) {
    char uuid[48];
    char pci[16];
    std::snprintf(uuid, sizeof uuid, "GPU-51600000-0000-4000-8000-%012x", index);
    std::snprintf(pci, sizeof pci, "0000:%02x:00.0", 0x10 + index);
    infos_.push_back({.index = index,
                      .instance = index,
                      .uuid = uuid,
                      .name = gpus[index].name,
                      .pci = pci,
                      .sm_count = gpus[index].sm_count,
                      .memory_bytes = gpus[index].memory_bytes});
    auto device = std::make_unique<Device>();
    device->index = index;
    device->sampled = start;
    SwitchCosts costs = parameters_.graphics;
    costs.change += gpus[index].slower_change;
    device->engines.emplace_back(costs, parameters_.mps, start);
    for (size_t i = 1; i < kGroups; ++i)
      device->engines.emplace_back(parameters_.copy, MpsCosts{0ns, 1.0}, start);
    devices_.push_back(std::move(device));
  }
}

Model::~Model() = default;

// --- time -------------------------------------------------------------------------------------

Time Model::next_step() const {
  Time first = calls_.empty() ? Time::max() : calls_.begin()->first;
  for (const auto& device : devices_)
    for (const EngineModel& each : device->engines) first = std::min(first, each.next());
  return first;
}

void Model::advance_to(Time to) {
  std::vector<Job*> finished;
  std::vector<EngineModel*> due;
  look_at_meetings();
  for (Time step = next_step(); step <= to; step = next_step()) {
    now_ = std::max(now_, step);
    due.clear();
    for (const auto& device : devices_)
      for (EngineModel& each : device->engines)
        if (each.next() <= now_) due.push_back(&each);
    for (EngineModel* engine : due) engine->take_finished(now_, finished);
    for (Job* job : finished) finish(*static_cast<Item*>(job), 0);
    finished.clear();
    run_pumps();
    for (EngineModel* engine : due) engine->take_turns(now_);
    look_at_meetings();
    for (const auto& device : devices_) collect_log(*device);
    deliver();
    while (!calls_.empty() && calls_.begin()->first <= now_) {
      auto call = calls_.extract(calls_.begin());
      call.mapped()();
      look_at_meetings();
    }
    look_at_meetings();
  }
  now_ = std::max(now_, to);
}

Time Model::quiet_until() const {
  Time bound = calls_.empty() ? Time::max() : calls_.begin()->first;
  for (const auto& device : devices_)
    for (const EngineModel& each : device->engines) bound = std::min(bound, each.quiet_until());
  return std::min(bound, quiet_meetings_until());
}

void Model::call_at(Time when, std::function<void()> what) {
  calls_.emplace(std::max(when, now_), std::move(what));
}

void Model::collect_log(Device& device) {
  // Only the graphics engine has a log; the records of the copy engines are dropped.
  for (const auto& record : device.engines[0].take_records()) {
    const auto& name = device.names.at(record.entry);
    device.log.append({record.time, device.index, name.pid, name.context, record.is_start});
  }
  for (size_t i = 1; i < kGroups; ++i) device.engines[i].take_records();
}

// --- programs ---------------------------------------------------------------------------------

Model::Client* Model::find_client(uint32_t client) const {
  const auto found = clients_.find(client);
  return found == clients_.end() ? nullptr : found->second.get();
}

Model::Context* Model::find_context(uint32_t client, uint32_t context) const {
  const Client* owner = find_client(client);
  if (owner == nullptr) return nullptr;
  const auto found = owner->contexts.find(context);
  return found == owner->contexts.end() ? nullptr : found->second.get();
}

uint32_t Model::open_client(const ProcessId& process, const ProcessOpened& about) {
  const auto siblings = std::ranges::count_if(
      clients_, [&](const auto& each) { return each.second->process == process; });
  auto made = std::make_unique<Client>();
  made->handle = next_client_++;
  made->fd = 10 + static_cast<int>(siblings);
  made->process = process;
  made->about = about;
  if (siblings == 0) emit(*made, about);
  emit(*made, ClientCreated{made->handle, made->fd});
  const uint32_t handle = made->handle;
  clients_.emplace(handle, std::move(made));
  return handle;
}

void Model::close_client(uint32_t client, std::optional<int> status) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  while (!found->second->contexts.empty())
    drop_context(*found->second->contexts.begin()->second, [](const ObjectFreed&) {});
  const std::unique_ptr<Client> closed = std::move(found->second);
  clients_.erase(found);
  std::erase_if(outbox_, [&](const auto& each) { return each.first == client; });
  const bool is_last = std::ranges::none_of(
      clients_, [&](const auto& each) { return each.second->process == closed->process; });
  if (is_last && !closed->has_ended) emit(*closed, ProcessClosed{.status = status});
}

void Model::end_process(const ProcessId& process, std::optional<int> status) {
  const Client* last = nullptr;
  for (const auto& [handle, client] : clients_) {
    if (client->process != process || client->has_ended) continue;
    client->has_ended = true;
    last = client.get();
  }
  if (last != nullptr) emit(*last, ProcessClosed{.status = status});
}

void Model::inherit(uint32_t client, const ProcessId& heir, bool has_it) {
  Client* const found = find_client(client);
  if (found == nullptr) return;
  if (has_it)
    found->heirs[heir.pid] = heir;
  else
    found->heirs.erase(heir.pid);
}

Result<ContextReply> Model::create_context(uint32_t client, uint32_t gpu, uint32_t mps_server,
                                           bool is_hidden) {
  Client* owner = find_client(client);
  if (owner == nullptr) return make_error(std::errc::invalid_argument, "create simulated context");
  if (gpu >= devices_.size())
    return make_error(std::errc::no_such_device, "create simulated context");
  if (!owner->devices.contains(gpu)) {
    owner->devices[gpu] = owner->next_object++;
    emit(*owner, DeviceCreated{client, owner->devices[gpu], infos_[gpu].instance});
  }
  auto made = std::make_unique<Context>();
  Context& context = *made;
  context.client = owner;
  context.device = devices_[gpu].get();
  context.member = next_entry_++;
  context.mps_server = mps_server;
  for (size_t kind = 0; kind < kGroups; ++kind) {
    Group& group = context.groups[kind];
    group.context = &context;
    group.kind = kind;
    group.handle = owner->next_object++;
    group.channels.resize(kind == 0 ? kGraphicsChannels : kCopyChannels);
    for (Channel& channel : group.channels) {
      channel.group = &group;
      channel.handle = owner->next_object++;
      channels_[object_key(client, channel.handle)] = &channel;
    }
    groups_[object_key(client, group.handle)] = &group;
  }
  context.handle = context.groups[0].handle;
  for (Group& group : context.groups) join_entry(group);
  if (!is_hidden) announce(context, [&](auto what) { emit(*owner, std::move(what)); });

  ContextReply reply{};
  reply.context = context.handle;
  reply.client = client;
  reply.group = context.handle;
  for (size_t i = 0; i < kGraphicsChannels; ++i)
    reply.channels[i] = context.groups[0].channels[i].handle;
  owner->contexts.emplace(context.handle, std::move(made));
  return reply;
}

// Gives the group its entry on the engine's runlist: its own one, or that of its MPS server.
void Model::join_entry(Group& group) {
  Context& context = *group.context;
  Device& device = *context.device;
  const Micros slice = group.kind == 0 ? parameters_.graphics_slice : parameters_.copy_slice;
  if (group.kind == 0 && context.mps_server != 0) {
    Device::MpsServer& server = device.mps_servers[context.mps_server];
    group.entry = server.entry;
    if (++server.clients > 1) return;
    group.entry = server.entry = next_entry_++;
    device.names[group.entry] = {static_cast<pid_t>(context.mps_server), context.handle};
  } else {
    group.entry = next_entry_++;
    device.names[group.entry] = {context.client->process.pid, context.handle};
  }
  engine(group).add_entry(group.entry, slice);
}

void Model::leave_entry(Group& group) {
  Context& context = *group.context;
  Device& device = *context.device;
  if (group.kind == 0 && context.mps_server != 0) {
    if (--device.mps_servers.at(context.mps_server).clients > 0) return;
    device.mps_servers.erase(context.mps_server);
  }
  engine(group).remove_entry(group.entry, now_);
  collect_log(device);
  device.names.erase(group.entry);
}

Result<> Model::destroy_context(uint32_t client, uint32_t context) {
  Context* found = find_context(client, context);
  if (found == nullptr) return make_error(std::errc::invalid_argument, "destroy simulated context");
  const Client& owner = *found->client;
  drop_context(*found, [&](const ObjectFreed& freed) { emit(owner, freed); });
  run_pumps();
  deliver();
  return {};
}

void Model::drop_context(Context& context, const std::function<void(const ObjectFreed&)>& freed) {
  Client& owner = *context.client;
  for (auto& [id, queue] : context.queues) drop_work(queue);
  std::erase_if(owner.waiters, [&](const auto& each) { return each.second->context == &context; });
  std::erase_if(owner.memory, [&](const auto& each) {
    if (each.second.context != &context) return false;
    context.device->memory_used -= each.second.bytes;
    freed({owner.handle, each.first});
    return true;
  });
  for (Group& group : context.groups) {
    for (const Channel& channel : group.channels) {
      if (channel.freezes > 0 && channel.has_worked) engine(group).release(group.entry, now_);
      channels_.erase(object_key(owner.handle, channel.handle));
    }
    groups_.erase(object_key(owner.handle, group.handle));
    leave_entry(group);
    freed({owner.handle, group.handle});
  }
  std::erase_if(pumps_, [&](const Queue* queue) { return queue->context == &context; });
  owner.contexts.erase(context.handle);
}

Result<uint32_t> Model::allocate(uint32_t client, uint32_t context, uint64_t bytes) {
  Context* owner = find_context(client, context);
  if (owner == nullptr || bytes == 0)
    return make_error(std::errc::invalid_argument, "allocate simulated GPU memory");
  Device& device = *owner->device;
  if (bytes > free_memory(device.index))
    return make_error(std::errc::not_enough_memory, "allocate simulated GPU memory");
  const uint64_t rounded = (bytes + kMemoryGranule - 1) / kMemoryGranule * kMemoryGranule;
  Client& holder = *owner->client;
  const uint32_t handle = holder.next_object++;
  holder.memory[handle] = {owner, rounded};
  device.memory_used += rounded;
  emit(holder, MemoryAllocated{client, holder.devices.at(device.index), handle, rounded, true});
  return handle;
}

Result<> Model::free(uint32_t client, uint32_t memory) {
  Client* owner = find_client(client);
  if (owner == nullptr || !owner->memory.contains(memory))
    return make_error(std::errc::invalid_argument, "free simulated GPU memory");
  const auto freed = owner->memory.extract(memory);
  freed.mapped().context->device->memory_used -= freed.mapped().bytes;
  emit(*owner, ObjectFreed{client, memory});
  return {};
}

uint64_t Model::free_memory(uint32_t gpu) const {
  const uint64_t left = infos_[gpu].memory_bytes - devices_[gpu]->memory_used;
  return left / kMemoryGranule * kMemoryGranule;
}

}  // namespace gpushare::sim
