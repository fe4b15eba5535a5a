// SPDX-License-Identifier: Apache-2.0
// TurnTaking: between the scheduler and the Conductor. It folds what the scheduler sees of
// processes into jobs, says to the policies what jobs there are, and carries to the slots and the
// enforcer how each process is held. In a step: begin(), add() for each GPU, form(); then for each
// GPU jobs() and set_order(); then decide(), and carry_out() when freezes of the plans are done.
// Between two steps look() does the same for the turns alone, in some tens of microseconds. One
// thread.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sched/jobs/conductor.h"
#include "sched/jobs/jobs.h"
#include "sched/jobs/starts.h"
#include "sched/orders/left.h"
#include "sched/step/state.h"
#include "sched/step/surroundings.h"

namespace gpushare {

class TurnTaking {
 public:
  // How often those are looked at that wake us too often to be heard.
  static constexpr Nanos kUnheardLook = std::chrono::milliseconds(2);

  // Both outlive it. `former`: of a scheduler before.
  TurnTaking(State& state, const Surroundings& outside, std::span<const FormerJob> former)
      : state_(state), outside_(outside) {
    jobs_.remember(former);
  }

  // --- a step
  void begin();
  // The processes of a GPU. `takes_turns`: its policy orders jobs.
  void add(uint32_t gpu, bool takes_turns, std::span<const ProcessView> processes, Time now);
  void form(Time now);
  // A process has ended since the last step.
  void note_end(const ProcessId& process, std::optional<int> status) {
    jobs_.note_end(process, status);
  }
  // What a process that has left the GPU is owed for had of it since the last step.
  void add_late(const Departed& departed);
  // Of this GPU, ascending by id. Valid until the next call.
  std::span<JobView> jobs(uint32_t gpu);
  // What its plan says; none where the policy orders no jobs.
  void set_order(uint32_t gpu, std::vector<JobDecision> jobs);
  void drop_order(uint32_t gpu);
  // Returns whether somebody was let in.
  bool decide(Time now);
  // Whether it is not this process's turn and it is to be frozen for that.
  bool is_frozen(const ProcessId& process) const;
  // Tells the processes, freezes and thaws. A hand-over that this makes possible follows at once.
  void carry_out(Time now);

  // Adds `passed` to what each tenant was held of which at least one job wants a GPU and stands for
  // another's turn; once, however many do. As they stood after the last step, so before form().
  void add_held(Nanos passed);

  // Whether any job is in another state than at the last call, or has come or gone.
  bool has_changed();
  // When the next step is due, as of form(): soon, while programs start.
  Time next_step(Time now) const { return starts_.next_step(now); }

  // --- between two steps. Returns true if somebody was let in, or wants the GPU whom the plans did
  // not know to want it, so that new plans are due.
  bool look(Time now);
  // When the next look is due, if no step comes first.
  Time next(Time now) const;
  bool has_orders() const { return conductor_.has_orders(); }
  // Whether this one only starts yet, as of the last step.
  bool is_starting(const ProcessId& process, uint32_t gpu) const {
    return starts_.is_starting(process, gpu);
  }
  // Whether any process has been told how it is held.
  bool has_told() const { return !told_.empty(); }

  // --- for those who show it
  std::span<const Job> all() const { return jobs_.all(); }
  uint64_t job_of(const ProcessId& process) const { return jobs_.job_of(process); }
  // Its job where a GPU takes turns; nullptr: it has none.
  const Job* job(const ProcessId& process) const {
    return has_orders() ? find_job(jobs_.job_of(process)) : nullptr;
  }
  const JobTurn* turn(uint64_t job) const { return conductor_.find(job); }
  // The words for its job: why it runs or waits; empty: nothing is to be said.
  std::string words(const ProcessId& process) const;
  // Fill what the records say of turns.
  void describe(uint32_t gpu, GpuRecord& record) const;
  void describe(const ProcessId& process, uint32_t gpu, ProcessRecord& record) const;

 private:
  // What is known of a process from the last step, on all its GPUs.
  struct Known {
    ProcessLook look{};
    std::vector<uint32_t> gpus;  // that take turns
    bool is_frozen_by_user = false;
  };

  void learn(Time now);
  void estimate();
  bool starts(const ProcessView& process, uint32_t gpu, bool is_past_start, const Holder* holder);
  bool ends_its_turn(const ProcessId& process, Time now);
  bool is_wanted_by_others(uint32_t gpu, uint64_t job) const;
  void refresh(Known& known, Time now);
  void look_at_all(Time now);
  void note_turns(bool has_let_in);
  bool has_begun(const Job& job) const;
  Nanos worked_already(const Job& job) const;
  void note_work(Time now);
  bool wants_anew() const;
  void tell(const std::vector<ProcessHold>& holds);
  void freeze_and_thaw(const std::vector<ProcessHold>& holds);
  const ProcessHold* hold_of(const ProcessId& process) const;
  const Job* find_job(uint64_t id) const;
  std::string reason_of(const Job& job) const;
  void tell_of_turns(Time now);

  State& state_;
  const Surroundings& outside_;
  Jobs jobs_;
  Conductor conductor_;
  std::map<ProcessId, Known> known_, before_;
  std::set<ProcessId> over_;  // who has ended in a turn, and may still be taken down
  Starts starts_;
  std::vector<ProcessHold> holds_, told_;  // ascending by process
  // What is left of each job, as the policies were told, and how that is known.
  std::map<uint64_t, Left> left_;
  std::vector<uint64_t> idle_;  // the jobs that did not want a GPU in this step, ascending
  std::vector<JobView> views_;
  std::vector<std::pair<uint64_t, TurnState>> states_;  // of the jobs, at the last has_changed()
  // Turns of which the listener has been told that they begin, by GPU and job.
  struct Told {
    std::string name;
    pid_t pid = 0;
  };
  std::map<std::pair<uint32_t, uint64_t>, Told> turns_told_;
};

}  // namespace gpushare
