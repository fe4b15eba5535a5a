// SPDX-License-Identifier: Apache-2.0
// What the orders are held against: schedules of textbooks on one machine, without iterations and
// without costs. Exact, in whole nanoseconds where nothing is divided. Pure.
#pragma once

#include <optional>
#include <vector>

#include "bench/sched/replay/jobs.h"

namespace gpushare::replay {

// Of each job, in its order.
struct Span {
  Nanos start{}, end{};
};

// First come, first served.
std::vector<Span> first_come(const Jobs& jobs);
// Shortest remaining processing time first: the least mean completion time that is possible on one
// GPU, were lengths known and switches free.
std::vector<Span> shortest_left(const Jobs& jobs);
// All that are there share the machine equally at each instant.
std::vector<Span> processor_sharing(const Jobs& jobs);
// In turns of this length, the one that has had least goes first; an arrival ends a turn. At most
// `admitted` jobs take part at a time, by arrival.
std::vector<Span> least_attained(const Jobs& jobs, Nanos turn, size_t admitted = SIZE_MAX);
// When so many GPUs would be done at the earliest if all work could be spread over all of them.
Nanos work_bound(const Jobs& jobs, uint32_t gpus);

}  // namespace gpushare::replay
