// SPDX-License-Identifier: Apache-2.0
// The jobs that are replayed, by the names that they have here.
#pragma once

#include "sched/orders/trace.h"

namespace gpushare::replay {

using Job = TraceJob;
using Jobs = TraceJobs;

}  // namespace gpushare::replay
