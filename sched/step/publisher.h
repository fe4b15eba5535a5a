// SPDX-License-Identifier: Apache-2.0
// Publisher: writes the State into the control plane's records, for the tools: the agent's own
// record every step, because it is the sign of life, the others at most 20 times a second, and
// sooner when something has changed: a thousand processes' records are a megabyte, so programs that
// come and go all the time must not have them written at every step. Owned by the scheduler; the
// agent's one thread.
#pragma once

#include <map>
#include <vector>

#include "sched/step/state.h"
#include "sched/step/surroundings.h"
#include "sched/tenants/config.h"

namespace gpushare {

// What the agent says of itself, and does not change.
struct AgentIdentity {
  uint32_t agent_pid = 0, supervisor_pid = 0;
  Time started{};
  uint64_t restarts = 0;
  bool is_simulated = false;
  bool are_tenants_in_sysfs = false;
};
// Its part of the record, with the time of publication.
AgentRecord record_of(const AgentIdentity& agent, Time now);

// What the tenants of an agent before used, as it was published last, by slot: for its successor,
// so that a tenant's counters go on. Tenants that are there no more, or have another name, are left
// out.
std::map<uint32_t, TenantUse> published_use(const Region& region, const Tenants& tenants);

class Publisher {
 public:
  static constexpr Nanos kInterval = std::chrono::milliseconds(50);
  // The least time between two publications, however much changes.
  static constexpr Nanos kChangeInterval = std::chrono::milliseconds(10);

  // `state`, `config` and what `outside` refers to outlive it.
  Publisher(const State& state, const Surroundings& outside, const AgentIdentity& agent,
            const Config& config);

  // `is_changed`: all records, as soon as kChangeInterval allows. Returns when to call again for
  // that; Time::max(): nothing waits.
  Time publish(Time now, bool is_changed);
  // At once, because nothing is published after that.
  void publish_last(Time now) {
    next_change_ = now;
    (void)publish(now, /*is_changed=*/true);
  }

 private:
  void publish_agent(Time now);
  void publish_gpus();
  bool describe_tenants();
  void publish_tenants();
  void publish_partitions(uint32_t tenant, TenantRecord& record) const;
  void publish_processes(Time now);
  std::string note_of(const MemberKey& key, const Member& member, const Enforcer::State& enforced,
                      Time now) const;

  const State& state_;
  const Surroundings& outside_;
  Region& region_;
  const AgentIdentity agent_;
  const Config& config_;
  Time next_{}, next_change_{};
  bool has_change_ = false;  // that is not published
  // By slot.
  std::vector<TenantRecord> tenants_;  // with what the settings say alone
  std::vector<TenantRecord> records_;  // used again: half a megabyte
  uint64_t described_ = 0;             // the generation of the tenants that they are of, and 1
  std::vector<bool> had_tenant_, had_member_;
};

}  // namespace gpushare
