// SPDX-License-Identifier: Apache-2.0
// KnownTenant: what the policy `slo` knows of one tenant on one GPU: its target, what was measured
// of its iterations, its knee, and whether it is behind. Pure but for the knees that it looks up.
// Owned by SloPolicy, on the agent's one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sched/slo/knees/store.h"
#include "sched/slo/meter.h"
#include "sched/slo/sizer.h"

namespace gpushare {

class KnownTenant {
 public:
  static constexpr Nanos kLongIdle = std::chrono::seconds(10);

  // At every step. Returns true when what the last decision was made for has changed. `knees` may
  // be null: nothing is known of earlier runs.
  bool look(Time now, const TenantView& view, std::span<const ProcessView* const> processes,
            std::string_view gpu_name, KneeStore* knees);
  // Once a round: takes what was measured.
  void measure(Time now);
  void skip_measure() { is_measured = false; }
  // Whether its queue has been too long for 50 ms; returns true when that has changed.
  bool look_whether_behind(Time now);

  // What the sizer needs; `weights`: of all tenants there.
  SloTenant sizing(uint32_t id, const SmGeometry& geometry, uint64_t weights) const;
  // Mean seconds of work for an iteration, of the last measure.
  double service() const;
  double target() const;  // seconds; 0: none
  SloState state(const SloShare& share, uint32_t most) const;

  // --- read by SloPolicy
  SloMeter meter;
  SloMeasure measured;  // the last
  SloStatus status;
  std::optional<KnownKnee> knee;
  std::string command;  // signature of the command line; empty: unknown
  uint32_t weight = 100;
  bool is_behind = false;
  bool is_measured = false;  // in the round that is being decided
  uint64_t last_step = 0;    // of SloPolicy, in which it was there

 private:
  void recall_knee(std::string_view gpu_name, KneeStore* knees);
  std::optional<uint32_t> cap(const SmGeometry& geometry) const;

  std::optional<uint32_t> sm_percent_;
  Nanos own_target_{-1};           // of the tenant, not of its program; -1: not looked at yet
  std::string command_line_;       // of its busiest process
  uint32_t reference_groups_ = 0;  // where `reference_` was measured last
  double reference_ = 0;           // seconds of service
  double arrivals_ = -1;           // requests a second of a queue; < 0: not known
  int batches_ = 0;                // rounds in a row in which more arrived than ended
  std::optional<Time> behind_since_;
  bool has_own_partition_ = true;
};

}  // namespace gpushare
