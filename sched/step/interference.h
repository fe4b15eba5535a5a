// SPDX-License-Identifier: Apache-2.0
// Interference: what a process did to the channels and slices of another, and undoing it. Without
// the kernel module the driver lets every process freeze every other, and set the slice of one
// whose descriptors it can take. The observer sees such calls; what it read of them is memory of
// the one who made the call, so a deed can be made up, and undoing it must do no harm: a surplus
// thaw does none, and a process that we have frozen ourselves is thawed for others' freezes only
// when it runs again by our own plan. A freeze that was not seen is found by the standstill that
// comes of it (sched/enforce/standstill.h).
//
// One thread, the scheduler's, which does not wait for the driver. It is bounded: a process that
// goes on freezing costs at most kMostThaws calls of the driver every kPause for each process that
// it freezes.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/enforce/enforcer.h"
#include "sched/enforce/standstill.h"
#include "sched/registry/registry.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/user_budget.h"

namespace gpushare {

class ShimProcesses;
struct State;

class Interference {
 public:
  static constexpr Nanos kPause = std::chrono::milliseconds(5);
  static constexpr int kMostThaws = 4;
  static constexpr std::size_t kMostDeeds = 16;

  enum class Kind { kFreeze, kSlice, kUnseenFreeze };
  // What one process did to another, however often.
  struct Deed {
    Kind kind{};
    ProcessId culprit, victim;  // of kUnseenFreeze nobody knows the culprit
    std::optional<uid_t> uid;   // of the culprit
    std::string command;  // or, of kUnseenFreeze, who may have been it; empty: nobody is known
    uint64_t count = 0;
    Time logged{};
    uint64_t logged_count = 0;
  };

  Interference(Gpu& gpu, const Registry& registry, Enforcer& enforcer, const Clock& clock)
      : gpu_(gpu),
        registry_(registry),
        enforcer_(enforcer),
        clock_(clock),
        started_(clock.now()),
        standstills_(gpu.gpus().size()) {}

  // An event that the registry has taken in.
  void note(const DriverEvent& event);
  // Thaws, and puts slices back. In every step, after the events. Returns when there is more to
  // undo; Time::max() when that was all.
  Time undo();
  // Thaws as trials whoever stands still, now and then, and reports who ran because of that. In
  // every step, after the switch logs have been read. `shims`: nullptr: no process has the shim.
  void look_for_standstills(const State& state, const ShimProcesses* shims);

  // Since the agent started. The latest deeds, the last one at the end.
  uint64_t count() const { return count_; }
  const std::vector<Deed>& deeds() const { return deeds_; }
  // What was last done to this process, for its note in status; empty: nothing.
  std::string note_of(const ProcessId& process) const;

 private:
  struct Victim {
    std::map<std::pair<uint32_t, uint32_t>, int> freezes;  // by client and channel: to be thawed
    std::vector<std::pair<uint32_t, uint32_t>> slices;     // client and group: to be put back
    Time next{};
  };

  void found(Kind kind, const ProcessId& culprit, const ProcessId& victim);
  void look_for_standstills(const State& state, const ShimProcesses* shims, uint32_t gpu);
  void try_to_thaw(const ControlKey& key, int rounds);
  std::string suspects(const ProcessId& victim) const;
  bool may_mend(const Process& process);
  void thaw(const Process& process, Victim& victim);
  void put_slices_back(const Process& process, Victim& victim);

  Gpu& gpu_;
  const Registry& registry_;
  Enforcer& enforcer_;
  const Clock& clock_;
  std::map<ProcessId, Victim> victims_;
  std::vector<Deed> deeds_;
  uint64_t count_ = 0;
  const Time started_;
  std::vector<Standstill> standstills_;  // by GPU
  Time next_look_{};
  // Of the log, by the culprit's user: who freezes others in a loop, from many processes too,
  // writes ten in a minute, and hides nobody else's deeds.
  UserBudget lines_{std::chrono::seconds(6), 10};
};

// "process 17 (prog, user 1000) froze process 18, 3 times".
std::string describe(const Interference::Deed& deed);

}  // namespace gpushare
