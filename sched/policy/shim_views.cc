// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/shim_views.h"

namespace gpushare {
namespace {
constexpr uint32_t kTrustedPermille = 750;  // as IterationRecogniser::kTrusted
}

std::map<uint32_t, std::vector<const ProcessView*>> shim_processes(const Snapshot& snapshot) {
  std::map<uint32_t, std::vector<const ProcessView*>> processes;
  for (const ProcessView& process : snapshot.processes)
    if (process.has_shim) processes[process.tenant].push_back(&process);
  return processes;
}

bool is_trusted(const IterationsView& said) {
  return said.source == ShimSource::kAnnounced ||
         (said.source == ShimSource::kRecognised && said.confidence >= kTrustedPermille);
}

}  // namespace gpushare
