// SPDX-License-Identifier: Apache-2.0
// SloDecider: where the sizer decides. A decision on many tenants takes long (46 ms with 200
// services), so in the agent it is made on another thread, from a copy of what was measured, and
// the plan goes on with the last one until then. Elsewhere it is made in the plan itself, so that
// the same snapshots always give the same plans. Called on the scheduler's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sched/slo/sizer.h"

namespace gpushare {

enum class SloDecisions { kInPlan, kAside };

class SloDecider {
 public:
  // Decisions on so few are always made at once: one takes 0.1 ms.
  static constexpr std::size_t kFew = 14;

  struct Decided {  // all in the order of the tenants
    std::vector<SloTenant> tenants;
    std::vector<SloShare> shares;
    std::vector<double> longest_services;  // SloSizer::longest_service() for the targets
  };
  virtual ~SloDecider() = default;
  // `targets`: of the tenants, seconds. REQUIRES: !is_busy().
  virtual void begin(std::vector<SloTenant> tenants, std::vector<double> targets) = 0;
  // Whether a decision was begun that take() has not returned.
  virtual bool is_busy() const = 0;
  // nullopt: there is none yet.
  virtual std::optional<Decided> take() = 0;
};

// `groups`: of the GPU. What is under way when it ends is forgotten, and nobody waits for it.
std::unique_ptr<SloDecider> make_slo_decider(uint32_t groups, SloDecisions where);

}  // namespace gpushare
