// SPDX-License-Identifier: Apache-2.0
// Model: a machine with simulated GPUs, as one deterministic event-driven model in virtual time.
// Tests move its time by steps (SimGpu), gpushare-sim in real time (server). It has no threads and
// makes no I/O: the caller says what time it is. One thread.
//
// The objects are those that a CUDA process makes in the driver, with handles that look like the
// driver's: one client per connection, and per context a graphics group of 8 channels and 3 copy
// groups of 4. Kernels of queue q run on graphics channel q % 8, copies on channel q % 4 of the
// copy group of their direction. The work of a queue runs in order, and stops while its channel is
// frozen.
//
// A collective kernel meets those of other contexts, on any GPU, and spins until all of them run.
//
// The model leaves out which SMs a kernel uses, memory bandwidth and caches, the time to make a
// context, clocks and power; copy engines change contexts for free, because that was not measured.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "intercept/event.h"
#include "intercept/gpu.h"
#include "intercept/sim/model/engine.h"
#include "intercept/sim/model/switch_log.h"
#include "intercept/sim/wire/protocol.h"
#include "shmctl/base/error.h"

namespace gpushare::sim {

// Methods take effect at now(). A sink may call any method except advance_to(); a function that was
// given to call_at() may call that, too.
class Model {
 public:
  using CompletionSink = std::function<void(uint32_t client, const Completion&)>;
  using EventSink = std::function<void(const DriverEvent&)>;

  Model(std::vector<GpuModel> gpus, const Parameters& parameters, Time start);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Set the functions that are called for finished work, and for what a probe would see. Call them
  // before any other method.
  void on_completion(CompletionSink sink) { completion_sink_ = std::move(sink); }
  void on_event(EventSink sink) { event_sink_ = std::move(sink); }

  // --- time
  Time now() const { return now_; }
  void advance_to(Time to);
  // No sink is called before this instant unless a method is called. A caller in real time sleeps
  // until then.
  Time quiet_until() const;
  // Calls `what` at the instant `when`, for scripted programs.
  void call_at(Time when, std::function<void()> what);

  // --- programs. Error invalid_argument for a name that this client does not have.
  uint32_t open_client(const ProcessId& process, const ProcessOpened& about);
  // Frees all that it has, as when the process ends, with this status if it is known.
  void close_client(uint32_t client, std::optional<int> status = {});
  // The process has ended, with this status if it is known, and others have its descriptors: what
  // it has stays, and goes on, until close_client(). Observers are told now, as by the probe; where
  // this is not called they are told then, as by the kernel module.
  void end_process(const ProcessId& process, std::optional<int> status = {});
  // Whether this process has a copy of the client's descriptor.
  void inherit(uint32_t client, const ProcessId& heir, bool has_it = true);
  // `is_hidden`: no event tells of its groups and channels.
  Result<ContextReply> create_context(uint32_t client, uint32_t gpu, uint32_t mps_server = 0,
                                      bool is_hidden = false);
  Result<> destroy_context(uint32_t client, uint32_t context);
  Result<uint32_t> allocate(uint32_t client, uint32_t context, uint64_t bytes);
  Result<> free(uint32_t client, uint32_t memory);
  // Malformed work completes at once with a status.
  void submit(uint32_t client, const Work& work);
  void stop(uint32_t client, uint64_t sequence);
  // Some work of the driver's own on the context's compute group, as a start has: nobody is told of
  // its end. After it the context stays resident until another one has work.
  void touch(uint32_t client, uint32_t context, Nanos work = std::chrono::microseconds(20));
  ProgressReply progress(uint32_t client, uint64_t sequence) const;

