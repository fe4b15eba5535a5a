// SPDX-License-Identifier: Apache-2.0
// A race: programs that begin together and are measured over the same interval, each by its own
// progress, by what the agent counted from the hardware's log, or both.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/gpu/report.h"
#include "bench/gpu/stage.h"

namespace gpushare::bench {

struct Runner {
  std::string workload = "spin";  // it must know --seconds, --measure-from and --measure-to
  std::string progress = "units_per_ms";
  std::vector<std::string> arguments{};
  std::string tenant{};  // used when an agent runs; empty means none
};

struct RaceResult {
  std::vector<double> rates;       // progress per ms, by runner
  std::vector<double> log_shares;  // part of the interval on a GPU; empty without an agent
  std::vector<std::map<uint32_t, double>> log_by_gpu;  // the same, on each GPU by itself
  std::vector<std::string> lines;                      // each program's last line

  double total() const { return sum(rates); }
  std::vector<double> shares() const;     // parts of the total
  std::vector<double> log_parts() const;  // parts of the sum of log_shares
  Record record() const;
};

// Runs a race without an agent, or under the one that runs.
RaceResult race(Stage& stage, const std::vector<Runner>& runners);
// The same under an agent of its own with this configuration, which is stopped at the end.
RaceResult race_under_agent(Stage& stage, const std::vector<Runner>& runners,
                            const std::string& tenants);
// The same with programs that run already when an agent with this configuration comes; each is
// attached to its tenant. The agent is stopped at the end.
RaceResult race_before_agent(Stage& stage, const std::vector<Runner>& runners,
                             const std::string& tenants);

// Returns the largest distance between a share and its target; 0.01 is one percentage point.
double worst_error(const std::vector<double>& is, const std::vector<double>& should_be);

}  // namespace gpushare::bench
