// SPDX-License-Identifier: Apache-2.0
// FakeGpu: the driver as the facts describe it (counting freezes, slices through the owner), with
// every call on record and faults on demand.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "intercept/gpu.h"

namespace gpushare::test {

class FakeGpu : public Gpu {
 public:
  struct Call {
    enum class Kind { kFreeze, kThaw, kSetSlice, kGetSlice, kStop, kResume };
    Kind kind;
    uint32_t gpu = 0;
    std::vector<ChannelRef> channels;
    GroupRef group;
    Micros slice{0};
  };

  explicit FakeGpu(uint32_t gpus = 1) {
    for (uint32_t i = 0; i < gpus; ++i) {
      infos_.emplace_back();
      infos_.back().index = infos_.back().instance = i;
    }
    support_ = {.can_freeze = true,
                .can_set_slice = true,
                .has_switch_log = true,
                .driver_version = "fake",
                .reason = ""};
  }

  // Asked before a call is carried out: an error refuses it.
  std::function<Result<>(const Call&)> fault;
  std::vector<Call> calls;
  std::set<ProcessId> stopped;
  std::map<uint32_t, UtilisationSample> utilisations;
  std::map<uint32_t, SwitchBatch> switches;  // handed out once
  std::map<pid_t, std::vector<DriverEvent>> attachable;
  std::optional<Result<std::set<ObjectRef>>> there;  // all objects; none: it does not tell
  int asked_for_objects = 0;
  std::set<uint32_t> unknown_classes;            // of channels
  std::map<uint32_t, std::string> closed;        // GPUs that are not open, and why
  std::map<uint32_t, uint32_t> hardware_groups;  // of group handles; others are groups of their own

  int freezes(const ChannelRef& channel) const {
    const auto at = frozen_.find({channel.client, channel.channel});
    return at == frozen_.end() ? 0 : at->second;
  }
  int frozen_channels() const {
    return static_cast<int>(
        std::ranges::count_if(frozen_, [](const auto& entry) { return entry.second > 0; }));
  }
  Micros slice_of(uint32_t client, uint32_t group) const {
    const auto at = slices_.find({client, group});
    return at == slices_.end() ? kDefaultSlice : at->second;
  }
  std::size_t count(Call::Kind kind) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(calls, [&](const Call& call) { return call.kind == kind; }));
  }
  GpuSupport& support_mut() { return support_; }

  std::span<const GpuInfo> gpus() const override { return infos_; }
  std::string closed_because(uint32_t gpu) const override {
    const auto at = closed.find(gpu);
    return at == closed.end() ? std::string() : at->second;
  }
  const GpuSupport& support() const override { return support_; }
  bool knows_channel_class(uint32_t class_id) const override {
    return !unknown_classes.contains(class_id);
  }

  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    calls.push_back({Call::Kind::kFreeze, gpu, list(channels), {}, {}});
    if (fault)
      if (const auto verdict = fault(calls.back()); !verdict) return verdict;
    for (const ChannelRef& c : channels) ++frozen_[{c.client, c.channel}];
    return {};
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    calls.push_back({Call::Kind::kThaw, gpu, list(channels), {}, {}});
    if (fault)
      if (const auto verdict = fault(calls.back()); !verdict) return verdict;
    for (const ChannelRef& c : channels) {
      int& count = frozen_[{c.client, c.channel}];
      count = std::max(0, count - 1);
    }
    return {};
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    calls.push_back({Call::Kind::kSetSlice, 0, {}, group, slice});
    if (fault)
      if (const auto verdict = fault(calls.back()); !verdict) return verdict;
    slices_[{group.client, group.group}] = slice;
    return {};
  }
  Result<Micros> slice(const GroupRef& group) override {
    calls.push_back({Call::Kind::kGetSlice, 0, {}, group, {}});
    if (fault)
      if (const auto verdict = fault(calls.back()); !verdict)
        return std::unexpected(verdict.error());
    return slice_of(group.client, group.group);
  }
  Result<uint32_t> hardware_group(const GroupRef& group) override {
    const auto at = hardware_groups.find(group.group);
    return at == hardware_groups.end() ? group.client ^ group.group : at->second;
  }
  Result<> stop(const ProcessId& process) override { return note(Call::Kind::kStop, process); }
  Result<> resume(const ProcessId& process) override { return note(Call::Kind::kResume, process); }
  Result<SwitchBatch> read_switches(uint32_t gpu) override {
    return std::exchange(switches[gpu], SwitchBatch{});
  }
  std::optional<UtilisationSample> utilisation(uint32_t gpu) override {
    const auto at = utilisations.find(gpu);
    if (at == utilisations.end()) return std::nullopt;
    return at->second;
  }
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef>) override {
    const auto at = attachable.find(pid);
    return found_at_once(at == attachable.end() ? ObjectSearch::Found{} : at->second);
  }
  Result<std::vector<pid_t>> users() const override {
    std::vector<pid_t> pids;
    for (const auto& [pid, events] : attachable) pids.push_back(pid);
    return pids;
  }

  Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef> objects) override {
    ++asked_for_objects;
    if (!there) return Gpu::missing(objects);
    if (!*there) return std::unexpected(there->error());
    std::vector<ObjectRef> gone;
    for (const ObjectRef& object : objects)
      if (!there->value().contains(object)) gone.push_back(object);
    return gone;
  }

 private:
  static constexpr Micros kDefaultSlice{2048};
  Result<> note(Call::Kind kind, const ProcessId& process) {
    calls.push_back({kind, 0, {}, {.process = process}, {}});
    if (fault)
      if (const auto verdict = fault(calls.back()); !verdict) return verdict;
    if (kind == Call::Kind::kStop)
      stopped.insert(process);
    else
      stopped.erase(process);
    return {};
  }
  static std::vector<ChannelRef> list(std::span<const ChannelRef> channels) {
    return {channels.begin(), channels.end()};
  }

  std::vector<GpuInfo> infos_;
  GpuSupport support_;
  std::map<std::pair<uint32_t, uint32_t>, int> frozen_;
  std::map<std::pair<uint32_t, uint32_t>, Micros> slices_;
};

}  // namespace gpushare::test
