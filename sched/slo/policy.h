// SPDX-License-Identifier: Apache-2.0
// `slo`: in time as `fair`; in space each tenant with a target time gets the SMs that it needs, and
// the others have the rest by weight. From the iterations of the processes, once a second, to
// partitions (sizer.h); while a decision is under way (decider.h) the last one holds.
// sched/README.md tells the rules. One object per GPU, on the agent's one thread; it does no I/O:
// what it finds of programs goes into the KneeStore, whose owner saves it.
//
// Between rounds a tenant that is behind gets what those without a target have, but for one group
// each, until its queue is short. So a load that comes at once is answered before the next round
// measures it. While tenants with targets share a partition no knees are sought: what a tenant
// takes then depends on the others, too.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sched/policy/fair.h"
#include "sched/slo/decider.h"
#include "sched/slo/knees/search.h"
#include "sched/slo/knees/store.h"
#include "sched/slo/known_tenant.h"

namespace gpushare {

class SloPolicy final : public Policy {
 public:
  // While a decision is under way it wants to be called again after this.
  static constexpr Nanos kLook = std::chrono::milliseconds(5);

  // `knees` outlives it and may be null: what is found is not kept. `decider` null: decisions are
  // made in the plan.
  SloPolicy(const GpuView& gpu, const FairOptions& options, KneeStore* knees,
            std::unique_ptr<SloDecider> decider = nullptr)
      : in_time_(options),
        geometry_(gpu.geometry),
        knees_(knees),
        decider_(decider ? std::move(decider)
                         : make_slo_decider(geometry_.groups, SloDecisions::kInPlan)) {}

  Plan plan(const Snapshot& snapshot) override;

 private:
  // Of the tenants without a target that share a set.
  struct Rest {
    uint32_t weight = 0, most = UINT32_MAX, groups = 0;
  };

  bool look(const Snapshot& snapshot);
  void begin_round(Time now);
  void end_round(Time now, SloDecider::Decided decided);
  bool drop_the_gone();
  bool look_who_is_behind(Time now);
  std::vector<uint32_t> help(uint32_t spare) const;
  std::optional<KneeSearch::Sample> search(Time now);
  void keep(const KneeSearch::Found& found);
  std::optional<uint32_t> sampled(const SloShare& share) const;
  uint32_t groups_of(const SloShare& share) const;
  void make_partitions();
  static void divide_rest(uint32_t left, std::map<uint32_t, Rest>& rests);
  void serve(size_t place, uint32_t more);
  void leave(size_t place, uint32_t groups);
  PlannedPartition& join(const SloShare& share);

  FairPolicy in_time_;
  const SmGeometry geometry_;
  KneeStore* const knees_;
  const std::unique_ptr<SloDecider> decider_;
  KneeSearch search_;
  std::map<uint32_t, KnownTenant> tenants_;  // with a process that has the shim
  std::string_view gpu_name_;                // during a call
  // Of the last round; `sizings_`, `shares_` and `longest_services_` are in one order.
  std::vector<SloTenant> sizings_;
  std::vector<SloShare> shares_;
  std::vector<double> longest_services_;
  std::optional<KneeSearch::Sample> sample_;
  std::vector<PlannedPartition> partitions_;
  std::map<uint32_t, size_t> places_;  // of the partitions, by SloShare::set
  Time next_{};
  bool wants_round_ = false, wants_measure_ = false;  // of the next round
  bool is_measured_ = false;                          // the round that is being decided
  uint64_t step_ = 0;
};

}  // namespace gpushare
