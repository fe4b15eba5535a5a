// SPDX-License-Identifier: Apache-2.0
// SloSizer: how many SM groups each tenant of one GPU needs, and which tenants share a partition,
// so that those with a target time meet it with as few groups as they need. A loop in rounds of
// about a second after GSLICE (SoCC'20, Algorithm 1), with its dead band: above 100 % of the target
// a tenant grows, below 90 % it gives up what it can without rising above 95 %. Unlike the
// published rule, a step goes to the fewest groups at which the tenant's curve (service_curve.h)
// meets the target, and never to where the worst curve through what was measured would miss it;
// load is what arrives times the service time, because latency in overload only tells of the queue.
// bench/sched compares them; docs/spatial.md tells who shares and what is given up when there is
// not enough.
//
// Pure but for its memory of curves; one object per GPU; owned by SloPolicy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sched/slo/knees/move.h"
#include "sched/slo/pack_history.h"
#include "sched/slo/service_curve.h"
#include "sched/spatial/group_division.h"
#include "shmctl/base/clock.h"

namespace gpushare {

// One tenant, over the round that has passed.
struct SloTenant {
  uint32_t id = 0;          // unique in a call
  Nanos slo{0};             // 0: none
  uint32_t weight = 100;    // among those without
  uint32_t groups = 0;      // in effect during the round; 0: it had none, or they changed
  uint32_t iterations = 0;  // completed
  double latency = -1;      // mean seconds from arrival to completion; < 0 unknown
  double service = -1;      // mean seconds the GPU worked on one; < 0 unknown
  double throughput = -1;   // completed a second; < 0 unknown
  // A second; < 0: unknown, and then open loop at `throughput` when the latency shows queueing,
  // otherwise closed loop. It may be known of a tenant that was not measured in this round.
  double arrivals = -1;
  double launches = 1;           // mean of an iteration; 1 also: not known
  std::optional<uint32_t> knee;  // groups
  uint32_t most = 0;             // groups that it may have; 0: all
  uint32_t first = 1;            // groups to begin with, while neither time nor knee is known
  // It may share a set with others that may. When there are more sets than groups it has to.
  bool can_share = true;
};

struct SloShare {
  uint32_t id = 0;
  uint32_t groups = 0;
  uint32_t demand = 0;  // what its set would need; more than `groups`: there is not enough for all
  SloMove move = SloMove::kHold;
  uint32_t set = 0;  // of SMs, counted from 0; those with the same share its `groups`

  bool operator==(const SloShare&) const = default;
};

class SloSizer {
 public:
  // groups: of the GPU, at most 64.
  explicit SloSizer(uint32_t groups) : groups_(groups) {}

  // In the order of the tenants; the shares of the sets sum to at most `groups`. Tenants that are
  // not named are forgotten. More sets than groups: the last get none.
  std::vector<SloShare> decide(std::span<const SloTenant> tenants);

  // The longest service time with which the tenant would meet `slo` as its requests arrive now;
  // seconds. `slo` itself where they do not queue, or nothing is known.
  double longest_service(uint32_t id, double slo) const;

 private:
  static constexpr uint32_t kNoSet = UINT32_MAX;
  static constexpr double kBand = 0.05;
  static constexpr double kSpare = 0.9;     // of a target in a shared set, while there is enough
  static constexpr double kFullLoad = 0.9;  // more is without end

  struct Memory {
    ServiceCurve curve;
    uint32_t demand = 0;
    double burstiness = 1;    // measured waiting to that of random arrivals
    double rate = -1;         // of arrivals
    double completions = -1;  // a second; < 0: unknown, or of a loop that never idles
    bool is_fresh = false;    // measured in this call
    double busy = 0;          // part of the time in which it works
    double service = 0;       // measured last; seconds
    double launches = 1;      // of an iteration
    double load = 0;          // what `busy` would be alone
    double others = 0;        // part of the time in which others of its set work
    double blocked = 0;       // seconds that a request waits if its kernels wait for theirs
    uint32_t set = kNoSet;    // of the last decision
    uint64_t last_call = 0;
  };
  // A tenant with a target, in one call.
  struct Served {
    const SloTenant* tenant;      // and
    Memory* memory;               // never null
    double target;                // seconds, as far as it is not given up
    int given_up = 0;             // notches of it
    std::vector<double> seconds;  // likely, alone, from one group on; empty: not known
  };
  struct Division {
    std::vector<Pack> packs;      // of those with a target
    std::vector<uint32_t> given;  // groups of each
    std::vector<uint32_t> rest;   // groups of the sets of those without
  };
  using Members = std::span<Served* const>;
  using Sets = std::vector<std::vector<Served*>>;

