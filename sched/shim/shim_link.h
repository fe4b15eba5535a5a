// SPDX-License-Identifier: Apache-2.0
// ShimLink: the agent's end of the processes that have the shim. It gives them their slots, says by
// its beat that the agent lives, reads what they say once a step, carries the plan's partitions and
// stops to them, and closes the gates of MPS clients for their caps. One thread, the agent's; never
// blocks.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "sched/mps/link.h"
#include "sched/shim/shim_caps.h"
#include "sched/shim/shim_turns.h"
#include "sched/spatial/slot_bounds.h"
#include "sched/spatial/spatial.h"
#include "sched/step/surroundings.h"
#include "sched/tenants/config.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/rules.h"
#include "sched/tenants/tenants.h"
#include "shmctl/plane/region.h"
#include "shmctl/shim/host.h"

namespace gpushare {

class ShimLink final : public ShimProcesses {
 public:
  // All of them outlive it. `region`: where the tokens of tenants with a cap are. `clock`: when a
  // slot is really read, which may be long after the `now` of its step. Errors of
  // ShimHost::listen().
  static Result<std::unique_ptr<ShimLink>> listen(const std::string& path, const Tenants& tenants,
                                                  const ProcReader& processes, Region& region,
                                                  const Clock& clock);

  // Readable when a process asks for its slot: serve() is due, which returns how many got one.
  int fd() const { return host_->fd(); }
  int serve() { return host_->serve(); }
  // Readable when a process has woken us: hear() is due, then a look at the turns.
  int wake_fd() const { return host_->wake_fd(); }
  // Lets neighbours of a process that has begun or ended its work stand or go on. Returns when a
  // step is due, because a process wants back what its tenant has lent, or has come to where the
  // plan stops it; Time::max(): none is. However often processes wake us, these are
  // kBetweenWakes apart.
  Time hear(Time now);

  // How the GPUs are shared from now on. Where GPUs are shared spatially beside those of before,
  // the processes that came before are moved there as well, if they move at all. Where one of those
  // of before is not, they keep what they have, are moved no more, and go in if they stand at their
  // gate.
  void set_gpus(std::span<const GpuInfo> gpus, const Config& config);
  // Programs that come from now on become clients of its server; nullptr: of none. Outlives us, or
  // the next call.
  void set_mps(MpsLink* mps) { mps_ = mps; }

  void read(Time now, const Registry& registry) override;
  std::vector<ProcessView> views(uint32_t gpu) const override { return spatial_.views(gpu); }
  TenantPartition partition(uint32_t tenant, uint32_t gpu) const override {
    return spatial_.partition(tenant, gpu);
  }
  void apply(Time now, uint32_t gpu, const Plan& plan,
             std::span<const ProcessView> processes) override;
  Time finish(Time now) override;
  std::string note(const ProcessId& process) const override;
  std::optional<SlotReading> look(const ProcessId& process) const override;
  std::optional<TimeHistogram> times(const ProcessId& process) const override;
  void hold(const ProcessHold& hold) override;
  bool has_unheard() const override;
  void add_server_use(uint32_t gpu, Nanos used) override {
    if (gpu < server_use_.size()) server_use_[gpu] += used;
  }
  bool is_gated(const ProcessId& process) const override {
    return mps_ != nullptr && mps_->is_client(process) && kept_.contains(process) &&
           host_->find(process) != nullptr;
  }
  bool takes_freeze(const ProcessId& process, FreezeReason reason) override;

 private:
  // A program that stands at its gate and is seen on no GPU that takes turns goes in after so long.
  static constexpr Nanos kLongestWait = std::chrono::milliseconds(500);
  static constexpr Nanos kBetweenWakes = std::chrono::milliseconds(2);
  // Until then the MPS server has named who has begun to launch, if it is its client (0.6 s on an
  // H100).
  static constexpr Nanos kToBeNamed = std::chrono::seconds(2);
  // One whose GPU has not got on for so long, and that nobody waits for, is at rest: what it has
  // run may go unsaid.
  static constexpr Nanos kUnsaid = std::chrono::milliseconds(20);

  ShimLink(const Tenants& tenants, const ProcReader& processes, Region& region, const Clock& clock)
      : tenants_(tenants), processes_(processes), region_(region), clock_(clock) {}
  ShimRequest decide(const ProcessId& process, uid_t uid);
  uint32_t tenant_of(const ProcessId& process);
  LeastPartition least_of(const ProcessId& process, uint32_t tenant) const;
  SlotReading read_slot_of(const ProcessId& process, const ShimSlot& slot, Time now);
  void await_turns(Time now);
  std::vector<uint32_t> shared_gpus_of(const ShimClient& client) const;
  Time enforce_caps(Time now);
  Time take_turns(Time now);
  void look_at_work(Time now, ShimTurns::Client& client);
  Time settle_turns(Time now);
  bool must_stand(const ProcessId& process) const;
  // For another reason than its cap or its partition.
  bool is_kept_out(const ProcessId& process) const;
  void settle_gate(const ProcessId& process, ShimSlot& slot);
  void settle_boundary(const ProcessId& process, ShimSlot& slot);

  const Tenants& tenants_;
  const ProcReader& processes_;
  Region& region_;
  const Clock& clock_;
  MpsLink* mps_ = nullptr;
  ShimCaps caps_;
  ShimTurns turns_;
  // Those that share SMs with others, as of the last step, and what was last seen of each.
  std::vector<ShimTurns::Client> sharing_;
  struct Work {
    uint64_t launches = 0;
    uint32_t reached = 0;
    Time since{};                       // they are so
    std::optional<Time> rests_since{};  // none: it is at work
    Nanos rests{};                      // smoothed, of those that ended within kLongestRest
  };
  static constexpr Nanos kLongestRest = std::chrono::milliseconds(100);
  std::map<ProcessId, Work> work_;
  std::array<Nanos, kMaxGpus> server_use_{};  // of MPS servers, since the last finish()
  std::map<ProcessId, SlotBounds> bounds_;    // of those with a slot
  // How turns hold processes, and those that have come and that no turn is known for, by when they
  // came to their gate (zero: not yet).
  std::map<ProcessId, ProcessHold> holds_;
  std::map<ProcessId, Time> awaiting_;
  Time woken_{};  // the last answer of hear() that named a time
  // Whose gates this step keeps: those with a slot that fits the GPUs that are shared spatially.
  std::set<ProcessId> kept_;
  std::set<ProcessId> frozen_;           // at their gates, by this step's decisions
  bool takes_turns_ = false;             // a GPU does
  std::map<ProcessId, uint64_t> stops_;  // run_until of this step's plans
  std::vector<uint32_t> gpus_;           // that are shared spatially, by index
  uint32_t features_ = 0;                // ShimFeature, that GPUs shared by time ask for
  Spatial spatial_{{}};
  std::map<ProcessId, ProcessIdentity> identities_;  // of those with a slot
  // Of those with a slot, as they were when they came.
  struct Came {
    LeastPartition shown{};          // their partition, where that is shown to them
    std::string program;             // the name of their command
    bool may_be_client = false;      // of our MPS server
    std::optional<Time> launched{};  // its first launch
  };
  bool shares_server(Time now, const ProcessId& process) const;
  std::map<ProcessId, Came> came_;
  std::set<ProcessId> halted_;  // frozen by the last step's decisions, in whichever way
  std::unique_ptr<ShimHost> host_;
};

}  // namespace gpushare