  // --- control, as the driver does it, but at once
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels);
  // Continues after an error. A channel that is gone is no error.
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels);
  Result<> set_slice(const GroupRef& group, Micros slice);
  Result<Micros> slice(const GroupRef& group) const;
  Result<uint32_t> hardware_group(const GroupRef& group) const;
  // The GPU on which a group with these handles is, whoever has it; nullopt: there is none.
  std::optional<uint32_t> gpu_of(const GroupRef& group) const;
  // How many of them are there.
  size_t count_there(uint32_t gpu, std::span<const ChannelRef> channels) const;
  // How long the driver would take.
  Nanos freeze_cost(std::span<const ChannelRef> channels) const;
  Nanos thaw_cost(std::span<const ChannelRef> channels) const;

  // --- observation
  const Parameters& parameters() const { return parameters_; }
  std::span<const GpuInfo> gpus() const { return infos_; }
  uint64_t free_memory(uint32_t gpu) const;
  // The rest requires that the GPU exists.
  const SwitchLog& switch_log(uint32_t gpu) const;
  // Of the time between the two calls before: as late as the hardware at its latest.
  UtilisationSample utilisation(uint32_t gpu);
  std::vector<DriverEvent> attach(pid_t pid) const;
  std::vector<pid_t> users() const;
  std::vector<ObjectRef> missing(std::span<const ObjectRef> objects) const;
  bool has_ended(pid_t pid) const;     // and others have its descriptors
  pid_t owner(uint32_t client) const;  // 0 when there is no such client
  Runlist::Totals graphics_totals(uint32_t gpu) const;

 private:
  struct Item;
  struct Queue;
  struct Channel;
  struct Group;
  struct Context;
  struct Client;
  struct Device;
  struct Meeting;

  using Happening = decltype(DriverEvent::what);

  static constexpr size_t kGroups = 4;  // of a context: graphics, then copies by direction

  EngineModel& engine(const Group& group);
  Client* find_client(uint32_t client) const;
  Context* find_context(uint32_t client, uint32_t context) const;
  static bool is_reached(const Client& client, const ProcessId& process);
  Result<Group*> find_group(const GroupRef& ref) const;
  Channel* find_channel(uint32_t gpu, const ChannelRef& ref) const;
  Nanos control_cost(std::span<const ChannelRef> channels, Nanos per_call, Nanos per_channel,
                     Nanos per_group) const;

  void emit(const Client& client, Happening what);
  void announce(const Context& context, const std::function<void(Happening)>& to) const;
  void join_entry(Group& group);
  void leave_entry(Group& group);
  void drop_context(Context& context, const std::function<void(const ObjectFreed&)>& freed);

  void run_pumps();
  bool begin(Queue& queue, Item& item);
  void suspend(Channel& channel);
  void join_meeting(Context& context, Item& item);
  void leave_meeting(const Item& item);
  // To be called whenever what runs may have changed, before time goes on.
  void look_at_meetings();
  Time quiet_meetings_until() const;
  void finish(Item& item, uint32_t status);
  void release_waiters(Client& client, uint64_t sequence);
  void drop_work(Queue& queue);
  void deliver();
  void collect_log(Device& device);
  Time next_step() const;

  const Parameters parameters_;
  std::vector<GpuInfo> infos_;
  Time now_;
  CompletionSink completion_sink_;
  EventSink event_sink_;

  std::vector<std::unique_ptr<Device>> devices_;
  std::map<uint32_t, std::unique_ptr<Client>> clients_;
  std::unordered_map<uint64_t, Channel*> channels_;  // by client and handle
  std::unordered_map<uint64_t, Group*> groups_;
  std::multimap<Time, std::function<void()>> calls_;
  // Collective operations, by communicator and number in it.
  std::map<std::pair<uint64_t, uint64_t>, Meeting> meetings_;
  std::deque<Queue*> pumps_;  // queues whose first item must be examined
  std::deque<std::pair<uint32_t, Completion>> outbox_;
  bool is_delivering_ = false;
  uint32_t next_client_ = 0xC1D00001;
  uint64_t next_touch_ = 0;
  EntryId next_entry_ = 1;
};

}  // namespace gpushare::sim
