// SPDX-License-Identifier: Apache-2.0
// What is told of a replay: figures as Salus' Table 1 has them, as a table, as JSON and as a
// picture of the completion times. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/sched/replay/ideal.h"
#include "bench/sched/replay/machine.h"

namespace gpushare::replay {

struct Figures {
  std::string name;                  // of the order
  Nanos makespan{};                  // from the first submission to the last end
  Nanos queuing{};                   // mean, from submission to the first start
  Nanos mean{}, p95{}, p99{};        // of the completion times; percentiles by nearest rank
  std::vector<Nanos> completions{};  // ascending
  // Of a replay; an ideal schedule has none.
  std::optional<double> utilisation{};  // GPU time with work, of all until the last end
  uint64_t switches = 0, stops = 0;
  Nanos gap{};  // mean, lost by a switch
};

Figures figures_of(std::string name, const Jobs& jobs, std::span<const Span> spans);
Figures figures_of(std::string name, const Jobs& jobs, const Replay& replay, uint32_t gpus);

// A line for each order, times in the unit that fits the longest.
std::string figures_table(std::span<const Figures> rows);
nlohmann::ordered_json figures_json(const Figures& figures);

// A whole SVG document: for each order, how many percent of the jobs were complete after so long.
std::string completion_svg(std::span<const Figures> rows);

}  // namespace gpushare::replay
