// SPDX-License-Identifier: Apache-2.0
// SlowGpu: GPUs full of programs, in memory, that take as long for each control as an H200 with
// driver 580 does. The calling thread sleeps for that time, as it does in the driver, which lets
// one caller in at a time: one for each GPU, or one of all where `is_one_lock`. Each GPU logs the
// switches of a round robin among its active programs, so that accounting has its usual work.
// Threads: freeze, thaw, slices and searches from any, the other calls from one.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/observer.h"

namespace gpushare::bench {

// Of one call. Freezes and thaws: of up to 64 channels (driver-facts, section 3).
struct DriverTimes {
  Micros set_slice{350}, get_slice{100}, number{100}, freeze{500}, thaw{260}, read_log{12};
  Micros attach{5000};
};

class SlowGpu final : public Gpu {
 public:
  struct Shape {
    uint32_t gpus = 8, programs = 64;  // on each GPU
    DriverTimes times{};
    bool is_one_lock = false;
  };
  explicit SlowGpu(const Shape& shape);

  // --- what programs do
  uint32_t count() const { return static_cast<uint32_t>(programs_.size()); }
  ProcessId process(uint32_t program) const;
  uint32_t gpu_of(uint32_t program) const { return program / shape_.programs; }
  // What it makes at its start.
  std::vector<DriverEvent> start_of(uint32_t program) const;
  void end(uint32_t program);
  // When its slice was last set since mark(); zero: not at all.
  void mark();
  Time first_set(uint32_t program) const;
  Time frozen_at(uint32_t program) const;
  Micros slice_of(uint32_t program) const;
  bool is_frozen(uint32_t program) const;
  uint64_t calls() const { return calls_; }

  // --- Gpu
  std::span<const GpuInfo> gpus() const override { return infos_; }
  const GpuSupport& support() const override { return support_; }
  bool knows_channel_class(uint32_t) const override { return true; }
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override;
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override;
  Result<> set_slice(const GroupRef& group, Micros slice) override;
  Result<Micros> slice(const GroupRef& group) override;
  Result<uint32_t> hardware_group(const GroupRef& group) override;
  Result<> stop(const ProcessId&) override { return {}; }
  Result<> resume(const ProcessId&) override { return {}; }
  Result<SwitchBatch> read_switches(uint32_t gpu) override;
  std::optional<UtilisationSample> utilisation(uint32_t) override { return std::nullopt; }
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) override;
  Result<std::vector<pid_t>> users() const override;

 private:
  struct Program {
    std::atomic<int64_t> slice_us{2048};
    std::atomic<Time> first_set{}, frozen_at{};
    std::atomic<bool> is_frozen{false}, has_ended{false};
  };
  struct Turn {  // on one GPU
    uint32_t program = 0;
    Time end{};
  };

  Program* find(uint32_t client) const;
  void take(uint32_t gpu, Micros time);
  Result<> switch_channels(uint32_t gpu, std::span<const ChannelRef> channels, bool is_freeze);

  const Shape shape_;
  std::vector<GpuInfo> infos_;
  GpuSupport support_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::vector<Turn> turns_;
  std::unique_ptr<std::mutex[]> locks_;
  std::atomic<uint64_t> calls_{0};
};

// Tells what it is told.
class Told final : public Observer {
 public:
  using Observer::drain;
  int fd() const override { return -1; }
  uint64_t dropped() const override { return 0; }
  Result<uint64_t> drain(const Sink& sink, uint64_t most) override;
  void tell(std::vector<DriverEvent> events);
  bool is_empty() const { return at_ == events_.size(); }

 private:
  std::vector<DriverEvent> events_;
  std::size_t at_ = 0;
};

}  // namespace gpushare::bench
