// SPDX-License-Identifier: Apache-2.0
// State: what the scheduler knows of processes, GPUs and their use, and what it has done to them.
// The Scheduler owns it; Membership adds and removes members. The publisher, the report to the
// kernel module and the control socket's answers read it. All run on the agent's one thread.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sched/account/accounting.h"
#include "sched/enforce/enforcer.h"
#include "sched/policy/policy.h"
#include "sched/registry/registry.h"
#include "sched/step/interference.h"
#include "sched/tenants/tenants.h"
#include "shmctl/shim/time_histogram.h"

namespace gpushare {

// A process on a GPU, as the plan and the control plane know it.
struct Member {
  uint32_t slot = 0;  // in the control plane's process table; ProcessView::id
  uint32_t tenant = kDefaultTenant;
  uint32_t run = 0;                // of gpushare run; 0: none
  const Holder* holder = nullptr;  // never null; kept by Membership, as the Registry moves it
  std::string command, command_line;
  uid_t user = 0;
  bool is_frozen_by_user = false;
  FreezeReason freeze = FreezeReason::kNone;  // what the plan says, and its words
  std::string reason;
  double target = -1;  // share; < 0: none
  ProcessState state = ProcessState::kIdle;
  Time state_since{};
  Time came{};
  Nanos throttled{};  // time frozen for its cap, in all
  // By its GPU's account, as of the last step that looked at this GPU.
  bool wants_gpu = false;
  double share = -1;  // of the last second; < 0: not known yet
};
using MemberKey = std::pair<ProcessId, uint32_t>;  // and GPU

// Its name. No event told that of those that were there before the agent.
inline const std::string& command_of(const Process& process, const Member& member) {
  return process.command.empty() ? member.command : process.command;
}

// A process that is no longer on the GPU, for as long as the switch log may still tell what it did
// there. What it used is its tenant's.
struct Departed {
  ProcessId process;
  uint32_t gpu = 0;
  std::string tenant;               // by name: its slot may be another's by now
  uint64_t job = 0;                 // that it was in; 0: none
  bool was_starting = false;        // what it had may have passed others' turns (Starts)
  Accounting::Charge owed{};        // taken from its account, and not charged yet
  Time until{};                     // what the log says later is nobody's
  std::optional<Time> succeeded{};  // from then on its pid has another bearer
};

struct TenantUse {
  std::array<Nanos, kMaxGpus> used{};
  std::array<Nanos, kMaxGpus> presumed{};  // besides, until a sample tells (Accounting::Charge)
  Nanos throttled{};                       // time in which any process of it was frozen for the cap
  uint64_t freezes = 0;
  Nanos frozen_turn{}, frozen_user{};  // the same for others' turns, and by a user
  TimeHistogram iterations{};          // of its processes with the shim
  uint64_t turns = 0;                  // that its jobs had
  Nanos held{};  // time in which any job of it wanted a GPU and waited for its turn
};

// The GPUs that the agent drives: no more than the control plane has room for.
inline std::span<const GpuInfo> driven_gpus(const Gpu& gpu) {
  return gpu.gpus().first(std::min<std::size_t>(gpu.gpus().size(), kMaxGpus));
}

class TurnTaking;

struct State {
  State(Gpu& gpu, Region& region, Tenants& all_tenants, const Clock& clock,
        std::function<void(const Enforcer::Change&)> changed, const MakeDriverLine& make_line)
      : registry(driven_gpus(gpu)),
        accounting(gpu.gpus().size(), Accounting(gpu.support().has_switch_log)),
        ledger(region),
        enforcer(gpu, ledger, clock, std::move(changed), make_line),
        interference(gpu, registry, enforcer, clock),
        tenants(all_tenants),
        members_on(gpu.gpus().size()),
        statuses(gpu.gpus().size()),
        gpu_problems(gpu.gpus().size()),
        gpu_problem_since(gpu.gpus().size()) {}

  Registry registry;
  std::vector<Accounting> accounting;  // by GPU index
  Ledger ledger;
  Enforcer enforcer;
  Interference interference;
  Tenants& tenants;
  std::map<MemberKey, Member> members;
  // The same by GPU, ascending: kept by Membership. Nothing in it moves while it is a member.
  std::vector<std::vector<std::map<MemberKey, Member>::value_type*>> members_on;
  std::vector<Departed> departed;                // of members
  std::map<uint32_t, TenantUse> tenant_use;      // by tenant slot
  std::vector<std::vector<SloStatus>> statuses;  // by GPU: of the last plan
  std::vector<std::string> gpu_problems;         // by GPU: why it is left alone; empty: it is not
  std::vector<Time> gpu_problem_since;           // valid while there is one
  const TurnTaking* turns = nullptr;             // the scheduler's; never null in its steps
  uint64_t ticks = 0, events = 0;
  Micros tick{0};
};

}  // namespace gpushare
