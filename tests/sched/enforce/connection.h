// SPDX-License-Identifier: Apache-2.0
// Connection: one of several connections to the same fake driver, which may be broken.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "intercept/gpu.h"

namespace gpushare::test {

class Connection final : public Gpu {
 public:
  explicit Connection(std::shared_ptr<Gpu> driver, bool is_broken = false)
      : driver_(std::move(driver)), is_broken_(is_broken) {}
  std::span<const GpuInfo> gpus() const override { return driver_->gpus(); }
  Result<OpenedGpu> open(uint32_t gpu) override { return driver_->open(gpu); }
  const GpuSupport& support() const override { return driver_->support(); }
  bool knows_channel_class(uint32_t) const override { return true; }
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    return driver_->freeze(gpu, channels);
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    if (is_broken_) return make_error(std::errc::connection_reset, "thaw channels");
    return driver_->thaw(gpu, channels);
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    return driver_->set_slice(group, slice);
  }
  Result<Micros> slice(const GroupRef& group) override { return driver_->slice(group); }
  Result<uint32_t> hardware_group(const GroupRef& group) override { return group.group; }
  Result<> stop(const ProcessId&) override { return {}; }
  Result<> resume(const ProcessId&) override { return {}; }
  Result<SwitchBatch> read_switches(uint32_t) override { return SwitchBatch{}; }
  std::optional<UtilisationSample> utilisation(uint32_t) override { return std::nullopt; }
  std::unique_ptr<ObjectSearch> attach(pid_t, std::span<const ObjectRef>) override {
    return found_at_once(ObjectSearch::Found{});
  }
  Result<std::vector<pid_t>> users() const override { return std::vector<pid_t>{}; }

 private:
  const std::shared_ptr<Gpu> driver_;
  const bool is_broken_;
};

}  // namespace gpushare::test
