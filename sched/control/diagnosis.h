// SPDX-License-Identifier: Apache-2.0
// What the agent can say about its own prerequisites, for `gpushare doctor`: from symptoms,
// findings. Pure; called on the agent's thread.
#pragma once

#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "sched/mps/link.h"
#include "sched/step/state.h"
#include "shmctl/program/finding.h"

namespace gpushare {

struct Symptoms {
  const Gpu* gpu = nullptr;  // nullptr: there is none, and no_gpu_reason says why
  std::string no_gpu_reason;
  const Observer* observer = nullptr;  // nullptr: there is none, and no_observer_reason says why
  std::string no_observer_reason;
  std::string observer_name{};      // "the kernel module", "the eBPF probe", ...
  bool has_module = false;          // the kernel module is loaded
  std::string module_problem{};     // why it does not report programs; empty: it does
  std::string no_lineage_reason{};  // why daemons leave their tenant; empty: they do not
  const MpsStatus* mps = nullptr;   // nullptr: the agent does not run MPS
  const State* state = nullptr;     // nullptr: there is no scheduler
  std::string config_error;         // of the last reload; empty: the configuration was taken
  std::string config_path;
  bool is_config_there = true;  // false: there is no such file, and the defaults hold
  bool has_supervisor = false;
  std::string usage_path{};     // of the usage history; empty: it is not kept
  std::string usage_problem{};  // why it is not written; empty: it is
};

// One or more findings for each part that the symptoms mention, in a fixed order; a check that
// found nothing wrong is among them, as kOk.
std::vector<Finding> diagnose(const Symptoms& symptoms);

}  // namespace gpushare
