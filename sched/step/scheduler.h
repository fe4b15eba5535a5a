// SPDX-License-Identifier: Apache-2.0
// Scheduler: the agent's whole work, one step at a time, without waiting, sockets or signals: what
// happened -> who exists -> who used what -> what should be -> make it so -> publish. The agent
// calls step() from its event loop, tests call it in virtual time.
//
// One thread. A step takes as long as the driver calls in it; it blocks on nothing else.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "sched/step/late_attach.h"
#include "sched/step/membership.h"
#include "sched/step/publisher.h"
#include "sched/step/recovery.h"
#include "sched/step/state.h"
#include "sched/tenants/config.h"
#include "sched/tenants/proc_reader.h"

namespace gpushare {

class Scheduler {
 public:
  struct Surroundings {  // all outlive the scheduler
    Gpu& gpu;
    Observer* observer;  // nullptr: nothing tells us of new processes; they are looked for
    Region& region;
    const ProcReader& processes;
    const Clock& clock;
    Tenants& tenants;
  };
  // What happens, for those who want to write it down. Reason: of a freeze.
  struct Listener {
    std::function<void(const SwitchRecord&)> on_switch;
    std::function<void(const Enforcer::Change&, FreezeReason)> on_change;
  };

  // `config` gives ticks and policy; tenants are taken as they are. Undoes what an agent that died
  // has left in the ledger; the processes that are there are attached to in the first steps.
  Scheduler(const Surroundings& surroundings, const AgentConfig& config);
  // Leaves everything as enforced; call stop() for a clean end.
  ~Scheduler();

  // One round. Returns the instant of the next one; sooner is never wrong.
  Time step();
  // Thaws everything and restores the slices.
  void stop();

  // The driver does not answer any more: give this scheduler up and look for the GPUs again.
  bool is_lost() const { return failed_steps_ >= kStepsBeforeLost; }

  // While programs run; a policy that stays the same keeps what it has learnt.
  void configure(const AgentConfig& config);
  // `process` on all its GPUs. Error no_such_process when it is on none.
  Result<> set_frozen(pid_t pid, bool is_frozen);

  const State& state() const { return state_; }
  void set_agent(Publisher::Agent agent) { publisher_.set_agent(std::move(agent)); }
  void set_parts(Publisher::Parts parts) { publisher_.set_parts(std::move(parts)); }
  // Whom somebody else charges for its cap and holds to it (shim_link.h). May be empty.
  using Gated = std::function<bool(const ProcessId&)>;
  void set_gated(Gated gated) { gated_ = std::move(gated); }
  // Whose time on the GPU is that of others, its clients: neither charged nor frozen. May be empty.
  void set_serving(Gated serving) { serving_ = std::move(serving); }
  void set_listener(Listener listener) { listener_ = std::move(listener); }

 private:
  static constexpr int kStepsBeforeLost = 20;
  static constexpr Nanos kChores{1'000'000'000};

  bool observe();
  bool account(uint32_t gpu);
  void settle_buckets(Time now);
  void configure_buckets(Time now);
  Time decide(uint32_t gpu, Time now);
  void enforce(uint32_t gpu, const Plan& plan);
  bool is_gated(const ProcessId& process) const { return gated_ && gated_(process); }
  bool is_serving(const ProcessId& process) const { return serving_ && serving_(process); }
  void note_states(Time now);
  void on_change(const Enforcer::Change& change);
  void do_chores(Time now);

  Surroundings outside_;
  const RecoveryReport recovered_;  // before state_, whose ledger takes over what is left
  State state_;
  Membership membership_;
  Publisher publisher_;
  LateAttach late_;
  Listener listener_;
  Gated gated_, serving_;
  AgentConfig config_;
  std::vector<std::unique_ptr<Policy>> policies_;  // by GPU
  std::vector<bool> is_fast_;                      // by GPU
  uint64_t buckets_of_ = 0;  // generation of the tenants that the buckets are configured for
  Time last_step_{}, next_chores_{};
  int failed_steps_ = 0;  // in a row, in which no GPU or no event could be read

  // Reused from step to step.
  std::vector<TenantView> tenant_views_;
  std::vector<ProcessView> process_views_;
  std::vector<Enforcer::Target> targets_;
  std::vector<const MemberKey*> by_slot_;
  std::vector<bool> is_viewed_;  // by tenant slot
  std::vector<uint32_t> throttled_;
};

}  // namespace gpushare
