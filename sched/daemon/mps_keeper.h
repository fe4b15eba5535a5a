// SPDX-License-Identifier: Apache-2.0
// MpsKeeper: the agent's own MPS control daemon, as the configuration wants it: made, changed and
// given up (sched/mps/link.h keeps it running). On the agent's one thread; never blocks but in
// leave().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sched/mps/link.h"
#include "sched/step/surroundings.h"
#include "sched/tenants/config.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenants.h"

namespace gpushare {

class MpsKeeper final : public MpsServers {
 public:
  // `folder`: where pipes and logs go. `tenants` and `processes` outlive it.
  MpsKeeper(std::string folder, bool is_simulated, const Tenants& tenants,
            const ProcReader& processes)
      : folder_(std::move(folder)),
        is_simulated_(is_simulated),
        tenants_(tenants),
        processes_(processes) {}

  // For those of `all` GPUs that are spatial. Returns the link that programs are to use; nullptr:
  // none. Before the next call, link() of before must not be used any more.
  MpsLink* want(const MpsConfig& config, std::vector<GpuInfo> spatial, std::size_t all, Time now);
  // Returns when to call again.
  Time step(Time now) { return link_ == nullptr ? Time::max() : link_->step(now); }

  bool is_server(const ProcessId& process) const override {
    return link_ != nullptr && link_->is_server(process);
  }
  MpsStatus status() const override { return link_ == nullptr ? MpsStatus{} : link_->status(); }
  // nullptr: MPS is not ours.
  const MpsStatus* own_status() const { return link_ == nullptr ? nullptr : &link_->status(); }

  // The daemon ends if it has no clients; otherwise it stays, for the next agent.
  void leave() {
    if (link_ != nullptr) link_->leave();
  }

 private:
  const std::string folder_;
  const bool is_simulated_;
  const Tenants& tenants_;
  const ProcReader& processes_;
  std::unique_ptr<MpsLink> link_;  // nullptr: not ours
  MpsConfig config_;               // what it was made of
};

}  // namespace gpushare
