// SPDX-License-Identifier: Apache-2.0
// The usage history: what the agent keeps of who used the GPUs, from sample to sample. The agent
// makes samples (sched/usage) and `gpushare report` reads them. Values only; every amount adds up,
// so that samples of any length are summed without loss.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "shmctl/base/clock.h"

namespace gpushare {

// Seconds since 1970, UTC, as the machine's clock had it then.
using WallSeconds = int64_t;

inline constexpr int64_t kNoUser = -1;

// Whose numbers these are. A change of priority begins another series.
struct UsageSeries {
  std::string tenant;
  // kNoUser: what is known of the tenant as a whole alone, such as the iterations' times, and the
  // GPU time of programs that ended before they were seen.
  int64_t uid = kNoUser;
  uint32_t gpu = 0;       // the agent's number of it
  uint32_t priority = 1;  // Priority, in shmctl/plane/layout.h
  auto operator<=>(const UsageSeries&) const = default;
};

// What a series had during a sample.
struct UsageAmounts {
  uint64_t used_ms = 0;      // GPU time
  uint64_t entitled_ms = 0;  // GPU time that the policy aimed at: its target share, over time
  // Time of its processes, each counted, for which they had work and no turn, were frozen by their
  // tenant's cap, and were frozen by a user. Seen by looks kUsageLook apart.
  uint64_t waiting_ms = 0;
  uint64_t throttled_ms = 0;
  uint64_t stopped_ms = 0;
  // Iterations, where they are counted, and the sum of their times.
  uint64_t iterations = 0;
  uint64_t iterations_us = 0;
  // Not sums: the longest p99 and the last target.
  uint64_t p99_us = 0;
  uint64_t target_us = 0;

  bool operator==(const UsageAmounts&) const = default;
  UsageAmounts& operator+=(const UsageAmounts& other);
};

// All of them, in the order in which the file has them; the first kUsageSums are sums.
inline constexpr std::array kUsageMembers = {
    &UsageAmounts::used_ms,       &UsageAmounts::entitled_ms, &UsageAmounts::waiting_ms,
    &UsageAmounts::throttled_ms,  &UsageAmounts::stopped_ms,  &UsageAmounts::iterations,
    &UsageAmounts::iterations_us, &UsageAmounts::p99_us,      &UsageAmounts::target_us};
inline constexpr size_t kUsageSums = 7;

struct UsageSample {
  // For how much of its time the agent was there to look. Shares are amounts divided by this.
  uint64_t watched_ms = 0;
  std::map<UsageSeries, UsageAmounts> amounts;

  UsageSample& operator+=(const UsageSample& other);
};

// A job: what one `gpushare run` started, or any other GPU process by itself.
struct UsageJob {
  std::string name;     // "run-4711", "pid-815"
  std::string command;  // the program's name without its arguments; empty where /proc hides it
  std::string tenant;
  int64_t uid = kNoUser;
  auto operator<=>(const UsageJob&) const = default;
};

struct UsageJobAmounts {
  uint64_t used_ms = 0, waiting_ms = 0, throttled_ms = 0;

  bool operator==(const UsageJobAmounts&) const = default;
  UsageJobAmounts& operator+=(const UsageJobAmounts& other);
};

// A process that stood still from one look to another.
struct UsageFreeze {
  int64_t start_ms = 0;  // since 1970
  uint64_t duration_ms = 0;
  UsageJob job;
  int32_t pid = 0;
  uint32_t gpu = 0;
  std::string reason;  // "cap", "turn", "user"
};

struct UsageGpu {
  std::string uuid, name;
  bool operator==(const UsageGpu&) const = default;
};

// How often the agent looks, and the three lengths of samples: each holds for as long as this many
// samples reach, and all of them within the file's limit.
inline constexpr Nanos kUsageLook = 1s;
struct UsageTier {
  WallSeconds step;
  uint32_t most_samples;
};
inline constexpr UsageTier kUsageTiers[] = {
    {.step = 10, .most_samples = 60'480},    // a week
    {.step = 300, .most_samples = 17'280},   // 60 days
    {.step = 3600, .most_samples = 17'520},  // two years
};
inline constexpr uint32_t kUsageTierCount = 3;

// The begin of the step of this length in which the time lies, also before 1970.
constexpr WallSeconds step_begin(WallSeconds time, WallSeconds step) {
  return time - ((time % step) + step) % step;
}

}  // namespace gpushare
