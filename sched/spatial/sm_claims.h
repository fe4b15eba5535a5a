// SPDX-License-Identifier: Apache-2.0
// SmClaims: what the tenants of one GPU shall have of its SMs. The seam between the rules (shares
// by sm_percent, or by target times: sched/slo/claims.h) and the machinery that carries them out
// (sched/spatial/orders.h), which asks at every step and does not know which rule it is. One object
// per GPU, on the agent's one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "intercept/event.h"
#include "intercept/gpu.h"
#include "sched/spatial/sm_partition.h"
#include "shmctl/base/clock.h"
#include "shmctl/plane/layout.h"
#include "shmctl/settings/tenant_settings.h"
#include "shmctl/shim/slot.h"

namespace gpushare {

// A tenant with processes on the GPU.
struct SmClaimant {
  struct Process {
    ProcessId id;
    const ShimSlot* slot = nullptr;  // valid during the call
    std::string_view command_line;   // the same; empty: unknown
  };
  uint32_t tenant = 0;
  TenantSettings settings;
  uint32_t groups = 0;   // in use now; 0: none, or unknown
  uint32_t sharers = 1;  // tenants that have the set together
  std::vector<Process> processes;
};

struct SmClaim {
  static constexpr uint32_t kOwnSet = UINT32_MAX;

  uint32_t groups = 1;
  bool can_borrow = true;         // takes what others lend
  Nanos idle_after{500'000'000};  // without a launch; then it lends all but one group
  uint32_t set = kOwnSet;         // who has the same number shares one set; `groups` are the set's
};

// What a rule by target times knows of a tenant. < 0: unknown; times in seconds.
struct SloStatus {
  Nanos slo{0};  // in force; 0: none
  bool is_asked_by_program = false;
  double latency = -1, p99 = -1, throughput = -1;
  ShimSource source = ShimSource::kNone;
  uint32_t confidence = 0;  // permille
  uint32_t knee = 0;        // groups; 0: unknown
  uint32_t needs = 0;       // groups; 0: unknown
  SloState state = SloState::kNone;
};

class SmClaims {
 public:
  virtual ~SmClaims() = default;
  // What the shim of a process of such a tenant has to do (ShimFeature); 0: nothing.
  virtual uint32_t features(const TenantSettings& settings) const = 0;
  // From now on, in the order of the claimants; those that are not named are gone.
  virtual std::vector<SmClaim> decide(Time now, const std::vector<SmClaimant>& claimants) = 0;
  // Of the claimants of the last decide(). nullopt: this rule has no targets.
  virtual std::optional<SloStatus> status(uint32_t) const { return std::nullopt; }
};

// For each of the GPUs that are shared spatially.
using MakeSmClaims = std::function<std::unique_ptr<SmClaims>(const GpuInfo&, const SmGeometry&)>;

// By sm_percent; a tenant without it that has the shim all the same wants all.
std::unique_ptr<SmClaims> make_share_claims(const GpuInfo& gpu, const SmGeometry& geometry);

}  // namespace gpushare
