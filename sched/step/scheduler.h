// SPDX-License-Identifier: Apache-2.0
// Scheduler: the agent's whole work, one step at a time, without waiting, sockets or signals: what
// happened -> what exists -> what was used -> a plan for each GPU -> make it so -> publish. The
// agent calls step() from its event loop, on its one thread; tests call it in virtual time. A step
// waits for the driver for LogReader::kPatience at most, where its calls are made on threads.
#pragma once

#include <memory>
#include <vector>

#include "sched/account/iteration_counts.h"
#include "sched/registry/ended.h"
#include "sched/registry/late_attach.h"
#include "sched/step/charging.h"
#include "sched/step/gang_freezes.h"
#include "sched/step/kept_owners.h"
#include "sched/step/log_reader.h"
#include "sched/step/membership.h"
#include "sched/step/publisher.h"
#include "sched/step/state.h"
#include "sched/step/surroundings.h"
#include "sched/step/turn_taking.h"
#include "sched/step/views.h"
#include "sched/tenants/config.h"

namespace gpushare {

class Scheduler {
 public:
  // `config` gives ticks and policies; tenants are taken as they are. Undoes what an agent that
  // died has left in the ledger; the processes that are there are attached to in the first steps.
  Scheduler(const Surroundings& surroundings, const AgentIdentity& agent, const Config& config);
  // Leaves everything as enforced; call stop() for a clean end.
  ~Scheduler();

  // One round. Returns the instant of the next one; sooner is never wrong.
  Time step();
  // Thaws everything and restores the slices.
  void stop();

  // Waits until nothing is asked of the driver any more, at most `patience`. Returns false when
  // something is: the end of this object would wait for it.
  bool rest(Nanos patience) {
    return state_.enforcer.rest(patience) && late_.rest(patience) && ended_.rest(patience) &&
           logs_.rest(patience);
  }

  // Whether the driver has not answered for long: then give this scheduler up and look for the GPUs
  // again.
  bool is_lost() const { return failed_steps_ >= kStepsBeforeLost; }

  // While programs run. A GPU whose settings all stay the same keeps what its policy has learnt.
  void configure(const Config& config);

  // Between two steps: a GPU that was closed has been opened, and Surroundings::gpu knows what it
  // is. It is shared from the next step on, as if it had been there from the start.
  void join(uint32_t gpu);

  // Between two steps: looks at the turns of jobs alone. Returns true if a job was let in or
  // wants to be, so that a step is due.
  bool look_at_turns() { return turns_.look(outside_.clock.now()); }
  // When the next look is due, if no step comes first; Time::max(): none is.
  Time next_look_at_turns() const { return turns_.next(outside_.clock.now()); }

  const State& state() const { return state_; }
  const TurnTaking& turns() const { return turns_; }

 private:
  static constexpr int kStepsBeforeLost = 20;
  static constexpr Nanos kChores = std::chrono::seconds(1);
  // As often as the driver has something new, where it is wanted. Two questions take it 1.5 ms, in
  // which nothing else is asked of that GPU (bench/results/samples.jsonl, H200).
  static constexpr Nanos kSamples = std::chrono::milliseconds(200);

  // A GPU, and what decides on it.
  struct Decider {
    GpuView gpu;
    std::unique_ptr<Policy> policy;
    bool takes_turns = false;  // the policy orders jobs
    Views views{};             // of this step, as is the plan
    Plan plan{};
    bool is_fast = false;  // background work takes turns
  };

  bool observe(Time now);
  bool is_met(const ProcessId& process) const;
  Time decide(Time now);
  void note_slices(const Holder& holder);
  void look_at_account(const MemberKey& key, Member& member, Time now);
  uint32_t tenant_in_view(uint32_t tenant, uint32_t gpu) const;
  void view(uint32_t gpu, Time now);
  void plan(uint32_t gpu, Time now);
  void enforce(uint32_t gpu);
  void freeze_for_turns(uint32_t gpu);
  void note_states(Time now);
  void count_iterations(Time now);
  void on_change(const Enforcer::Change& change);
  void do_chores(Time now);
  void log_false_claims();

  const Surroundings outside_;
  State state_;
  KeptOwners owners_;
  TurnTaking turns_;
  Charging charging_;
  GangFreezes gangs_;
  Membership membership_;
  Config config_;
  Publisher publisher_;
  LateAttach late_;
  EndedProcesses ended_;
  LogReader logs_;
  std::vector<Decider> deciders_;  // by GPU
  uint64_t buckets_of_ = 0;        // generation of the tenants that the buckets are configured for
  Time last_step_{}, next_chores_{}, next_sample_{};
  std::map<ProcessId, IterationCounts> iteration_counts_;
  Time next_count_{};  // when they are looked at again
  bool has_more_events_ = false;
  uint32_t first_gpu_ = 0;     // which is decided on first in the next step, of all in turn
  uint64_t false_claims_ = 0;  // that are in the log
  Time next_claims_log_{};
  int failed_steps_ = 0;  // in a row, in which no GPU or no event could be read

  // Used again from step to step.
  std::vector<Enforcer::Target> targets_;
  std::vector<std::map<MemberKey, Member>::value_type*> by_slot_;
  std::vector<std::pair<uint32_t, ProcessState>> frozen_;  // tenants, and in which way
  std::vector<GangFreezes::OnGpu> gpus_;
};

}  // namespace gpushare
