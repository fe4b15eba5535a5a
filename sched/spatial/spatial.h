// SPDX-License-Identifier: Apache-2.0
// Spatial: the processes that have the shim, and their partitions of all GPUs that are shared
// spatially (gpu_partitions.h). It is the only writer of what they are told of partitions. The
// agent calls it on its one thread; it does nothing but read and write slots.
//
// A tenant has a partition of every GPU that a process of it has a context on, and of all while a
// process of it has none yet. The first launch of a process waits at its gate until its tenant has
// what it is entitled to, because the others must have given it up before; but no longer than
// kLongestStart: then it runs in what there is. The same holds for the first launch after its
// tenant has lent its groups, where the policy says so, for kLongestReturn.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "sched/spatial/gpu_partitions.h"
#include "sched/spatial/widening.h"
#include "shmctl/settings/tenant_settings.h"
#include "shmctl/shim/host.h"

namespace gpushare {

struct SpatialGpu {
  GpuInfo info;
  // ShimFeature: what every program that comes is asked for; programs of tenants with sm_percent
  // are always asked for a gate and partitions.
  uint32_t features = 0;
  // What programs that are asked for something are asked for besides.
  uint32_t besides = 0;
};

class Spatial {
 public:
  static constexpr Nanos kLongestStart = std::chrono::seconds(2);
  // The same for one whose tenant has lent its groups.
  static constexpr Nanos kLongestReturn = std::chrono::milliseconds(20);
  // When the next step is wanted: while something is on its way, while it takes long or a process
  // has not made its first launch, and otherwise.
  static constexpr Nanos kBusyLook = std::chrono::milliseconds(2);
  static constexpr Nanos kFirstLook = std::chrono::milliseconds(5);
  static constexpr Nanos kCalmLook = std::chrono::milliseconds(100);
  // And while a tenant lends whose next launch wakes the agent: an old shim does not.
  static constexpr Nanos kLentLook = std::chrono::milliseconds(20);
  // What a program with the feature kShimCredit may have in line at most: it ends in its old
  // partition, where it may take long, before the new one is full of work.
  static constexpr uint32_t kMostAheadUs = 4000;

  // At most kShimGpus of `gpus`.
  explicit Spatial(std::span<const SpatialGpu> gpus);
  // GPUs that were there before keep their partitions, if all of them are there still; their
  // features may be others, and others come behind them. False: nothing of before is known any
  // more.
  bool set_gpus(std::span<const SpatialGpu> gpus);

  // What a process of this tenant is asked for when it comes. No features when no GPU asks for any:
  // it then runs on all SMs, and the shim does nothing.
  ShimRequest wish(uint32_t tenant, const TenantSettings& settings) const;
  // Whether the slot was made by a wish() for these GPUs.
  bool fits(const ShimSlot& slot) const { return fits(slot, gpus_.size()); }
  // Adds the GPUs that have come since the slot was made, if its process moves between partitions.
  // Any other slot, or one that its process has spoilt, does not fit then. `shown`: its
  // shown_partition() when it came.
  void extend(ShimSlot& slot, uint32_t tenant, const LeastPartition& shown) const;

  // A step: read(), then a plan for each GPU by what views() says, apply() of each, finish().
  // `clients`: all that there are, ascending by process.
  void read(Time now, std::vector<ShimClient> clients);
  // The processes on this GPU; `id` and what only the scheduler knows are left at their defaults.
  // Valid until the next read().
  std::vector<ProcessView> views(uint32_t gpu) const;
  void apply(Time now, uint32_t gpu, std::span<const PlannedPartition> planned);
  // Opens gates, but of those that `stays_closed` names. Returns when the next step is wanted.
  using IsNamed = std::function<bool(const ProcessId&)>;
  Time finish(Time now, const IsNamed& stays_closed = [](const ProcessId&) { return false; });
  // Whether its gate is closed until its tenant has its partitions.
  bool is_held(const ProcessId& process) const;
  // Whether that is because its tenant lends its groups: its next launch is to wake the agent.
  bool lends(const ProcessId& process) const;

  // Programs whose partitions the last read() has found too small; each is named once.
  std::span<const Widening::Found> found_narrow() const { return found_; }
  std::string note(const ProcessId& process) const { return widening_.note(process); }

  // As of the last read().
  std::span<const ShimClient> clients() const { return clients_; }
  // `gpu`: its index.
  TenantPartition partition(uint32_t tenant, uint32_t gpu) const;

 private:
  struct Known {
    uint64_t launches = 0;
    Time last_launch{}, last_call{}, came{};
    bool is_held = true;   // at its gate, until its tenant has its partitions
    bool lends = false;    // it is held because its tenant lends its groups
    uint64_t held_at = 0;  // `launches` when it was held
    Time waits_since{};    // its first launch from then on; before that, zero
  };

  bool fits(const ShimSlot& slot, std::size_t count) const;
  const GpuPartitions* find(uint32_t gpu) const;
  void widen(Time now);
  void hold_lenders();
  Nanos let_in(Time now, const IsNamed& stays_closed);

  std::vector<GpuPartitions> gpus_;
  std::vector<uint32_t> features_;  // of each
  uint32_t besides_ = 0;            // of all
  std::vector<ShimClient> clients_;
  std::map<ProcessId, Known> known_;
  Widening widening_;
  std::vector<Widening::Found> found_;
};

}  // namespace gpushare
