// SPDX-License-Identifier: Apache-2.0
// SloClaims: the policy `slo` (sched/slo/policy.h) on one GPU: from the slots of its processes,
// once a second, to what each tenant shall have of the SMs. `[gpu.N] policy = "slo"`.
//
//  - A tenant's target is its slo_us. Has it none, what its program asks for (gpushare.h) counts;
//    for that it never gets more than its part of the GPU by weight: asking takes nothing from
//    others.
//  - Every program on such a GPU gets a slot with all features: whoever has no target must stay
//    within what is left, and the policy must see iterations as soon as a target is set, which may
//    be while the program runs.
//  - sm_percent is the most that a tenant gets for its target, and of the rest the most of one
//    without.
//  - Tenants with a target neither take what others lend, unless they starve, nor lend before
//    kLongIdle: what they have is what was measured. What nobody needs stays free, and saves power.
//  - Between rounds, whoever is behind (its longest queue alone takes longer than twice its target,
//    at all looks for kBehind) gets what those without a target have, but for one group each, until
//    it is not. So a load that comes at once is answered before the next round measures it.
//  - Where one iteration serves several requests (for kBatches rounds many more arrived than ended,
//    and the target was met), those that end count.
//  - Who shares a set (sched/slo/policy.h) is measured as it runs there. No knees are sought
//  meanwhile:
//    what a tenant takes then depends on the others too. And whoever says that it idles, and does
//    not, takes from those that it shares with; so only tenants share whose target an operator set.
//  - A tenant that comes gets its part by weight at once, or its knee where that is known from an
//    earlier run, and is measured from then on.
//  - Work that has changed (its time on the same groups is off by more than kOtherWork) has
//    another knee: the old one is forgotten.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/slo/knees/search.h"
#include "sched/slo/knees/store.h"
#include "sched/slo/meter.h"
#include "sched/slo/policy.h"
#include "sched/spatial/sm_claims.h"

namespace gpushare {

class SloClaims final : public SmClaims {
 public:
  static constexpr Nanos kRound{1'000'000'000};
  static constexpr Nanos kLongIdle{10'000'000'000};
  static constexpr Nanos kBehind{50'000'000};
  static constexpr double kQueue = 3;               // requests; two that came together are none
  static constexpr double kBatch = 1.5;             // requests that arrive for one iteration
  static constexpr int kBatches = 3;                // rounds
  static constexpr uint64_t kFewestIterations = 8;  // that make a round
  static constexpr double kOtherWork = 0.25;

  // `knees` outlives it; nullptr: what is found is not kept.
  SloClaims(const GpuInfo& gpu, const SmGeometry& geometry, KneeStore* knees)
      : gpu_name_(gpu.name), geometry_(geometry), knees_(knees), policy_(geometry.groups) {}

  uint32_t features(const TenantSettings&) const override { return kShimFeatures; }
  std::vector<SmClaim> decide(Time now, const std::vector<SmClaimant>& claimants) override;
  std::optional<SloStatus> status(uint32_t tenant) const override;

 private:
  struct Known {
    SloMeter meter;
    TenantSettings settings;
    SloMeasure measure;  // the last
    SloStatus status;
    SmClaim claim;
    std::string command_line, command;  // of its busiest process, and the signature
    std::optional<KnownKnee> knee;
    uint32_t reference_groups = 0;  // where `reference` was measured last
    double reference = 0;           // seconds of service
    double arrivals = -1;           // requests a second of a queue; < 0: not known
    int batches = 0;                // rounds in a row in which more arrived than ended
    std::optional<Time> behind_since;
    bool is_behind = false;
    bool is_measured = false;  // in the round that is being decided
    bool has_own_set = true;
    uint64_t last_step = 0;
  };

  bool take_in(Time now, const std::vector<SmClaimant>& claimants);
  void recall_knee(Known& known);
  void measure(Time now);
  void round(Time now, bool is_measured);
  SloTenant view(uint32_t id, const Known& known, uint64_t weights) const;
  std::optional<KneeSearch::Sample> search(Time now);
  void keep(const KneeSearch::Found& found);
  bool look_who_is_behind(Time now);
  std::vector<uint32_t> help(uint32_t spare) const;
  std::optional<uint32_t> sampled(const SloShare& share) const;
  uint32_t groups_of(const SloShare& share) const;
  void make_claims();
  static SloState state_of(const Known& known, const SloShare& share, uint32_t most);
  std::optional<uint32_t> cap_of(const Known& known) const;

  const std::string gpu_name_;
  const SmGeometry geometry_;
  KneeStore* const knees_;
  SloPolicy policy_;
  KneeSearch search_;
  std::map<uint32_t, Known> tenants_;
  // Of the last round.
  std::vector<SloTenant> views_;
  std::vector<SloShare> shares_;
  std::optional<KneeSearch::Sample> sample_;
  Time next_{};
  uint64_t step_ = 0;
  bool has_failed_ = false;  // to save
};

}  // namespace gpushare
