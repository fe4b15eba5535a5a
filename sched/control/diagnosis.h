// SPDX-License-Identifier: Apache-2.0
// What the agent can say about its own prerequisites, for `gpushare doctor`. Pure.
#pragma once

#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "sched/mps/link.h"
#include "sched/step/state.h"
#include "shmctl/base/finding.h"

namespace gpushare {

struct Symptoms {
  const Gpu* gpu = nullptr;  // nullptr: none, for no_gpu_reason
  std::string no_gpu_reason;
  const Observer* observer = nullptr;  // nullptr: none, for no_observer_reason
  std::string no_observer_reason;
  std::string observer_name{};     // "the kernel module", "the eBPF probe", ...
  bool has_module = false;         // the kernel module is loaded
  std::string module_problem{};    // why it does not report programs; empty: it does
  const MpsStatus* mps = nullptr;  // nullptr: not ours
  const State* state = nullptr;    // nullptr: nothing runs
  std::string config_error;        // of the last reload; empty: it was taken
  std::string config_path;
  bool has_supervisor = false;
};

std::vector<Finding> diagnose(const Symptoms& symptoms);

}  // namespace gpushare
