// SPDX-License-Identifier: Apache-2.0
// Surroundings in which no process has the shim: tests override what they are about.
#pragma once

#include "sched/step/surroundings.h"

namespace gpushare::test {

class NoShims : public ShimProcesses {
 public:
  void read(Time, const Registry&) override {}
  std::vector<ProcessView> views(uint32_t) const override { return {}; }
  TenantPartition partition(uint32_t, uint32_t) const override { return {}; }
  void apply(Time, uint32_t, const Plan&, std::span<const ProcessView>) override {}
  Time finish(Time) override { return Time::max(); }
  bool is_gated(const ProcessId&) const override { return false; }
};

}  // namespace gpushare::test
