// SPDX-License-Identifier: Apache-2.0
// NastyMachine: processes with driver objects, in memory, behind all seams of the scheduler, which
// does what drivers and machines do on bad days: any call fails, also half way; events are lost;
// children that inherited a descriptor are answered as their parent is, and keep its objects when
// it dies; handles, pids and group numbers are used again at once; searches miss objects. It knows
// what is really frozen.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "sched/tenants/proc_reader.h"
#include "tests/sched/support/fake_gpu.h"
#include "tests/support/membership.h"

namespace gpushare::test {

class NastyMachine final : public FakeGpu, public Observer, public ProcReader {
 public:
  NastyMachine(uint32_t seed, uint32_t gpus) : FakeGpu(gpus), gpu_count_(gpus), random_(seed) {}

  // How many calls of a thousand fail from now on.
  int faults = 0;
  // Whether a process's objects are all found where a search looks by itself.
  bool searches_miss = true;

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  // --- what is so
  static constexpr Micros kOwnSlice{2048};
  struct Channel {
    int freezes = 0;
  };
  struct Group {
    uint32_t gpu = 0, device = 0, number = 0;
    bool is_dense = true;  // a search finds it without knowing it
    bool is_first = true;  // that has its handle
    Micros slice = kOwnSlice;
    std::map<uint32_t, Channel> channels;
  };
  struct Client {
    ProcessId maker;              // the only one that makes and frees objects of it
    std::set<ProcessId> holders;  // of its descriptor; the number is the same in all
    int fd = 0;
    std::map<uint32_t, Group> groups;
    std::set<uint32_t> names;  // of groups, also of those that are no more
    bool was_inherited = false;
    std::set<ProcessId> found_in{};  // by searches, of holders
  };
  const std::map<uint32_t, Client>& clients() const { return clients_; }
  const std::set<ProcessId>& living() const { return living_; }
  std::size_t frozen() const {
    std::size_t count = 0;
    for (const auto& [handle, client] : clients_)
      for (const auto& [name, group] : client.groups)
        count += static_cast<std::size_t>(std::ranges::count_if(
            group.channels, [](const auto& one) { return one.second.freezes > 0; }));
    return count;
  }

  // --- what programs do; `is_told`: otherwise the event is lost
  void act() {
    const uint32_t what = below(100);
    if (living_.size() < 3 || (what < 10 && living_.size() < 8)) return begin();
    const ProcessId process =
        *std::next(living_.begin(), below(static_cast<uint32_t>(living_.size())));
    if (what < 18) return end(process);
    if (what < 26) return fork(process);
    std::vector<uint32_t> own;
    for (const auto& [handle, client] : clients_)
      if (client.maker == process) own.push_back(handle);
    if (own.empty() || what < 32) return make_client(process);
    const uint32_t handle = own[below(static_cast<uint32_t>(own.size()))];
    Client& client = clients_[handle];
    if (client.groups.empty() || what < 45) return make_group(process, handle);
    auto& [name, group] =
        *std::next(client.groups.begin(), below(static_cast<uint32_t>(client.groups.size())));
    if (what < 55) {
      const uint32_t channel = 0x1000 + 0x10 * name + below(6);
      if (group.channels.try_emplace(channel).second)
        tell(process, ChannelCreated{handle, name, channel, 0xC86F});
    } else if (what < 65 && !group.channels.empty()) {
      const uint32_t channel = group.channels.begin()->first;
      group.channels.erase(channel);
      tell(process, ObjectFreed{handle, channel});
    } else if (what < 72) {
      const uint32_t freed = name;
      client.groups.erase(freed);
      tell(process, ObjectFreed{handle, freed});
      if (below(2) == 0) make_group(process, handle);  // the handle and the number again
    } else if (what < 75) {
      clients_.erase(handle);
      tell(process, ObjectFreed{handle, handle});
    } else if (what < 80) {
      pending_.clear();
      pending_.push_back({});
      pending_.back().what = EventsLost{1};
    }
  }

