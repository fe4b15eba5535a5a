// SPDX-License-Identifier: Apache-2.0
// An agent that can die at each of its calls to what is outside of it: Fate counts the calls, and
// throws when the last one has come. MortalGpu and MortalProcReader are what it calls.
#pragma once

#include <algorithm>
#include <map>
#include <utility>

#include "intercept/sim/gpu/sim_gpu.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace gpushare::test {

struct Killed {};

class Fate {
 public:
  // The agent dies at this call from now on; 0: never.
  void die_at(uint64_t call) { left_ = call; }
  void strike() {
    if (left_ > 0 && --left_ == 0) throw Killed();
  }

 private:
  uint64_t left_ = 0;
};

// A call that changes something is two: one may die before and after it is done. It keeps count of
// what is frozen.
class MortalGpu final : public Gpu {
 public:
  MortalGpu(sim::SimGpu& gpu, Fate& fate) : gpu_(gpu), fate_(fate) {}

  std::size_t frozen_channels() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(frozen_, [](const auto& entry) { return entry.second > 0; }));
  }
  // The process has ended, and its channels with it.
  void forget(uint32_t client) {
    std::erase_if(frozen_, [&](const auto& entry) { return entry.first.first == client; });
  }

  std::span<const GpuInfo> gpus() const override { return gpu_.gpus(); }
  const GpuSupport& support() const override { return gpu_.support(); }
  bool knows_channel_class(uint32_t id) const override { return gpu_.knows_channel_class(id); }
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    fate_.strike();
    const Result<> done = gpu_.freeze(gpu, channels);
    if (done)
      for (const ChannelRef& ref : channels) ++frozen_[{ref.client, ref.channel}];
    fate_.strike();
    return done;
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    fate_.strike();
    const Result<> done = gpu_.thaw(gpu, channels);
    for (const ChannelRef& ref : channels) {
      const auto at = frozen_.find({ref.client, ref.channel});
      if (at != frozen_.end() && --at->second == 0) frozen_.erase(at);
    }
    fate_.strike();
    return done;
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    fate_.strike();
    const Result<> done = gpu_.set_slice(group, slice);
    fate_.strike();
    return done;
  }
  Result<Micros> slice(const GroupRef& group) override {
    fate_.strike();
    return gpu_.slice(group);
  }
  Result<uint32_t> hardware_group(const GroupRef& group) override {
    fate_.strike();
    return gpu_.hardware_group(group);
  }
  Result<> stop(const ProcessId& process) override { return gpu_.stop(process); }
  Result<> resume(const ProcessId& process) override { return gpu_.resume(process); }
  Result<SwitchBatch> read_switches(uint32_t gpu) override {
    fate_.strike();
    return gpu_.read_switches(gpu);
  }
  std::optional<UtilisationSample> utilisation(uint32_t gpu) override {
    fate_.strike();
    return gpu_.utilisation(gpu);
  }
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) override {
    fate_.strike();
    return gpu_.attach(pid, known);
  }
  Result<std::vector<pid_t>> users() const override {
    fate_.strike();
    return gpu_.users();
  }
  Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef> objects) override {
    fate_.strike();
    return gpu_.missing(objects);
  }

 private:
  sim::SimGpu& gpu_;
  Fate& fate_;
  std::map<std::pair<uint32_t, uint32_t>, int> frozen_;  // by client and channel
};

class MortalProcReader final : public ProcReader {
 public:
  MortalProcReader(const FakeProcReader& processes, Fate& fate)
      : processes_(processes), fate_(fate) {}
  std::optional<ProcessDetails> details(pid_t pid) const override {
    fate_.strike();
    return processes_.details(pid);
  }
  std::optional<Link> link(pid_t pid) const override {
    fate_.strike();
    return processes_.link(pid);
  }
  bool is_taken(pid_t pid) const override { return processes_.is_taken(pid); }
  std::optional<std::string> user_name(uid_t uid) const override {
    return processes_.user_name(uid);
  }
  bool has_processes(const std::string& cgroup) const override {
    return processes_.has_processes(cgroup);
  }

 private:
  const FakeProcReader& processes_;
  Fate& fate_;
};

}  // namespace gpushare::test