  // sizer.cc
  Served serve(const SloTenant& tenant, Memory& memory) const;
  static void note(const SloTenant& tenant, Memory& memory);
  static void follow_rate(const SloTenant& tenant, Memory& memory);
  void note_others();
  static void observe(const SloTenant& tenant, Memory& memory);
  uint32_t demand_of(const SloTenant& tenant, Memory& memory) const;
  uint32_t most_of(const SloTenant& tenant) const;
  uint32_t fewest_that_meet(const Memory& memory, double target) const;
  static double slo_seconds(const SloTenant& tenant);
  static uint32_t beside_band(double response, double target, double band, uint32_t needed,
                              uint32_t present);
  static double odds(const Memory& memory);
  static double rate_of(const SloTenant& tenant, double service);
  static double response(const Memory& memory, double service);
  static double expected(const Memory& memory, uint32_t groups);

  // sets.cc
  uint32_t demand_of_all(Members members) const;
  uint32_t most_of_all(Members members) const;
  uint32_t groups_of_all(Members members) const;
  static bool can_share(const Served& one);
  static bool is_known(Members members);
  static double response_of_set(Members members, uint32_t groups);
  template <class See>
  static void see_each(Members members, uint32_t groups, const See& see);
  static double worst_of(Members members, uint32_t groups);
  const Served* binding(Members members) const;
  static void give_up(Served& one, int notches);
  static double load(const Served& one, uint32_t groups);
  static double rate(const Memory& memory);
  static double waits(const Memory& memory);
  double most_in_set() const { return has_spare_ ? kSpare : 1; }
  double band_in_set() const { return has_spare_ ? 2 * kBand : kBand; }
  double aim_in_set() const { return most_in_set() * (1 - band_in_set()); }

  // division.cc
  Division divide(Members served, std::vector<uint32_t> weights);
  std::vector<Pack> pack(Members served, uint32_t available, bool counts);
  uint32_t demand_in_full(Members members, uint32_t demand) const;
  static Sets sets_of(Members served, const std::vector<Pack>& packs);
  template <class Urge>
  static uint32_t give_one_by_one(std::vector<uint32_t>& groups, uint32_t more, const Urge& urge);
  static uint32_t fewest_without_end(Members members, uint32_t most);
  std::vector<uint32_t> divide_too_few(const Sets& sets, std::span<const GroupDemand> demands,
                                       uint32_t total) const;
  // Does nobody who is near its target, or misses it, take clearly longer than in another division?
  static bool is_hardly_worse(const Sets& sets, const std::vector<uint32_t>& present,
                              const std::vector<uint32_t>& other);
  template <class Urge>
  std::vector<uint32_t> present_or(const Sets& sets, const std::vector<uint32_t>& least,
                                   std::span<const uint32_t> most, uint32_t total, const Urge& urge,
                                   std::vector<uint32_t> other) const;
  std::vector<uint32_t> spread(const Sets& sets, std::vector<uint32_t> given, uint32_t total) const;

  const uint32_t groups_;
  uint64_t call_ = 0;
  std::unordered_map<uint32_t, Memory> memories_;
  std::unordered_map<uint32_t, size_t> sharers_;  // by set of the last decision
  PackHistory packs_;
  bool has_spare_ = true;     // those that share
  bool rest_shares_ = false;  // those without a target have one set
  int rest_fitted_ = 0;       // decisions in a row in which they could have had one each
};

}  // namespace gpushare
