// SPDX-License-Identifier: Apache-2.0
// GpuPartitions: the partitions of one GPU that is shared spatially. It carries what a policy
// planned to the processes that have the shim, over their slots (shmctl/shim/slot.h), and brings
// back what they say. Called by Spatial on the agent's one thread; it only reads and writes slots.
//
// A process that does not launch cannot say that it has given something up, and need not: its next
// launch sees the new assignment. So an assignment holds when a process has confirmed it, or has
// neither launched nor waited for work for kQuiet since it was written; or it stands at the gate
// that was closed when its tenant began to lend, and so has launched nothing since. Where all whose
// groups change hands have work in line and say how long it takes, they are told so that it ends at
// one moment (exchange.h); other sizes for the same tenants wait until then. While all have what
// was planned, each is told which sets may come next (sm_neighbours.h), so that it can make them
// before it is moved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "intercept/gpu.h"
#include "sched/policy/policy.h"
#include "sched/spatial/exchange.h"
#include "sched/spatial/least_partition.h"
#include "sched/spatial/slot_reading.h"
#include "sched/spatial/sm_neighbours.h"
#include "sched/spatial/sm_sets.h"
#include "shmctl/shim/slot.h"

namespace gpushare {

// A process with a slot, in one step.
struct ShimClient {
  ProcessId process;
  uint32_t tenant = 0;              // its slot in Tenants
  std::vector<uint32_t> gpus;       // on which it has a context, by index; empty: on none yet
  ShimSlot* slot = nullptr;         // valid until the end of the step
  std::string_view command_line{};  // the same; empty: unknown
  SlotReading said{};               // what it says, read once for the step
  LeastPartition least{};           // it runs in no smaller one; Spatial adds what it needs
  std::string_view program{};       // the name of its command (command_signature.h)
  bool is_halted = false;           // it is frozen or stopped, whatever its gate is
  // Set by Spatial.
  // When it came, when it was last seen to launch or to wait, and when it was last at work: that
  // is it, too, while launches that are in line have not begun (has_work_in_line).
  Time came{}, last_call{}, last_launch{};
  bool has_work_in_line = false;
  bool lends = false;  // its gate is closed because its tenant lends its groups
};

// Whether something keeps it from launching: what it waits for is no work then.
bool is_held(const ShimClient& client);

// What a tenant has of a GPU.
struct TenantPartition {
  uint32_t entitled = 0;   // SMs; 0: it has no partition
  uint32_t in_use = 0;     // SMs, with what it borrows, without what it lends; 0: not known yet
  uint32_t groups = 0;     // the same, in groups
  SmGeometry geometry{};   // of the GPU
  uint32_t sharers = 1;    // tenants that have it together
  uint32_t partition = 0;  // its number, the same for those
  // What keeps a process of it from going where it is told; kFollows: nothing that is known.
  ShimFollows follows = ShimFollows::kFollows;
};

class GpuPartitions {
 public:
  static constexpr Nanos kQuiet = std::chrono::milliseconds(20);
  // The same for one whose work runs on where it was when it was last seen, or waits there.
  static constexpr Nanos kQuietWithWork = std::chrono::seconds(5);

  // `place`: of the GPU in the slots.
  GpuPartitions(const GpuInfo& gpu, std::size_t place);

  const GpuInfo& gpu() const { return gpu_; }
  const SmGeometry& geometry() const { return geometry_; }
  // The SMs that a process has in its partition, by its own word and by what it was told: the
  // fewer.
  uint32_t sms_of(const ShimSlot& slot) const;
  // Whether its partitions concern the process: it is on this GPU, or on none that is known yet.
  bool concerns(const ShimClient& client) const;

  // Takes what the clients have confirmed.
  void read(Time now, std::span<const ShimClient> clients);
  // Assigns what is planned, as far as it is free, and tells the clients. Tenants without a client
  // here are left out.
  void apply(Time now, std::span<const PlannedPartition> planned,
             std::span<const ShimClient> clients);

  TenantPartition partition(uint32_t tenant) const;
  // ShimGpu::wanted of a process of this tenant.
  uint64_t word(uint32_t tenant) const;
  // Whether a process of the tenant may launch: its tenant has the groups that it is entitled to,
  // or none were planned for it.
  bool may_enter(uint32_t tenant) const;
  // Whether the tenant is idle and lends, and is to have its groups back with its next launch.
  bool lends(uint32_t tenant) const { return lenders_.contains(tenant); }
  // Whether an answer may come at any moment.
  bool is_awaited(Time now) const;
  // When a tenant is told what it was assigned before; Time::max(): none is.
  Time next_telling() const { return exchange_.next(); }
  // When the first tenant that has at once what it has lent will be idle, if it launches nothing
  // until then; Time::max(): there is none.
  Time next_idle() const { return next_idle_; }
  // Whether all have confirmed, and have what was planned.
  bool is_settled() const { return sets_.is_settled(); }

 private:
  // Of one tenant, by what its processes on this GPU say.
  struct Tenant {
    Time last_launch{};
    Nanos line{};        // how long what it usually has in line takes
    uint32_t least = 1;  // groups
    SetNeeds needs;
  };
  std::map<uint32_t, Tenant> tenants_of(std::span<const ShimClient> clients) const;
  std::vector<PlannedSet> present(Time now, std::span<const PlannedPartition> planned,
                                  std::span<const ShimClient> clients);
  void note_lenders(std::span<const PlannedSet> sets, const std::set<uint32_t>& returned);
  void read_places(Time now, std::span<const ShimClient> clients);
  void begin_exchange(Time now, std::span<const Assignment> told,
                      std::span<const ShimClient> clients);
  Nanos drain(Time now, uint32_t tenant, std::span<const ShimClient> clients) const;
  void note_gone(std::span<const ShimClient> clients);
  bool may_plan(std::span<const PlannedSet> sets) const;
  void tell(std::span<const ShimClient> clients) const;
  void announce(std::span<const ShimClient> clients);

  GpuInfo gpu_;
  std::size_t place_;
  SmGeometry geometry_;
  SmSets sets_;
  SmNeighbours neighbours_;
  Exchange exchange_;
  std::vector<PlannedSet> planned_;  // that holds
  std::set<uint32_t> lenders_;
  Time next_idle_ = Time::max();
  std::map<uint32_t, SetSize> sizes_;  // by tenant
  std::map<uint32_t, Time> told_at_;   // of assignments on their way, by tenant
  std::map<uint32_t, ShimFollows> follows_;
  // By tenant: where its processes say that they are, of those that are not where they were told.
  std::map<uint32_t, SmGroups> elsewhere_;
  // Of launches that left a partition: how many of each process, and when they last rose.
  struct Left {
    uint64_t launches = 0;
    Time last{};
  };
  std::map<ProcessId, Left> left_;
};

}  // namespace gpushare
