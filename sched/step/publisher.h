// SPDX-License-Identifier: Apache-2.0
// Publisher: writes the State into the control plane's records, for the tools. The agent's own
// record every step (it is the sign of life), the others at most 20 times a second and whenever
// told that something changed: a thousand processes' records are a megabyte.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "sched/mps/link.h"
#include "sched/spatial/orders.h"
#include "sched/step/state.h"
#include "shmctl/plane/region.h"

namespace gpushare {

class Publisher {
 public:
  static constexpr Nanos kInterval{50'000'000};

  // The agent's identity in the record is left to the caller: set_agent().
  Publisher(const State& state, Gpu& gpu, Region& region);

  struct Agent {
    uint32_t agent_pid = 0, supervisor_pid = 0;
    Time started{};
    uint64_t restarts = 0;
    bool is_simulated = false;
    bool are_tenants_in_sysfs = false;
    MpsStatus mps{};
    std::string policy;
    std::set<uint32_t> spatial_gpus{};  // by index, below kMaxGpus
    std::set<uint32_t> slo_gpus{};      // of those, where parts follow target times
  };
  void set_agent(Agent agent) { agent_ = std::move(agent); }
  // What a tenant has of a GPU's SMs; may be empty.
  using Parts = std::function<SmPart(uint32_t tenant, uint32_t gpu)>;
  void set_parts(Parts parts) { parts_ = std::move(parts); }

  void publish(Time now, uint64_t events_dropped, bool is_changed);

 private:
  void publish_agent(Time now, uint64_t events_dropped);
  void publish_gpus();
  GpuSharing sharing_of(uint32_t gpu) const;
  void publish_tenants();
  void publish_processes(Time now);

  const State& state_;
  Gpu& gpu_;
  Region& region_;
  Agent agent_;
  Parts parts_;
  Time next_{};
  std::vector<bool> had_tenant_;  // by slot
};

}  // namespace gpushare
