// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/wire/codec.h"

#include <algorithm>
#include <cstring>

namespace gpushare::sim {
namespace {

constexpr uint32_t kNoUser = UINT32_MAX;  // no user has this number

// There is one pair of put and get for each kind of event; words are in the order of its members.
void put(Event& wire, const ProcessOpened& e) {
  wire.words[0] = static_cast<uint32_t>(e.ns_pid);
  wire.words[1] = e.uid.value_or(kNoUser);
  wire.value = e.cgroup_id;
  std::memcpy(wire.command, e.command.data(), std::min(e.command.size(), sizeof wire.command - 1));
}
void get(const Event& wire, ProcessOpened& e) {
  e.ns_pid = static_cast<pid_t>(wire.words[0]);
  if (wire.words[1] != kNoUser) e.uid = wire.words[1];
  e.cgroup_id = wire.value;
  e.command.assign(wire.command, ::strnlen(wire.command, sizeof wire.command));
}

void put(Event& wire, const ClientCreated& e) {
  wire.words[0] = e.client;
  wire.fd = e.fd;
}
void get(const Event& wire, ClientCreated& e) { e = {wire.words[0], wire.fd}; }

void put(Event& wire, const DeviceCreated& e) {
  wire.words[0] = e.client;
  wire.words[1] = e.device;
  wire.words[2] = e.instance;
}
void get(const Event& wire, DeviceCreated& e) { e = {wire.words[0], wire.words[1], wire.words[2]}; }

void put(Event& wire, const GroupCreated& e) {
  wire.words[0] = e.client;
  wire.words[1] = e.device;
  wire.words[2] = e.group;
  wire.flag = static_cast<uint32_t>(e.engine);
  wire.fd = e.fd;
}
void get(const Event& wire, GroupCreated& e) {
  const auto engine = wire.flag <= static_cast<uint32_t>(Engine::kOther)
                          ? static_cast<Engine>(wire.flag)
                          : Engine::kOther;
  e = {wire.words[0], wire.words[1], wire.words[2], engine, wire.fd};
}

void put(Event& wire, const ChannelCreated& e) {
  wire.words[0] = e.client;
  wire.words[1] = e.parent;
  wire.words[2] = e.channel;
  wire.words[3] = e.class_id;
}
void get(const Event& wire, ChannelCreated& e) {
  e = {wire.words[0], wire.words[1], wire.words[2], wire.words[3]};
}

void put(Event& wire, const MemoryAllocated& e) {
  wire.words[0] = e.client;
  wire.words[1] = e.device;
  wire.words[2] = e.memory;
  wire.value = e.bytes;
  wire.flag = e.is_video;
}
void get(const Event& wire, MemoryAllocated& e) {
  e = {wire.words[0], wire.words[1], wire.words[2], wire.value, wire.flag != 0};
}

void put(Event& wire, const ObjectFreed& e) {
  wire.words[0] = e.client;
  wire.words[1] = e.object;
}
void get(const Event& wire, ObjectFreed& e) { e = {wire.words[0], wire.words[1]}; }

void put(Event& wire, const ControlMade& e) {
  wire.words[0] = e.client;
  wire.words[1] = e.object;
  wire.words[2] = e.command;
  wire.words[3] = e.status;
  wire.value = e.value;
}
void get(const Event& wire, ControlMade& e) {
  e = {wire.words[0], wire.words[1], wire.words[2], wire.words[3], wire.value};
}

void put(Event& wire, const ProcessClosed& e) {
  wire.flag = e.by_exec;
  wire.words[0] = e.status ? 1 : 0;
  wire.words[1] = static_cast<uint32_t>(e.status.value_or(0));
}
void get(const Event& wire, ProcessClosed& e) {
  e = {.by_exec = wire.flag != 0};
  if (wire.words[0] != 0) e.status = static_cast<int>(wire.words[1]);
}

void put(Event& wire, const EventsLost& e) { wire.value = e.count; }
void get(const Event& wire, EventsLost& e) { e = {wire.value}; }

// On the wire one event has at most one channel: a switch of more is sent as several.
void put(Event& wire, const ChannelsSwitched& e) {
  wire.flag = e.is_freeze;
  if (e.channels.empty()) return;
  wire.words[0] = e.channels.front().client;
  wire.words[1] = e.channels.front().channel;
}
void get(const Event& wire, ChannelsSwitched& e) {
  e = {wire.flag != 0, {{wire.words[0], wire.words[1]}}};
}

// Makes the alternative with the number `wire.what` and fills it.
template <size_t I = 0>
bool fill(const Event& wire, decltype(DriverEvent::what)& what) {
  if constexpr (I < std::variant_size_v<decltype(DriverEvent::what)>) {
    if (wire.what != I) return fill<I + 1>(wire, what);
    get(wire, what.emplace<I>());
    return true;
  } else {
    return false;
  }
}

}  // namespace

Event encode(const DriverEvent& event) {
  Event wire{};
  wire.time_ns = stored_ns(event.time);
  wire.start_ticks = event.process.start_ticks;
  wire.pid = event.process.pid;
  wire.what = static_cast<uint32_t>(event.what.index());
  wire.fd = -1;
  std::visit([&](const auto& what) { put(wire, what); }, event.what);
  return wire;
}

std::optional<DriverEvent> decode(const Event& wire) {
  DriverEvent event;
  event.time = from_ns(wire.time_ns);
  event.process = {wire.pid, wire.start_ticks};
  if (!fill(wire, event.what)) return std::nullopt;
  return event;
}

}  // namespace gpushare::sim
