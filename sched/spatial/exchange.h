// SPDX-License-Identifier: Apache-2.0
// Exchange: when each of the tenants is told whose partitions of a GPU change
// places. What a tenant has in line ends in its old partition, after it was
// told of the new one: its drain. Were the one that grows told only when the
// one that shrinks has gone, the groups between them would be empty while the
// one that grows drains. So both are told so that their drains end together:
// the one with the longer drain at once, the other one by so much later,
// counted from the launch with which the first one goes. Meanwhile each works
// in its old partition. What the processes say of their drains may be wrong;
// then two tenants are in some groups at once for the difference, or those are
// empty for it. Pure; on the agent's one thread.
//   A shrinks and drains in 21 ms, B grows and drains in 64 ms:
//     B is told at once, A 43 ms after B's next launch; 21 ms later each goes
//     on in its new place.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "sched/spatial/sm_sets.h"
#include "shmctl/base/clock.h"

namespace gpushare {

class Exchange {
 public:
  // Whose partition changes.
  struct Mover {
    uint32_t tenant = 0;
    SmGroups from = 0, to = 0;
    Nanos drain{};
  };

  // Where nobody's drain is longer, who grows is told when who shrinks has gone: that is sooner
  // over, and the groups between them are empty until the agent looks, 1 to 2 ms.
  static constexpr Nanos kWorthIt = std::chrono::milliseconds(1);
  // A longer drain is not believed: then nobody is told ahead.
  static constexpr Nanos kLongestDrain = std::chrono::seconds(2);
  // So long the first one's launch is waited for; and an exchange that has not
  // happened so long after its drains should have ended is given up: who grows
  // goes back to what is its own.
  static constexpr Nanos kPatience = std::chrono::milliseconds(200);

  // `shrink` have been assigned `to`; `grow` will be when those have confirmed it. Nothing comes of
  // it if either is empty, a drain is too long, or all are too short. REQUIRES: !is_under_way(),
  // and nobody is in both.
  void begin(Time now, std::span<const Mover> shrink, std::span<const Mover> grow);
  // The time is now this one, and tenants are assigned what `sets` says.
  void advance(Time now, const SmSets& sets);
  // Each is told what it is assigned, from now on.
  void cancel() { told_.clear(); }
  bool is_under_way() const { return !told_.empty(); }
  // What the tenant is told, who is assigned this.
  SmGroups groups(uint32_t tenant, SmGroups assigned) const;
  // The tenant has launched since it was told, which tells when its drain
  // began.
  void note_gone(uint32_t tenant);
  // When it is told what it was assigned, as far as that is known; `otherwise`:
  // it takes no part.
  Time told_at(uint32_t tenant, Time otherwise) const;
  // When somebody is told next; Time::max(): nobody is.
  Time next() const;

 private:
  struct Told {
    SmGroups from = 0, to = 0;
    bool grows = false;
    Nanos after{};  // the first one has gone
  };

  Time at(const Told& told) const;

  std::map<uint32_t, Told> told_;  // by tenant
  Time now_{}, begun_{}, give_up_at_{};
  uint32_t first_ = 0;  // the tenant with the longest drain
  Time first_went_{};   // if it has not launched yet: the latest instant that is
                        // waited for
  bool has_gone_ = false;
};

}  // namespace gpushare
