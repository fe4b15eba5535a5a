// SPDX-License-Identifier: Apache-2.0
// Spatial: carries the division of SMs (sm_sets.h) to the processes that have the shim, over
// their slots (shmctl/shim/slot.h), and brings back what they say. For the GPUs that are shared
// spatially; a tenant's part of each is what that GPU's rule says (sm_claims.h). The agent calls it
// on its one thread; it does nothing but read and write slots.
//
//  - A tenant has a part of every GPU that a process of it has a context on; of all, while a
//    process of it has none yet.
//  - A process that comes waits at its gate until its tenant has a part: the others must have given
//    it up before. No longer than kLongestStart: then it runs where it likes.
//  - Who does not launch cannot say that it has given something up, and need not: its next launch
//    sees the new order. So an order holds when a process has confirmed it, or has not launched for
//    kQuiet since it was written.
//  - Who has not launched for a while (SmClaim::idle_after) lends its part, all but one group.
//  - While all have what they shall have, each is told which sets may come next (sm_neighbours.h),
//    so that it can make them before it is moved.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "intercept/gpu.h"
#include "sched/spatial/sm_claims.h"
#include "sched/spatial/sm_neighbours.h"
#include "sched/spatial/sm_sets.h"
#include "sched/tenants/tenants.h"
#include "shmctl/shim/host.h"

namespace gpushare {

// What a tenant has of a GPU.
struct SmPart {
  uint32_t entitled = 0;  // SMs; 0: no part
  uint32_t in_use = 0;    // with what it borrows, without what it lends; 0: not known yet
  SmGeometry geometry{};  // of the GPU
  uint32_t sharers = 1;   // tenants that have it together
  uint32_t set = 0;       // its number, the same for those
  // What keeps a process of it from going where it is told; kFollows: nothing that is known.
  ShimFollows follows = ShimFollows::kFollows;
  std::optional<SloStatus> slo{};  // where the GPU's rule has targets
};

class Spatial {
 public:
  static constexpr Nanos kQuiet{20'000'000};
  static constexpr Nanos kLongestStart{200'000'000};
  // When step() wants to be called again: while something is on its way, and otherwise.
  static constexpr Nanos kBusyLook{2'000'000};
  static constexpr Nanos kCalmLook{100'000'000};

  // A process with a slot that wish() asked for.
  struct Client {
    ProcessId process;
    uint32_t tenant = 0;              // its slot in Tenants
    std::vector<uint32_t> gpus;       // on which it has a context, by index; empty: on none yet
    ShimSlot* slot = nullptr;         // valid during the call
    std::string_view command_line{};  // the same; empty: unknown
  };
  // At most kShimGpus of `gpus`.
  explicit Spatial(std::span<const GpuInfo> gpus, const MakeSmClaims& make = make_share_claims);
  // Other rules from now on, for the same GPUs.
  void set_claims(const MakeSmClaims& make);
  bool is_of(std::span<const GpuInfo> gpus) const;  // was it made for these?

  // What a process of this tenant is asked for when it comes. No features where no GPU's rule wants
  // any of such a tenant: it then runs without the shim's doing, on all SMs.
  ShimRequest wish(uint32_t tenant, const TenantSettings& settings) const;

  // `clients`: all there are. Returns when to call again.
  Time step(Time now, std::span<const Client> clients, const Tenants& tenants);

  // Was it made by a wish() of these GPUs?
  bool fits(const ShimSlot& slot) const;

  // Of the tenants that step() was last told of. `gpu`: index.
  SmPart part(uint32_t tenant, uint32_t gpu) const;

 private:
  struct Gpu {
    GpuInfo info;
    SmGeometry geometry;
    SmSets sets;
    SmNeighbours neighbours;
    std::unique_ptr<SmClaims> claims;
    std::vector<SetWish> wishes;           // of the plan that holds
    std::map<uint32_t, SetGrant> granted;  // by tenant
    std::map<uint32_t, Time> ordered_at;   // of orders on their way, by tenant
    std::map<uint32_t, ShimFollows> follows;
  };
  struct Known {
    uint64_t launches = 0;
    Time last_launch{};  // when they were last seen to rise
    Time came{};
    bool is_held = true;  // at its gate, until its tenant has its parts
  };

  void watch(Time now, std::span<const Client> clients);
  void plan(Gpu& gpu, std::size_t place, Time now, std::span<const Client> clients,
            const Tenants& tenants);
  std::vector<SmClaimant> claimants(const Gpu& gpu, std::span<const Client> clients,
                                    const Tenants& tenants) const;
  std::vector<SetWish> wishes_of(Time now, const std::vector<SmClaimant>& present,
                                 const std::vector<SmClaim>& claims) const;
  void tell(const Gpu& gpu, std::size_t place, std::span<const Client> clients) const;
  void announce(Gpu& gpu, std::size_t place, std::span<const Client> clients) const;
  void take_answers(Gpu& gpu, std::size_t place, Time now, std::span<const Client> clients);
  bool let_in(Time now, std::span<const Client> clients);
  static bool is_on(const Client& client, const Gpu& gpu);

  std::vector<Gpu> gpus_;
  std::map<ProcessId, Known> known_;
};

}  // namespace gpushare
