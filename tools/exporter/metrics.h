// SPDX-License-Identifier: Apache-2.0
// What the exporter says of a status: docs/metrics.md lists every metric. Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/agent/status_source.h"
#include "tools/exporter/workload.h"

namespace gpushare {

// Why a tenant had less of a GPU than its target in the last second; "none" if it had its target,
// to a hundredth of the GPU. Of several reasons the first in this order: its processes are frozen
// by the user, for its cap, for another's turn; they are only observed; they wait; they had nothing
// to run ("idle").
// Requires: share and target are known.
std::string_view shortfall_reason(const TenantGpuUse& use,
                                  const std::vector<const ProcessRecord*>& processes);

// The metrics, in Prometheus' text format. Of an agent that is not live only `gpushare_up` and the
// exporter's own version are said, because everything else is old. `workloads`: of each process of
// the status, in its order. `epoch_less_monotonic`: CLOCK_REALTIME less CLOCK_MONOTONIC.
std::string metrics_text(const Status& status, const std::vector<Workload>& workloads,
                         Nanos epoch_less_monotonic);
// The same where not even a status can be read.
std::string metrics_without_status();

}  // namespace gpushare
