// SPDX-License-Identifier: Apache-2.0
// KneeSearch decides when to look for which tenant's knee (knee.h) on one GPU, while all of them
// serve. It looks only while everything is calm: for kCalmRounds nothing moved, no tenant starved,
// and every tenant that was measured met its target. It looks for one knee at a time. A sample
// takes one round on so many groups, for which only tenants without a target give way; there are at
// most six. The first miss ends the search, and that tenant is left alone for kPause. Pure; one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "sched/slo/knees/knee.h"
#include "sched/slo/knees/move.h"
#include "sched/slo/knees/store.h"

namespace gpushare {

class KneeSearch {
 public:
  static constexpr int kCalmRounds = 3;
  static constexpr int kMostRounds = 20;  // for one sample, until it is measured
  static constexpr Nanos kPause = std::chrono::minutes(1);

  // A tenant with a target, after a round.
  struct View {
    uint32_t id = 0;
    bool is_known = false;     // its knee is
    bool is_measured = false;  // in this round, on `groups`
    uint32_t groups = 0;       // in effect
    uint32_t share = 0;        // that the policy wants for it
    uint32_t most = 0;         // that it may have
    SloMove move = SloMove::kHold;
    double slo = 0, latency = 0, service = 0;  // seconds
    double longest_service = 0;                // with which it would still meet its target
  };
  struct Sample {
    uint32_t id = 0;
    uint32_t groups = 0;
  };
  struct Found {
    uint32_t id = 0;
    KnownKnee knee;
  };

  // Call it after every round. `free` is the number of groups that no tenant with a target has,
  // less one for each tenant without. Returns what to give to which tenant instead of its share, or
  // nullopt if no tenant is sampled.
  std::optional<Sample> step(Time now, std::span<const View> tenants, uint32_t free);
  // Call it when the tenants have changed: then nothing is calm.
  void stop(Time now);
  // Returns what the last step() found, once.
  std::optional<Found> take_found();

 private:
  struct Search {
    uint32_t id = 0;
    uint32_t widest = 0;
    KneeFinder finder;
    int rounds = 0;  // since the last sample
  };

  void sample(Time now, const View& tenant);
  void start(Time now, std::span<const View> tenants, uint32_t free);
  void give_up(Time now);

  std::optional<Search> search_;
  std::optional<Found> found_;
  int calm_ = 0;                         // rounds
  std::map<uint32_t, Time> not_before_;  // by tenant
};

}  // namespace gpushare
