// SPDX-License-Identifier: Apache-2.0
// The part of Model that the agent uses: controls of groups and channels, and observation. See
// model.h.
#include <algorithm>
#include <cmath>
#include <set>

#include "intercept/sim/model/model_state.h"

namespace gpushare::sim {

// --- freeze and thaw --------------------------------------------------------------------------

Model::Channel* Model::find_channel(uint32_t gpu, const ChannelRef& ref) const {
  const auto found = channels_.find(object_key(ref.client, ref.channel));
  if (found == channels_.end()) return nullptr;
  return found->second->group->context->device->index == gpu ? found->second : nullptr;
}

Result<> Model::freeze(uint32_t gpu, std::span<const ChannelRef> channels) {
  for (const ChannelRef& ref : channels)
    if (find_channel(gpu, ref) == nullptr)
      return make_error(std::errc::no_such_process, "freeze channels",
                        "a channel is gone or on another GPU");
  for (const ChannelRef& ref : channels) {
    Channel& channel = *find_channel(gpu, ref);
    if (++channel.freezes > 1) continue;
    suspend(channel);
    if (channel.has_worked) engine(*channel.group).hold(channel.group->entry, now_);
  }
  return {};
}

Result<> Model::thaw(uint32_t gpu, std::span<const ChannelRef> channels) {
  if (gpu >= devices_.size()) return make_error(std::errc::no_such_device, "thaw channels");
  for (const ChannelRef& ref : channels) {
    Channel* channel = find_channel(gpu, ref);
    if (channel == nullptr || channel->freezes == 0) continue;
    --channel->freezes;
    if (channel->freezes > 0) continue;
    if (channel->has_worked) engine(*channel->group).release(channel->group->entry, now_);
    for (auto& [id, queue] : channel->group->context->queues)
      if (!queue.items.empty() && queue.items.front()->channel == channel) pumps_.push_back(&queue);
  }
  run_pumps();
  deliver();
  return {};
}

// Stops what runs on the channel where it is.
void Model::suspend(Channel& channel) {
  for (auto& [id, queue] : channel.group->context->queues) {
    if (!queue.has_begun || queue.items.front()->channel != &channel) continue;
    engine(*channel.group).withdraw(channel.group->entry, *queue.items.front(), now_);
    queue.has_begun = false;
  }
}

size_t Model::count_there(uint32_t gpu, std::span<const ChannelRef> channels) const {
  return static_cast<size_t>(std::ranges::count_if(
      channels, [&](const ChannelRef& ref) { return find_channel(gpu, ref) != nullptr; }));
}

Nanos Model::control_cost(std::span<const ChannelRef> channels, Nanos per_call, Nanos per_channel,
                          Nanos per_group) const {
  std::set<const Group*> groups;
  for (const ChannelRef& ref : channels)
    if (const auto found = channels_.find(object_key(ref.client, ref.channel));
        found != channels_.end())
      groups.insert(found->second->group);
  const auto calls = (channels.size() + parameters_.control.channels_per_call - 1) /
                     parameters_.control.channels_per_call;
  return per_call * calls + per_channel * channels.size() + per_group * groups.size();
}

Nanos Model::freeze_cost(std::span<const ChannelRef> channels) const {
  const ControlCosts& costs = parameters_.control;
  return control_cost(channels, costs.freeze_call, costs.freeze_channel, costs.freeze_group);
}

Nanos Model::thaw_cost(std::span<const ChannelRef> channels) const {
  const ControlCosts& costs = parameters_.control;
  return control_cost(channels, costs.thaw_call, costs.thaw_channel, costs.thaw_group);
}

// --- slices -----------------------------------------------------------------------------------

// Through the descriptor of this process, or that of an heir which a search has found.
bool Model::is_reached(const Client& client, const ProcessId& process) {
  const auto heir = client.heirs.find(process.pid);
  if (heir != client.heirs.end() && heir->second == process) return true;
  return client.process == process && (!client.has_ended || client.was_found_in_heir);
}

Result<Model::Group*> Model::find_group(const GroupRef& ref) const {
  const auto found = groups_.find(object_key(ref.client, ref.group));
  if (found == groups_.end() || !is_reached(*found->second->context->client, ref.process))
    return make_error(std::errc::no_such_process, "find channel group");
  if (found->second->context->client->fd != ref.fd)
    return make_error(std::errc::operation_not_permitted, "find channel group",
                      "not the descriptor that it was allocated on");
  return found->second;
}

Result<> Model::set_slice(const GroupRef& ref, Micros slice) {
  if (slice < 1us) return make_error(std::errc::invalid_argument, "set time slice");
  const auto group = find_group(ref);
  if (!group) return std::unexpected(group.error());
  engine(**group).set_slice((*group)->entry, slice, now_);
  return {};
}

Result<Micros> Model::slice(const GroupRef& ref) const {
  const auto group = find_group(ref);
  if (!group) return std::unexpected(group.error());
  const auto& engines = (*group)->context->device->engines;
  return std::chrono::duration_cast<Micros>(engines[(*group)->kind].slice((*group)->entry));
}

std::optional<uint32_t> Model::gpu_of(const GroupRef& ref) const {
  const auto found = groups_.find(object_key(ref.client, ref.group));
  if (found == groups_.end()) return std::nullopt;
  return found->second->context->device->index;
}

Result<uint32_t> Model::hardware_group(const GroupRef& ref) const {
  const auto group = find_group(ref);
  if (!group) return std::unexpected(group.error());
  return static_cast<uint32_t>((*group)->entry);
}

// --- observation ------------------------------------------------------------------------------

void Model::emit(const Client& client, Happening what) {
  if (event_sink_) event_sink_({now_, client.process, std::move(what)});
}

// The objects of a context, in the order in which the driver's library makes them.
void Model::announce(const Context& context, const std::function<void(Happening)>& to) const {
  constexpr uint32_t kChannelClass = 0xC86F;      // HOPPER_CHANNEL_GPFIFO_A
  constexpr uint32_t kSetTimeslice = 0xA06C0103;  // NVA06C_CTRL_CMD_SET_TIMESLICE
  const Client& client = *context.client;
  for (const Group& group : context.groups) {
    const EngineModel& engine = context.device->engines[group.kind];
    to(GroupCreated{client.handle, client.devices.at(context.device->index), group.handle,
                    group.kind == 0 ? Engine::kGraphics : Engine::kCopy, client.fd});
    for (const Channel& channel : group.channels)
      to(ChannelCreated{client.handle, group.handle, channel.handle, kChannelClass});
    if (group.kind == 0) {
      const auto slice = std::chrono::duration_cast<Micros>(engine.slice(group.entry));
      to(ControlMade{client.handle, group.handle, kSetTimeslice, 0,
                     static_cast<uint64_t>(slice.count())});
    }
  }
}

std::vector<DriverEvent> Model::attach(pid_t pid) const {
  std::vector<DriverEvent> events;
  for (const auto& [handle, client] : clients_) {
    const auto heir = client->heirs.find(pid);
    const bool is_owner = client->process.pid == pid && !client->has_ended;
    if (!is_owner && heir == client->heirs.end()) continue;
    if (!is_owner) client->was_found_in_heir = true;
    const ProcessId process = is_owner ? client->process : heir->second;
    const auto to = [&](Happening what) {
      DriverEvent event;
      event.time = now_;
      event.process = process;
      event.what = std::move(what);
      events.push_back(std::move(event));
    };
    if (events.empty()) to(ProcessOpened{});  // a search tells nothing about the process itself
    to(ClientCreated{handle, client->fd});
    for (const auto& [gpu, device] : client->devices)
      to(DeviceCreated{handle, device, infos_[gpu].instance});
    for (const auto& [name, context] : client->contexts) announce(*context, to);
    for (const auto& [name, memory] : client->memory)
      to(MemoryAllocated{handle, client->devices.at(memory.context->device->index), name,
                         memory.bytes, true});
  }
  return events;
}

std::vector<pid_t> Model::users() const {
  std::vector<pid_t> pids;
  pids.reserve(clients_.size());
  for (const auto& [handle, client] : clients_) {
    if (!client->has_ended) pids.push_back(client->process.pid);
    for (const auto& [pid, heir] : client->heirs) pids.push_back(pid);
  }
  std::ranges::sort(pids);
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  return pids;
}

std::vector<ObjectRef> Model::missing(std::span<const ObjectRef> objects) const {
  std::vector<ObjectRef> gone;
  std::ranges::copy_if(objects, std::back_inserter(gone), [this](const ObjectRef& ref) {
    const uint64_t key = object_key(ref.client, ref.object);
    const bool is_client = ref.object == ref.client && clients_.contains(ref.client);
    return !is_client && !groups_.contains(key) && !channels_.contains(key);
  });
  return gone;
}

bool Model::has_ended(pid_t pid) const {
  return std::ranges::any_of(clients_, [pid](const auto& one) {
    return one.second->process.pid == pid && one.second->has_ended;
  });
}

pid_t Model::owner(uint32_t client) const {
  const Client* found = find_client(client);
  return found == nullptr ? 0 : found->process.pid;
}

const SwitchLog& Model::switch_log(uint32_t gpu) const { return devices_[gpu]->log; }

// As on an H200: how busy the GPU was is exact, and all of that is given to the process that the
// GPU holds at the end of the sample, which may have done nothing; a sample comes 0.2 s late, and
// some not in time.
UtilisationSample Model::utilisation(uint32_t gpu) {
  constexpr Nanos kSamplePeriod = std::chrono::milliseconds(200);
  constexpr Nanos kLongest = std::chrono::seconds(1);
  constexpr uint64_t kLate = 7;  // one of so many
  Device& device = *devices_[gpu];
  const Nanos passed = now_ - device.sampled;
  if (passed < kSamplePeriod || ++device.samples % kLate == 0) return {};
  const Nanos all = device.engines[0].busy(now_);
  const Nanos busy = all - std::exchange(device.busy_then, all);
  UtilisationSample sample{.from = std::exchange(device.sampled, now_), .until = now_};
  if (passed > kLongest) sample = {};  // nobody has asked meanwhile
  if (sample.until > sample.from) {
    const auto parts = static_cast<double>(busy.count()) / static_cast<double>(passed.count());
    sample.busy = std::round(100 * parts) / 100;  // whole percents
    const auto resident = device.names.find(device.engines[0].resident_entry());
    if (resident != device.names.end()) sample.of.push_back({resident->second.pid, sample.busy});
  }
  return std::exchange(device.sample, std::move(sample));
}

Runlist::Totals Model::graphics_totals(uint32_t gpu) const {
  return devices_[gpu]->engines[0].totals(now_);
}

}  // namespace gpushare::sim
