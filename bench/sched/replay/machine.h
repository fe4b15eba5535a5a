// SPDX-License-Identifier: Apache-2.0
// A machine with one or several GPUs in virtual time, and what became of the jobs on it. Jobs are
// placed as the agent places them (sched/orders/place.h) and run in the order that a policy of the
// agent says. Deterministic.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/sched/replay/gpu.h"

namespace gpushare::replay {

// Makes the policy of one GPU; it may read the history, which grows as jobs end.
using MakePolicy = std::function<std::unique_ptr<Policy>(const LengthHistory&)>;

struct Machine {
  MakePolicy policy;
  Costs costs{};
  Told told = Told::kLength;
  uint32_t gpus = 1;
  LengthHistory history{};  // what was learnt before
};

struct Replay {
  std::vector<Outcome> outcomes;  // of the jobs, in their order; all have ended
  uint64_t switches = 0, stops = 0, decisions = 0;
  Nanos used{}, lost{};
  LengthHistory history;  // with these jobs
};

using Options = std::vector<std::pair<std::string_view, int64_t>>;
// The agent's policy of that name, with these options other than their defaults; none: there is
// none that orders jobs, or it has no such option.
std::optional<MakePolicy> policy_named(std::string_view name, const Options& options = {});

// Requires: jobs in the order of their submission, each on one GPU and with a length above 0.
Replay replay(const Jobs& jobs, const Machine& machine);

}  // namespace gpushare::replay
