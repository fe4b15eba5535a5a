// SPDX-License-Identifier: Apache-2.0
// Reads a file of the usage history while the agent writes it, or after it has ended. It reads a
// copy of the file and of its log, so that a reader takes no lock and cannot hold up the agent. Any
// thread; it may block for as long as the disk does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/usage/usage.h"

namespace gpushare {

struct UsageWindow {
  WallSeconds since = 0, until = 0;            // since < until
  std::optional<uint32_t> gpu{};               // this one alone
  std::optional<std::string> tenant{};         // and those below it
  static constexpr int64_t kMostSteps = 1000;  // the finest samples with no more steps are taken
};

struct UsageJobTotal {
  UsageJob job;
  UsageJobAmounts amounts;
  WallSeconds first = 0, last = 0;  // begin and end of the steps in which it was seen
};

struct UsageHistory {
  WallSeconds step = 0;              // length of a sample
  WallSeconds since = 0, until = 0;  // the window, widened to whole steps
  std::map<WallSeconds, UsageSample> samples{};
  std::vector<UsageJobTotal> jobs{};   // by steps of five minutes or an hour; of all GPUs
  std::vector<UsageFreeze> freezes{};  // the longest first
  std::map<uint32_t, UsageGpu> gpus{};
  uint32_t broken = 0;  // samples that could not be read
};

inline constexpr size_t kMostFreezesRead = 100;

// Errors: those of opening the file; not_supported if a newer gpushare made it;
// bad_message if it is broken.
Result<UsageHistory> read_usage(const std::string& path, const UsageWindow& window);

}  // namespace gpushare
