// SPDX-License-Identifier: Apache-2.0
// A control plane that is damaged, or of a version with another layout, as after an upgrade. It
// keeps nobody from starting, and nobody frozen. Called by the program itself, on its first thread.
#pragma once

#include "sched/daemon/agent.h"
#include "shmctl/base/error.h"
#include "shmctl/plane/region.h"

namespace gpushare {

// Whether it was refused for its content.
bool is_unreadable(const Result<ControlPlane>& plane);

// Puts a new region in the place of the one at `options.region`, which is unreadable for the reason
// `why` and is kept aside. If its ledger can be read, the new one lists the same, and is to be
// undone like any other. Otherwise what is frozen is not known, and all programs are thawed before.
// What was set at run time is taken from the file in which the agent has kept it.
// The caller holds the lock. Error: that could not be done; all is as it was, for the next try.
Result<> begin_anew(const Error& why, const AgentOptions& options);
// The same, if it is.
Result<> begin_anew_if_unreadable(const AgentOptions& options);

}  // namespace gpushare
