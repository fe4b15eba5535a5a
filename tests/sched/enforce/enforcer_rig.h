// SPDX-License-Identifier: Apache-2.0
// An enforcer over the fake driver, with two programs, A and B.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "sched/enforce/enforcer.h"
#include "sched/registry/registry.h"
#include "tests/sched/support/events.h"
#include "tests/sched/support/fake_gpu.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace gpushare::test {

using Kind = FakeGpu::Call::Kind;

inline constexpr ProcessId kA{100, 1100}, kB{200, 1200};
inline constexpr Handles kHandlesA{
    .client = 0xA, .device = 1, .group = 0x10, .first_channel = 0x20};
inline constexpr Handles kHandlesB{
    .client = 0xB, .device = 1, .group = 0x10, .first_channel = 0x20};

class EnforcerTest : public ::testing::Test {
 protected:
  // A region's parts are valid when zero.
  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  FakeGpu gpu_;
  Ledger ledger_{*region_};
  ManualClock clock_;
  Registry registry_{gpu_.gpus()};
  FakeProcReader processes_;
  std::vector<Enforcer::Change> changes_;
  Enforcer enforcer_{gpu_, ledger_, clock_,
                     [this](const Enforcer::Change& change) { changes_.push_back(change); }};

  void SetUp() override {
    for (const DriverEvent& one : program(kA, kHandlesA)) registry_.apply(one);
    for (const DriverEvent& one : program(kB, kHandlesB)) registry_.apply(one);
  }
  const Holder& holder(const ProcessId& process) { return *registry_.holder(process, 0); }
  Enforcer::Target target(const ProcessId& process, bool is_frozen, Micros slice = Micros(0)) {
    return {&holder(process), slice, is_frozen};
  }
  void apply(std::vector<Enforcer::Target> targets) { enforcer_.apply(0, targets); }
  std::size_t calls(Kind kind) const { return gpu_.count(kind); }
  std::size_t ledger_entries() const {
    std::size_t n = 0;
    ledger_.for_each([&](uint32_t, const LedgerRecord&) { ++n; });
    return n;
  }
  void refuse(Kind kind, std::errc code = std::errc::operation_not_permitted) {
    gpu_.fault = [=](const FakeGpu::Call& call) -> Result<> {
      if (call.kind == kind) return make_error(code, "ask the driver");
      return {};
    };
  }
};

}  // namespace gpushare::test
