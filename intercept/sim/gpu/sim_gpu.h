// SPDX-License-Identifier: Apache-2.0
// SimGpu: Gpu and Observer over a Model in the same process and in virtual time, for whole-system
// tests: programs are scripted on the model, the agent's code runs on SimGpu, and time moves when
// the test moves it, and during a control by what the driver would take. One thread.
#pragma once

#include <deque>
#include <set>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "intercept/sim/model/model.h"
#include "shmctl/base/fd.h"

namespace gpushare::sim {

// The model's time as the agent's.
class ModelClock final : public Clock {
 public:
  explicit ModelClock(const Model& model) : model_(model) {}
  Time now() const override { return model_.now(); }

 private:
  const Model& model_;
};

class SimGpu final : public Gpu {
 public:
  // `model` outlives this. Its log is read from here on.
  explicit SimGpu(Model& model);

  // Faults. The next call that changes something (freeze, thaw, set_slice) fails and does nothing;
  // one more for each call of this.
  void fail_next(std::errc error) { faults_.push_back(error); }
  // Every set_slice and freeze of this process is refused with operation_not_permitted.
  void refuse(pid_t pid) { refused_.insert(pid); }

  // Calls that changed something, refused and failed ones too.
  uint64_t controls() const { return controls_; }

  std::span<const GpuInfo> gpus() const override { return model_.gpus(); }
  const GpuSupport& support() const override { return support_; }
  bool knows_channel_class(uint32_t) const override { return true; }
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override;
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override;
  Result<> set_slice(const GroupRef& group, Micros slice) override;
  Result<Micros> slice(const GroupRef& group) override;
  Result<uint32_t> hardware_group(const GroupRef& group) override;
  // Programs in virtual time have no process: not_supported.
  Result<> stop(const ProcessId& process) override;
  Result<> resume(const ProcessId& process) override;
  Result<SwitchBatch> read_switches(uint32_t gpu) override;
  std::optional<std::vector<Utilisation>> utilisation(uint32_t gpu) override;
  std::unique_ptr<ObjectSearch> attach(pid_t pid) override;
  std::vector<pid_t> users() const override { return model_.users(); }

 private:
  Result<> take_fault(const char* step);
  void spend(Nanos time) { model_.advance_to(model_.now() + time); }

  Model& model_;
  GpuSupport support_;
  std::vector<uint64_t> places_;  // in each GPU's log
  std::deque<std::errc> faults_;
  std::set<pid_t> refused_;
  uint64_t controls_ = 0;
};

// The model's events from here on.
class ModelObserver final : public Observer {
 public:
  // `model` outlives this; takes its event sink.
  explicit ModelObserver(Model& model);

  int fd() const override { return ready_.get(); }
  Result<uint64_t> drain(const Sink& sink) override;
  uint64_t dropped() const override { return dropped_; }

  // As when the probe's buffer was full: the pending events are lost, and EventsLost says how many.
  void lose_pending();

 private:
  void mark_ready();

  Model& model_;
  std::deque<DriverEvent> pending_;
  Fd ready_;  // readable while events are pending
  uint64_t dropped_ = 0;
};

}  // namespace gpushare::sim
