// SPDX-License-Identifier: Apache-2.0
// HangingGpu: a fake driver that any thread may call, of which any GPU can be made to hang: a thaw
// there does not return until it answers again.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "tests/sched/support/fake_gpu.h"
#include "tests/support/membership.h"

namespace gpushare::test {

class HangingGpu final : public FakeGpu {
 public:
  using FakeGpu::FakeGpu;

  void set_hang(uint32_t gpu, bool hangs) {
    const std::lock_guard lock(mutex_);
    set_member(hanging_, gpu, hangs);
    changed_.notify_all();
  }
  // Until somebody stands there.
  void await_waiting() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [this] { return waiting_ > 0; }));
  }
  bool is_anyone_waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_ > 0;
  }
  int frozen_now() const {
    const std::lock_guard lock(mutex_);
    return frozen_channels();
  }
  int freezes_now(const ChannelRef& channel) const {
    const std::lock_guard lock(mutex_);
    return freezes(channel);
  }
  Micros slice_now(uint32_t client, uint32_t group) const {
    const std::lock_guard lock(mutex_);
    return slice_of(client, group);
  }

  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    const std::lock_guard lock(mutex_);
    return FakeGpu::freeze(gpu, channels);
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !hanging_.contains(gpu); });
    --waiting_;
    return FakeGpu::thaw(gpu, channels);
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    const std::lock_guard lock(mutex_);
    return FakeGpu::set_slice(group, slice);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint32_t> hanging_;
  int waiting_ = 0;
};

}  // namespace gpushare::test
