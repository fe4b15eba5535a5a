// SPDX-License-Identifier: Apache-2.0
// Sums a usage history up for `gpushare report`: by tenant, by user, by job, and over time, and
// says what of a question it cannot answer. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shmctl/usage/reader.h"

namespace gpushare {

struct ReportLine {
  std::string name;
  UsageAmounts amounts;
  // GPU time in parts of the time that the agent watched, of all GPUs shown. 1 is one GPU.
  double share = 0;
  std::optional<double> target{};  // nullopt: the policy aims at no share, as where jobs take turns
};

struct ReportGpu {
  uint32_t gpu = 0;
  UsageGpu about;
  double busy = 0;  // used of the watched time, 0 to 1
  // For each tenant that the charts name, and "others", its share in each step, from `since` on;
  // negative: nobody watched.
  std::vector<std::pair<std::string, std::vector<double>>> shares;
};

struct ReportSummary {
  const UsageHistory* history = nullptr;  // what it was made of; outlives it
  double watched_hours = 0;
  uint64_t used_ms = 0;
  std::vector<ReportLine> tenants, users, high;  // the longest GPU time first
  std::vector<UsageJobTotal> jobs;               // the same
  std::vector<ReportGpu> gpus;
};

// `user_name`: of a uid. Charts name at most kMostNamed tenants.
inline constexpr size_t kMostNamed = 8;
ReportSummary summarize(const UsageHistory& history,
                        const std::function<std::string(int64_t uid)>& user_name);

// What is wrong with a window that asks for a GPU or a tenant which `whole`, a history of all time
// without these two, has nothing of: it names what there is. Empty: it has both.
std::string missing_from(const UsageHistory& whole, const UsageWindow& window);

}  // namespace gpushare
