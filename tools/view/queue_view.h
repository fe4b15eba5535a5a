// SPDX-License-Identifier: Apache-2.0
// The queue: the jobs of the GPUs that take turns, in the order in which they get them, as gpushare
// queue shows them. Made from the records of their processes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/agent/status_source.h"
#include "tools/base/report.h"

namespace gpushare {

struct QueuedJob {
  uint64_t id = 0;
  std::string name{};  // "run-4711", or "pid-4712" if `gpushare run` did not start it
  std::string tenant{}, command{}, why{};
  uint32_t place = 0;  // in the order of the GPU asked for, or of its first; from 1 on; 0: in none
  std::vector<uint32_t> gpus{};
  std::vector<int32_t> pids{};
  ProcessRecord record{};  // of its first process: whether it has its turn, its times and its work
};

// By first GPU and place. `gpu`: of this one only, by their places there.
std::vector<QueuedJob> queued_jobs(const PlaneSnapshot& snapshot,
                                   std::optional<uint32_t> gpu = std::nullopt);

// A line for each GPU that takes turns, then a table of the jobs. Of a dead agent that it is dead,
// and what it left.
std::vector<std::string> queue_lines(const Status& status, const Screen& screen,
                                     std::optional<uint32_t> gpu = std::nullopt);
// One JSON object: {"gpus":[...],"jobs":[...]}.
std::string queue_json(const PlaneSnapshot& snapshot, std::optional<uint32_t> gpu = std::nullopt);

}  // namespace gpushare
