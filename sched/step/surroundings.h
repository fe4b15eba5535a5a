// SPDX-License-Identifier: Apache-2.0
// What the scheduler stands on. The interfaces are implemented above it (sched/shim, sched/daemon),
// so that it knows neither sockets nor NVIDIA's MPS. All are called on the agent's one thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "sched/enforce/enforcer.h"
#include "sched/jobs/hold.h"
#include "sched/jobs/jobs.h"
#include "sched/mps/link.h"
#include "sched/orders/length_history.h"
#include "sched/policy/policy.h"
#include "sched/registry/registry.h"
#include "sched/spatial/slot_reading.h"
#include "sched/spatial/spatial.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenants.h"
#include "shmctl/plane/region.h"

namespace gpushare {

// The processes that have the shim. In each step, in this order: read(), then for each GPU views()
// and apply(), then finish().
class ShimProcesses {
 public:
  virtual ~ShimProcesses() = default;
  // Reads what each process says, once for the step.
  virtual void read(Time now, const Registry& registry) = 0;
  // Those on this GPU, ascending by process; see Spatial::views(). Valid until finish().
  virtual std::vector<ProcessView> views(uint32_t gpu) const = 0;
  virtual TenantPartition partition(uint32_t tenant, uint32_t gpu) const = 0;
  // Carries out the plan's partitions, and for each of `processes` its run_until.
  virtual void apply(Time now, uint32_t gpu, const Plan& plan,
                     std::span<const ProcessView> processes) = 0;
  // Returns when the next step is wanted.
  virtual Time finish(Time now) = 0;
  // Whether its cap closes its gate, so that it is neither charged nor frozen for its cap here.
  virtual bool is_gated(const ProcessId& process) const = 0;
  // Whether a freeze for this reason is a closed gate, so that the process is not frozen here. To
  // be called in each step for each process that is decided about, before finish().
  virtual bool takes_freeze(const ProcessId& process, FreezeReason reason) {
    return reason == FreezeReason::kCap && is_gated(process);
  }
  // What an MPS server used of this GPU since the last step, which is its clients' use: it is said
  // before finish().
  virtual void add_server_use(uint32_t, Nanos) {}
  // What the process says at this moment; nullopt: it has no slot. Also between two steps.
  virtual std::optional<SlotReading> look(const ProcessId&) const { return std::nullopt; }
  // What it has counted of its iterations' times since it has its slot; nullopt: it has none.
  virtual std::optional<TimeHistogram> times(const ProcessId&) const { return std::nullopt; }
  // From now on, also between two steps: at its boundary and its gate. The gate may stay closed for
  // another reason.
  virtual void hold(const ProcessHold&) {}
  // Whether a process wakes the agent so often that it is not heard.
  virtual bool has_unheard() const { return false; }
  // Why what it says of itself is not believed, for its note in status; empty: it is.
  virtual std::string note(const ProcessId&) const { return {}; }
};

// NVIDIA's MPS servers, whose time on a GPU is that of others, their clients: a server is neither
// charged nor frozen.
class MpsServers {
 public:
  virtual ~MpsServers() = default;
  virtual bool is_server(const ProcessId& process) const = 0;
  virtual MpsStatus status() const = 0;  // for the agent's record
};

// A job's turn on a GPU begins or ends.
struct TurnChange {
  Time at{};
  uint32_t gpu = 0;
  std::string_view job{};  // "run-4711"; valid during the call
  pid_t pid = 0;           // of its first process
  bool begins = false;
};

// Told what happens, to write it down.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_turn(const TurnChange&) {}
  virtual void on_switch(const SwitchRecord& record) = 0;
  // `reason`: of a freeze.
  virtual void on_change(const Enforcer::Change& change, FreezeReason reason) = 0;
};

struct Surroundings {  // all outlive the scheduler
  Gpu& gpu;
  Observer* observer;  // nullptr: nothing tells of new processes; they are looked for
  Region& region;
  const ProcReader& processes;
  const Clock& clock;
  Tenants& tenants;
  ShimProcesses* shims = nullptr;    // nullptr: no process has the shim
  const MpsServers* mps = nullptr;   // nullptr: there is none
  Listener* listener = nullptr;      // nullptr: nobody listens
  LengthHistory* lengths = nullptr;  // of jobs; nullptr: nothing is learnt of them
  // On threads: no step waits for the driver.
  DriverCalls driver_calls = DriverCalls::kInStep;
  MakeDriverLine make_line = driver_lines(driver_calls);
};

}  // namespace gpushare
