// SPDX-License-Identifier: Apache-2.0
// EngineModel: jobs on one engine of a GPU, in virtual time. The runlist says whose turn it is; the
// jobs of that entry run at the same time and share the engine.
//
// A job asks for a part of the engine (`weight`, 1 = all SMs). While the parts add up to at most 1,
// each job runs at full speed; beyond that all slow down alike. Jobs of several members (MPS
// clients) of one entry disturb each other a little, see MpsCosts.
//
// Not thread-safe. Jobs are the caller's and must stay where they are between start() and their
// end.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "intercept/sim/model/runlist.h"

namespace gpushare::sim {

struct Job {
  double left_ns = 0;      // of the time that it takes alone; infinity: until it is withdrawn
  double executed_ns = 0;  // likewise
  double weight = 1;
  uint32_t member = 0;         // whose it is: the unit of busy time and of MPS disturbance
  bool is_from_idle = false;   // its queue was empty before it
  bool has_started = false;    // made progress at some time
  Time started;                // when first; valid with has_started
  Time admitted{Time::min()};  // when it may begin, see MpsCosts::launch
};

class EngineModel {
 public:
  EngineModel(const SwitchCosts& costs, const MpsCosts& mps, Time start)
      : runlist_(costs, start), mps_(mps), settled_(start) {}

  void add_entry(EntryId entry, Nanos slice);
  // REQUIRES: none of its jobs is started.
  void remove_entry(EntryId entry, Time now);
  void set_slice(EntryId entry, Nanos slice, Time now);
  Nanos slice(EntryId entry) const { return runlist_.slice(entry); }

  // From here the job may run. Started again after withdraw(), it goes on where it stopped.
  void start(EntryId entry, Job& job, Time now);
  void withdraw(EntryId entry, Job& job, Time now);
  // While it is held as often as not released, nothing of the entry runs.
  void hold(EntryId entry, Time now);
  void release(EntryId entry, Time now);
  // The job ends the next time that it makes progress.
  void end_soon(Job& job, Time now);

  // The next instant at which anything changes by itself.
  Time next() const;
  // Moves on to `now`, in two steps; REQUIRES now <= next(). Jobs that end are withdrawn and
  // appended to `finished`, in the order in which they were started. What they make way for in the
  // same queue is to be started before the second step: a context gives the engine up when it has
  // nothing left, not between two kernels that are queued one behind the other.
  void take_finished(Time now, std::vector<Job*>& finished);
  void take_turns(Time now);

  // No job ends before this, if nothing comes from outside. Often later than next().
  Time quiet_until() const;
  // Progress of a job until `now`; REQUIRES now <= next(), here and below.
  double executed(const Job& job, Time now);
  // Time with at least one job of this member in progress.
  Nanos busy(uint32_t member, Time now);
  void forget(uint32_t member) { busy_.erase(member); }

  std::vector<Runlist::Record> take_records() { return runlist_.take_records(); }
  Runlist::Totals totals(Time now) const { return runlist_.totals(now); }

 private:
  // Jobs that may run, by entry; those of the entry in progress that are admitted are active.
  std::vector<Job*> active(Time now) const;
  double speed(const std::vector<Job*>& jobs) const;
  void settle(Time now);
  void set_runnable(EntryId entry, Time now);

  Runlist runlist_;
  const MpsCosts mps_;
  std::map<EntryId, std::vector<Job*>> jobs_;
  std::map<EntryId, uint32_t> holds_;
  std::map<uint32_t, Nanos> busy_;
  Time settled_;  // until when the progress of jobs is accounted
};

}  // namespace gpushare::sim
