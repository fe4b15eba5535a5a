// SPDX-License-Identifier: Apache-2.0
// A registry of two GPUs, a program and its child.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "sched/registry/registry.h"
#include "tests/sched/support/events.h"

namespace gpushare::test {

class RegistryTest : public ::testing::Test {
 protected:
  static constexpr ProcessId kProcess{100, 5000}, kChild{101, 5001};
  static constexpr Handles kContext{
      .client = 0xC1D00001, .device = 1, .group = 0x10, .first_channel = 0x20};

  static constexpr ObjectRef kItsClient{kContext.client, kContext.client},
      kItsGroup{kContext.client, kContext.group};

  // Index and instance differ, as they do on real machines.
  std::vector<GpuInfo> gpus_ = [] {
    std::vector<GpuInfo> gpus(2);
    gpus[0].instance = 1;
    gpus[1].index = 1;
    return gpus;
  }();
  Registry registry_{gpus_};

  void gone(const std::vector<ObjectRef>& objects) {
    registry_.gone(objects, registry_.last_serial());
  }
  void apply(const std::vector<DriverEvent>& events,
             Registry::Source source = Registry::Source::kLive) {
    for (const DriverEvent& one : events) registry_.apply(one, source);
  }
  const Holder& holder(uint32_t gpu, const ProcessId& process = kProcess) {
    const Holder* found = registry_.holder(process, gpu);
    if (found == nullptr) throw std::runtime_error("no holder");
    return *found;
  }
};

}  // namespace gpushare::test
