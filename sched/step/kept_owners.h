// SPDX-License-Identifier: Apache-2.0
// KeptOwners: keeps the control plane's list of who has what on the GPUs
// (shmctl/plane/owner_list.h) for the agent that comes after this one, and says what the one before
// has left there. Owned by the scheduler; the agent's one thread.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "sched/jobs/jobs.h"
#include "sched/step/state.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/plane/owner_list.h"

namespace gpushare {

class KeptOwners {
 public:
  using Owner = OwnerList::Owner;
  // The least time between two times that the list is gone through, however much changes, and how
  // often what jobs have received is put down.
  static constexpr Nanos kChangeInterval = std::chrono::milliseconds(10),
                         kJobInterval = std::chrono::milliseconds(50);

  // Tells the registry whose clients it may find in others. All outlive it.
  KeptOwners(State& state, Region& region, const ProcReader& processes, uint64_t driver_load);

  // What the agent before has left.
  std::vector<FormerJob> former_jobs() const;
  const Owner* former(const ProcessId& process) const;
  // Whether clients of it are listed: then work of it may remain when it has ended.
  bool may_remain(const ProcessId& process) const;

  // Puts down what has changed, in each step. Returns when it wants to be called again;
  // Time::max(): nothing waits.
  Time keep(Time now);
  // At once, because nothing is put down after that.
  void keep_last(Time now) {
    next_change_ = next_jobs_ = now;
    (void)keep(now);
  }
  // Forgets those jobs of before that have ended. Reads /proc, so once a second.
  void reap();

 private:
  // What an owner's entry is made of.
  struct Seen {
    uint64_t holders = 0;  // the last generation of them
    uint32_t tenant = 0, run = 0;
    bool is_attached = false;
    std::size_t line = 0;  // length of its command line, which may be known late
    Time arrived{};        // its job; zero: it has none
    Nanos service{};
    bool operator==(const Seen&) const = default;
  };

  bool has_changed() const;
  const Member* member_of(const ProcessId& process) const;
  Seen look_at(const Process& process) const;
  Owner owner_of(const Process& process, const Seen& seen) const;
  void keep_present();
  void keep_absent();
  // Whether it has this client, or none was found to and the driver has it.
  bool is_its(const ProcessId& process, uint32_t client) const;

  State& state_;
  const ProcReader& processes_;
  OwnerList list_;
  std::map<ProcessId, Seen> seen_;  // as they were put down last
  std::map<ProcessId, Owner> former_;
  // Those of before that were not found on a GPU again yet, and are not known to have ended.
  std::set<ProcessId> awaited_;
  uint64_t registry_seen_ = 0, tenants_seen_ = 0;
  bool has_reaped_ = false;
  Time next_change_{}, next_jobs_{};
  bool has_warned_ = false;
};

}  // namespace gpushare
