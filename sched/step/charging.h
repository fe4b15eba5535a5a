// SPDX-License-Identifier: Apache-2.0
// Charging: what programs have used of the GPUs, by the accounting, is charged to their tenants: in
// the use that is published, and in the token buckets of caps. Part of the scheduler, whose step
// calls it, on its one thread; asks nobody outside but the shims' slots.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "sched/account/accounting.h"
#include "sched/step/log_reader.h"
#include "sched/step/state.h"
#include "sched/step/surroundings.h"
#include "sched/step/turn_taking.h"

namespace gpushare {

class Charging {
 public:
  Charging(State& state, const Surroundings& outside) : state_(state), outside_(outside) {}

  // What young programs with the shim say of themselves counts until the driver's samples do.
  void hear_the_young(Time now);
  // What an MPS server used is its clients' use; a program whose cap closes its own gate is charged
  // there. What was excused for want of a sample that tells is charged to caps. `before`: of an
  // earlier bearer of the pid, as in Accounting. Buckets are charged by settle().
  void charge(const ProcessId& process, uint32_t tenant, uint32_t gpu,
              const Accounting::Charge& charge, std::optional<Time> before = {});
  // All that was used on a GPU until `now` is charged: from now on its buckets have what they have
  // earned and not spent. Where jobs take turns a tenant's use is taken to be the last before
  // `now`, and what it earned in that time is not lost above the burst: no step comes in the middle
  // of a turn that is as long as a cap's period, and a bucket that was full when it began would be
  // overdrawn by all that the turn has earned. Under slices steps come more often.
  void settle(uint32_t gpu, bool takes_turns, Time now);
  // Tenants have changed: of those that have no cap any more nothing is kept.
  void forget_caps();
  // Of programs that have ended, until the switch logs have been read to their ends, and samples
  // have told what they did alone.
  void charge_departed(TurnTaking& turns, const LogReader& logs, Time now);
  // What they were charged by the last call of that, by their tenant's slot and GPU.
  const std::map<std::pair<uint32_t, uint32_t>, Nanos>& of_departed() const { return of_departed_; }

  // Its time on the GPU is its clients'; false where there is no MPS.
  bool is_serving(const ProcessId& process) const {
    return outside_.mps != nullptr && outside_.mps->is_server(process);
  }
  // Its cap closes its own gate.
  bool is_gated(const ProcessId& process) const {
    return outside_.shims != nullptr && outside_.shims->is_gated(process);
  }

 private:
  State& state_;
  const Surroundings& outside_;
  // What is presumed of a program on a GPU, in its tenant's use.
  struct Presumed {
    std::string tenant;  // by name: its slot may be another's by now
    Nanos amount{};
  };
  // What a tenant's cap is to be charged.
  struct Owed {
    Nanos known{};
    Accounting::Doubt doubt{};  // of all its programs
  };
  void charge_one(const ProcessId& process, uint32_t tenant, uint32_t gpu,
                  const Accounting::Charge& charge);

  std::map<std::pair<ProcessId, uint32_t>, Presumed> presumed_;
  std::map<std::pair<uint32_t, uint32_t>, Owed> owed_;  // not settled: by GPU and tenant slot
  std::map<std::pair<uint32_t, uint32_t>, Nanos> of_departed_;
};

}  // namespace gpushare
