// SPDX-License-Identifier: Apache-2.0
// `fifo`: one process at a time, in the order in which they came, each for as long as it has work.
// Weights, caps and priorities do not count. It is the example of docs/writing_a_policy.md.
#pragma once

#include <array>

#include "sched/policy/entry.h"

namespace gpushare {

inline constexpr std::array<PolicyOption, 1> kFifoOptions = {
    {{"patience_ms", 0, 60'000, 1'000, "how long a program without work keeps its turn"}}};

class FifoPolicy final : public Policy {
 public:
  explicit FifoPolicy(const PolicyOptions& options)
      : patience_(std::chrono::milliseconds(options["patience_ms"])) {}
  Plan plan(const Snapshot& snapshot) override;

 private:
  const Nanos patience_;
  ProcessId holder_{};  // of the turn
  Time worked_{};       // when the holder was last seen with work
};

}  // namespace gpushare
