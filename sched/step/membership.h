// SPDX-License-Identifier: Apache-2.0
// Membership: keeps State::members what the registry says, gives each its slot in the control plane
// and its tenant. Called by the scheduler whenever registry or tenants have moved.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "sched/step/kept_owners.h"
#include "sched/step/state.h"
#include "sched/tenants/proc_reader.h"

namespace gpushare {

class Membership {
 public:
  // `owners`: of those that have ended while no agent was there nothing else tells whose they were.
  Membership(State& state, Region& region, const ProcReader& processes, const KeptOwners& owners);

  // Members come and go with their holders, tenants of members are looked up again. True if
  // anything changed.
  bool sync(Time now);
  // Ends what ended unseen: attached processes that are on no GPU and were never reported. Reads
  // /proc, so once a second.
  void reap(Time now);
  // Looks again at the processes whose user's name, container or command line was not known in
  // time: a rule may name it, and people look for it. Also once a second.
  void look_again();

 private:
  struct Met {
    std::string command, command_line;
    uid_t uid = 0;
    std::vector<uid_t> owners;
    std::string cgroup;
    bool is_named = true;  // see is_known_by_name()
    int looks = 0;         // after the first, for its command line
  };

  bool is_known_by_name(const Met& met) const;
  void meet(const Process& process);
  void place(const Process& process);
  void recall(const Process& process, ProcessIdentity& identity);
  void add(const Holder& holder, Time now);
  void open_account(const Holder& holder, Time now);
  void remove(const MemberKey& key, const Member& member, Time now);

  State& state_;
  Region& region_;
  const ProcReader& processes_;
  const KeptOwners& owners_;
  std::vector<uint32_t> free_slots_;  // the last is taken next: the lowest
  std::map<ProcessId, Met> met_;
  uint64_t registry_seen_ = 0, tenants_seen_ = 0;
  bool has_warned_full_ = false;
};

}  // namespace gpushare
