// SPDX-License-Identifier: Apache-2.0
// EngineModel: the jobs on one engine of a GPU, in virtual time. The runlist decides which entry
// has its turn; the jobs of that entry run at the same time and share the engine.
//
// A job asks for a part of the engine (`weight`; 1 means all SMs), on all of it or on a set of its
// SM groups, over which it is spread evenly. While the parts that are asked of a group add up to at
// most that group, each job runs there at full speed; beyond that all slow down there by the same
// factor. So jobs on disjoint sets never slow each other. Jobs of several members (MPS clients) of
// one entry disturb each other a little, see MpsCosts.
//
// One thread. The caller owns the jobs, which must not move between start() and their end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "intercept/sim/model/runlist.h"

namespace gpushare::sim {

// One collective operation: a kernel of each rank, which gets on only while those of all other
// ranks run as well. A kernel that waits for its peers spins: it occupies its GPU as if it worked.
// Model says whether it runs.
struct Collective {
  uint32_t ranks = 0;  // of its communicator
  uint32_t came = 0;   // ranks whose kernel was submitted
  bool runs = false;   // the kernels of all ranks are in progress, or have ended
};

struct Job {
  double left_ns = 0;          // what is left of the time that it takes alone; infinity for an
                               // endless job, which ends when it is withdrawn
  double executed_ns = 0;      // what is done of that time
  double weight = 1;           // the part of the engine that it asks for, above 0
  uint64_t groups = 0;         // of SMs, on which it asks for that; 0: all
  double set = 1;              // the part of the engine that these groups are, above 0
  uint32_t member = 0;         // its owner; busy time and MPS disturbance are counted by owner
  bool is_from_idle = false;   // its queue was empty before it
  bool has_started = false;    // it has made progress
  Time started;                // when it first made progress; valid with has_started
  Time admitted{Time::min()};  // when it may begin, see MpsCosts::launch
  std::shared_ptr<Collective> collective{};  // nullptr: it waits for nobody

  bool spins() const { return collective != nullptr && !collective->runs; }
};

class EngineModel {
 public:
  EngineModel(const SwitchCosts& costs, const MpsCosts& mps, Time start)
      : runlist_(costs, start), mps_(mps), settled_(start) {}

  void add_entry(EntryId entry, Nanos slice);
  // Requires that none of its jobs is started.
  void remove_entry(EntryId entry, Time now);
  void set_slice(EntryId entry, Nanos slice, Time now);
  Nanos slice(EntryId entry) const { return runlist_.slice(entry); }

  // From now on the job may run. A job that is started again after withdraw() continues where it
  // stopped.
  void start(EntryId entry, Job& job, Time now);
  void withdraw(EntryId entry, Job& job, Time now);
  // Nothing of the entry runs until release() was called as often as hold().
  void hold(EntryId entry, Time now);
  void release(EntryId entry, Time now);
  // Ends the job the next time that it makes progress.
  void end_soon(Job& job, Time now);

  // The next instant at which anything changes by itself.
  Time next() const;
  // Move to `now`, in two steps; both require now <= next(). The first withdraws the jobs that end
  // and appends them to `finished`, in the order in which they were started. The caller then starts
  // the jobs that follow them in their queues, before the second step: a context gives up the
  // engine when it has nothing left, and not between two kernels of one queue.
  void take_finished(Time now, std::vector<Job*>& finished);
  void take_turns(Time now);

  // No job ends before this instant unless another method is called. It is often later than next().
  // Jobs that spin are left out: when they go on is not this engine's to know.
  Time quiet_until() const;
  // Whether the job is in progress, or spins, at this instant.
  bool is_active(EntryId entry, const Job& job, Time now) const;
  // The progress of a job until `now`, in ns. This and busy() require now <= next(), as does
  // settle(), which accounts for all jobs until then.
  double executed(const Job& job, Time now);
  void settle(Time now);
  // The time in which any job was in progress.
  Nanos busy(Time now);
  // The entry that is resident, with or without work; 0: none.
  EntryId resident_entry() const { return runlist_.resident_entry(); }

  std::vector<Runlist::Record> take_records() { return runlist_.take_records(); }
  Runlist::Totals totals(Time now) const { return runlist_.totals(now); }

 private:
  // The jobs in progress: those of the entry that has its turn and that are admitted.
  std::vector<Job*> active(Time now) const;
  // Of each of them.
  std::vector<double> speeds(const std::vector<Job*>& jobs) const;
  void set_runnable(EntryId entry, Time now);

  Runlist runlist_;
  const MpsCosts mps_;
  std::map<EntryId, std::vector<Job*>> jobs_;  // the jobs that may run
  std::map<EntryId, uint32_t> holds_;
  Nanos busy_{};
  Time settled_;  // the progress of jobs is accounted until then
};

}  // namespace gpushare::sim
