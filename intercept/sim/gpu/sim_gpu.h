// SPDX-License-Identifier: Apache-2.0
// SimGpu and ModelObserver: Gpu and Observer over a Model in the same process and in virtual time,
// for whole-system tests. Programs are scripted on the model and the agent's code runs on SimGpu.
// Time moves when the test moves it, and during a control by as much as the driver would take. One
// thread.
#pragma once

#include <deque>
#include <set>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "intercept/sim/gpu/pending_events.h"
#include "intercept/sim/model/model.h"
#include "shmctl/base/fd.h"

namespace gpushare::sim {

// The model's time as a Clock for the agent.
class ModelClock final : public Clock {
 public:
  explicit ModelClock(const Model& model) : model_(model) {}
  Time now() const override { return model_.now(); }

 private:
  const Model& model_;
};

class SimGpu final : public Gpu {
 public:
  // `model` must outlive this. Its log is read from now on.
  explicit SimGpu(Model& model);

  // Makes the next call that changes something (freeze, thaw, set_slice) fail without an effect.
  // Each call of this function makes one more fail.
  void fail_next(std::errc error) { faults_.push_back(error); }
  // From now on every set_slice and freeze of this process fails with operation_not_permitted.
  void refuse(pid_t pid) { refused_.insert(pid); }

  // The number of calls that change something, with those that were refused or failed.
  uint64_t controls() const { return controls_; }
  // The number of searches for objects of programs that were begun.
  uint64_t searches() const { return searches_; }

  std::span<const GpuInfo> gpus() const override { return model_.gpus(); }
  const GpuSupport& support() const override { return support_; }
  bool knows_channel_class(uint32_t) const override { return true; }
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override;
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override;
  Result<> set_slice(const GroupRef& group, Micros slice) override;
  Result<Micros> slice(const GroupRef& group) override;
  Result<uint32_t> hardware_group(const GroupRef& group) override;
  // Error not_supported: programs in virtual time have no process.
  Result<> stop(const ProcessId& process) override;
  Result<> resume(const ProcessId& process) override;
  Result<SwitchBatch> read_switches(uint32_t gpu) override;
  std::optional<UtilisationSample> utilisation(uint32_t gpu) override;
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) override;
  Result<std::vector<pid_t>> users() const override { return model_.users(); }
  Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef> objects) override;

 private:
  Result<> take_fault(const char* step);
  void spend(Nanos time) { model_.advance_to(model_.now() + time); }

  Model& model_;
  GpuSupport support_;
  std::vector<uint64_t> places_;  // the place in each GPU's log
  std::deque<std::errc> faults_;
  std::set<pid_t> refused_;
  uint64_t controls_ = 0, searches_ = 0;
};

// The events of the model from its construction on.
class ModelObserver final : public Observer {
 public:
  // Sets the model's event sink. `model` must outlive this.
  explicit ModelObserver(Model& model);

  int fd() const override { return ready_.get(); }
  Result<uint64_t> drain(const Sink& sink, uint64_t most) override;
  using Observer::drain;
  uint64_t dropped() const override { return dropped_; }

  // One more event, for what the model does not do by itself.
  void add(DriverEvent event);
  // Loses the pending events, as when the probe's buffer was full; EventsLost says how many.
  void lose_pending();

 private:
  void mark_ready();

  Model& model_;
  PendingEvents pending_;
  Fd ready_;  // readable while events are pending
  uint64_t dropped_ = 0;
};

}  // namespace gpushare::sim