  // --- Gpu
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    if (fails()) return failure();
    for (const ChannelRef& ref : channels)
      if (find(gpu, ref) == nullptr) return make_error(std::errc::no_such_process, "freeze");
    const std::size_t done =
        fails() ? below(static_cast<uint32_t>(channels.size())) : channels.size();
    for (const ChannelRef& ref : channels.first(done)) ++find(gpu, ref)->freezes;
    return done < channels.size() ? failure() : Result<>();
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    if (fails()) return failure();
    Result<> result;
    for (const ChannelRef& ref : channels) {
      if (fails()) {
        result = failure();
        continue;
      }
      if (Channel* channel = find(gpu, ref)) channel->freezes = std::max(0, channel->freezes - 1);
    }
    return result;
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    if (auto there = through_owner(group); !there) return there;
    clients_.at(group.client).groups.at(group.group).slice = slice;
    return {};
  }
  Result<Micros> slice(const GroupRef& group) override {
    if (auto there = through_owner(group); !there) return std::unexpected(there.error());
    return clients_.at(group.client).groups.at(group.group).slice;
  }
  Result<uint32_t> hardware_group(const GroupRef& group) override {
    if (auto there = through_owner(group); !there) return std::unexpected(there.error());
    return clients_.at(group.client).groups.at(group.group).number;
  }
  Result<> stop(const ProcessId& process) override { return signal(process, true); }
  Result<> resume(const ProcessId& process) override { return signal(process, false); }
  Result<SwitchBatch> read_switches(uint32_t) override {
    if (fails()) return std::unexpected(failure().error());
    return SwitchBatch{};
  }
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) override {
    const auto process = std::ranges::find(living_, pid, &ProcessId::pid);
    if (process == living_.end())
      return found_at_once(make_error(std::errc::no_such_process, "attach"));
    if (fails()) return found_at_once(std::unexpected(failure().error()));
    class Search final : public ObjectSearch {
     public:
      Search(Found found, bool is_complete) : found_(std::move(found)), is_complete_(is_complete) {}
      Result<std::optional<Found>> advance(Nanos) override { return found_; }
      bool is_complete() const override { return is_complete_; }

     private:
      const Found found_;
      const bool is_complete_;
    };
    const std::set<ObjectRef> named(known.begin(), known.end());
    const bool is_complete = !fails();
    ObjectSearch::Found found;
    const auto add = [&](decltype(DriverEvent::what) what) {
      if (found.empty()) found.push_back({{}, *process, ProcessOpened{}});
      found.push_back({{}, *process, std::move(what)});
    };
    for (auto& [handle, client] : clients_) {
      if (!client.holders.contains(*process) || (!is_complete && below(2) == 0)) continue;
      client.found_in.insert(*process);
      add(ClientCreated{handle, client.fd});
      for (const auto& [name, group] : client.groups) {
        const bool is_named = named.contains({handle, name});
        if (is_named ? !is_complete && below(2) == 0 : searches_miss && !group.is_dense) continue;
        add(DeviceCreated{handle, group.device, group.gpu});
        add(GroupCreated{handle, group.device, name, Engine::kGraphics, client.fd});
        for (const auto& [channel, state] : group.channels)
          if (is_complete || below(2) == 0) add(ChannelCreated{handle, name, channel, 0xC86F});
      }
    }
    return std::make_unique<Search>(std::move(found), is_complete);
  }
  Result<std::vector<pid_t>> users() const override {
    if (fails()) return std::unexpected(failure().error());
    std::set<pid_t> pids;
    for (const auto& [handle, client] : clients_)
      for (const ProcessId& holder : client.holders) pids.insert(holder.pid);
    return std::vector<pid_t>(pids.begin(), pids.end());
  }

  Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef> objects) override {
    if (fails()) return std::unexpected(failure().error());
    std::vector<ObjectRef> gone;
    for (const ObjectRef& object : objects) {
      const auto client = clients_.find(object.client);
      const bool is_there =
          client != clients_.end() &&
          (object.object == object.client || client->second.groups.contains(object.object));
      if (!is_there) gone.push_back(object);
    }
    return gone;
  }

  // --- Observer
  int fd() const override { return -1; }
  using Observer::drain;
  Result<uint64_t> drain(const Sink& sink, uint64_t) override {
    if (fails()) return std::unexpected(failure().error());
    const std::vector<DriverEvent> events = std::exchange(pending_, {});
    for (const DriverEvent& event : events) sink(DriverEvent(event));
    return events.size();
  }
  uint64_t dropped() const override { return 0; }
  Result<> watch(ProcessId process) override {
    if (fails()) return failure();
    if (living_.contains(process)) return {};
    return make_error(std::errc::no_such_process, "watch process");
  }

  // --- ProcReader
  std::optional<ProcessDetails> details(pid_t pid) const override {
    const auto bearer = link(pid);
    if (!bearer) return std::nullopt;
    ProcessDetails details;
    details.id = bearer->id;
    return details;
  }
  std::optional<Link> link(pid_t pid) const override {
    const auto process = std::ranges::find(living_, pid, &ProcessId::pid);
    if (process == living_.end() || fails()) return std::nullopt;
    return Link{*process, 0};
  }
  Life life(const ProcessId& process) const override {
    if (fails()) return Life::kUnknown;
    return living_.contains(process) ? Life::kAlive : Life::kEnded;
  }
  bool is_taken(pid_t pid) const override {
    return std::ranges::find(living_, pid, &ProcessId::pid) != living_.end();
  }
  std::optional<std::string> user_name(uid_t) const override { return ""; }
  bool has_processes(const std::string&) const override { return true; }

 private:
  bool fails() const { return faults > 0 && static_cast<int>(random_() % 1000) < faults; }
  static Result<> failure() { return make_error(std::errc::too_many_files_open, "any call"); }

  template <class What>
  void tell(const ProcessId& process, What what) {
    pending_.push_back({{}, process, std::move(what)});
  }
  Channel* find(uint32_t gpu, const ChannelRef& ref) {
    const auto client = clients_.find(ref.client);
    if (client == clients_.end()) return nullptr;
    for (auto& [name, group] : client->second.groups)
      if (group.gpu == gpu && group.channels.contains(ref.channel))
        return &group.channels.at(ref.channel);
    return nullptr;
  }
  Result<> through_owner(const GroupRef& ref) const {
    if (fails()) return failure();
    const auto client = clients_.find(ref.client);
    if (client == clients_.end() || !client->second.groups.contains(ref.group))
      return make_error(std::errc::no_such_process, "control a group");
    const bool is_holder = client->second.holders.contains(ref.process);
    const bool has_found_one = std::ranges::any_of(
        client->second.found_in, [&](const ProcessId& one) { return living_.contains(one); });
    if (!is_holder && (living_.contains(ref.process) || !has_found_one))
      return make_error(std::errc::no_such_process, "control a group");
    if (client->second.fd != ref.fd) return make_error(std::errc::bad_file_descriptor, "control");
    return {};
  }
  Result<> signal(const ProcessId& process, bool is_stop) {
    if (fails()) return failure();
    if (!living_.contains(process)) return make_error(std::errc::no_such_process, "signal");
    set_member(stopped, process, is_stop);
    return {};
  }

  void begin() {
    const pid_t pid = 100 + static_cast<pid_t>(below(12));  // used again soon
    if (std::ranges::find(living_, pid, &ProcessId::pid) != living_.end()) return;
    const ProcessId process{pid, ++started_};
    living_.insert(process);
    make_client(process);
  }
  void make_client(const ProcessId& process) {
    const uint32_t handle = 0xC1D00000 + ++made_;
    clients_[handle].maker = process;
    clients_[handle].holders = {process};
    clients_[handle].fd = 3 + static_cast<int>(below(3));
    tell(process, ProcessOpened{.ns_pid = process.pid, .cgroup_id = 0, .uid = 0, .command = "x"});
    tell(process, ClientCreated{handle, clients_[handle].fd});
    make_group(process, handle);
  }
  void make_group(const ProcessId& process, uint32_t handle) {
    Client& client = clients_[handle];
    const uint32_t name = 0x10 + below(4);
    if (client.groups.contains(name)) return;
    Group group{.gpu = below(gpu_count_),
                .device = 0,
                .number = 0,
                .is_dense = below(3) > 0,
                .is_first = client.names.insert(name).second,
                .channels = {}};
    group.device = 1 + group.gpu;
    std::set<uint32_t> numbers;
    for (const auto& [other, its] : clients_)
      for (const auto& [n, g] : its.groups)
        if (g.gpu == group.gpu) numbers.insert(g.number);
    while (numbers.contains(group.number)) ++group.number;
    tell(process, DeviceCreated{handle, group.device, group.gpu});
    tell(process, GroupCreated{handle, group.device, name, Engine::kGraphics, client.fd});
    for (uint32_t i = 0; i < 1 + below(3); ++i) {
      const uint32_t channel = 0x2000 + 0x10 * name + i;
      group.channels[channel];
      tell(process, ChannelCreated{handle, name, channel, 0xC86F});
    }
    client.groups.emplace(name, std::move(group));
  }
  void fork(const ProcessId& parent) {
    const pid_t pid = 100 + static_cast<pid_t>(below(12));
    if (std::ranges::find(living_, pid, &ProcessId::pid) != living_.end()) return;
    const ProcessId child{pid, ++started_};
    living_.insert(child);
    for (auto& [handle, client] : clients_)
      if (client.holders.contains(parent))
        client.was_inherited = client.holders.insert(child).second;
    // Some make a call, and are seen by that.
    if (below(2) == 0)
      tell(child, ProcessOpened{.ns_pid = pid, .cgroup_id = 0, .uid = 0, .command = "x"});
  }
  void end(const ProcessId& process) {
    living_.erase(process);
    stopped.erase(process);
    for (auto& [handle, client] : clients_) client.holders.erase(process);
    std::erase_if(clients_, [](const auto& one) { return one.second.holders.empty(); });
    if (below(5) > 0) tell(process, ProcessClosed{});  // otherwise only /proc tells
  }

  const uint32_t gpu_count_;
  mutable std::mt19937 random_;
  std::set<ProcessId> living_;
  std::map<uint32_t, Client> clients_;
  std::vector<DriverEvent> pending_;
  uint64_t started_ = 1000;
  uint32_t made_ = 0;
};

}  // namespace gpushare::test
