// SPDX-License-Identifier: Apache-2.0
// LossyGpu: the simulated driver, whose switch log loses records, and cannot be read now and then.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "intercept/sim/gpu/sim_gpu.h"

namespace gpushare::test {

class LossyGpu final : public Gpu {
 public:
  explicit LossyGpu(sim::SimGpu& gpu) : gpu_(gpu) {}

  // Of the GPU's next readings with records, so many of the oldest records are lost.
  void lose(uint32_t gpu, std::size_t records) { losses_[gpu] = records; }
  // So many of the GPU's next readings fail.
  void fail(uint32_t gpu, int readings) { failures_[gpu] = readings; }
  bool is_failing(uint32_t gpu) { return failures_[gpu] > 0; }
  // How long the time is, since the last call, of which records were lost.
  Nanos take_lost_time(uint32_t gpu) { return std::exchange(lost_time_[gpu], Nanos{}); }

  Result<SwitchBatch> read_switches(uint32_t gpu) override {
    if (failures_[gpu] > 0) {
      --failures_[gpu];
      return make_error(std::errc::io_error, "read switch log");
    }
    Result<SwitchBatch> batch = gpu_.read_switches(gpu);
    if (!batch) return batch;
    const std::size_t lost = std::min(losses_[gpu], batch->records.size());
    if (lost > 0) {
      lost_time_[gpu] += batch->complete_until - known_until_[gpu];
      batch->lost = lost;
      batch->records.erase(batch->records.begin(),
                           batch->records.begin() + static_cast<int64_t>(lost));
      losses_[gpu] = 0;
    }
    known_until_[gpu] = batch->complete_until;
    return batch;
  }

  std::span<const GpuInfo> gpus() const override { return gpu_.gpus(); }
  const GpuSupport& support() const override { return gpu_.support(); }
  bool knows_channel_class(uint32_t id) const override { return gpu_.knows_channel_class(id); }
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    return gpu_.freeze(gpu, channels);
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    return gpu_.thaw(gpu, channels);
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    return gpu_.set_slice(group, slice);
  }
  Result<Micros> slice(const GroupRef& group) override { return gpu_.slice(group); }
  Result<uint32_t> hardware_group(const GroupRef& group) override {
    return gpu_.hardware_group(group);
  }
  Result<> stop(const ProcessId& process) override { return gpu_.stop(process); }
  Result<> resume(const ProcessId& process) override { return gpu_.resume(process); }
  std::optional<UtilisationSample> utilisation(uint32_t gpu) override {
    return gpu_.utilisation(gpu);
  }
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) override {
    return gpu_.attach(pid, known);
  }
  Result<std::vector<pid_t>> users() const override { return gpu_.users(); }

 private:
  sim::SimGpu& gpu_;
  std::map<uint32_t, std::size_t> losses_;
  std::map<uint32_t, int> failures_;
  std::map<uint32_t, Nanos> lost_time_;
  std::map<uint32_t, Time> known_until_;
};

}  // namespace gpushare::test
