// SPDX-License-Identifier: Apache-2.0
// ShimTurns: who may launch among clients of an MPS server that run on the same SMs, where each can
// be held at its gate, and on the GPU by credit (shmctl/shim/credit.h). They run at the same time,
// so that neither time slices nor the switch log part them. Pure; the agent's one thread.
//
// Priorities come first: while a client is at work, all of a lower priority in its set stand. They
// stand, too, where it will be at work again before a launch of theirs could end: nothing stops a
// kernel that has begun, so one of 12 ms that is let in between two tokens delays the next one.
// Among those that are left, tenants with different weights take turns, each alone, so that their
// times are in proportion to their weights whatever their kernels are; what a tenant does not use
// goes to the others. Tenants of equal weight run at the same time, as MPS has it, because turns
// would take from all of them what overlap gives; so do those that have a target time, whose policy
// has chosen who shares with whom. Who has rested for a moment, between two of its launches, still
// has its turns.
//   two clients at work, weights 300 and 100: turns of 10 ms, three to one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

class ShimTurns {
 public:
  // How soon step() wants to be called again where one of a higher priority keeps others from
  // launching: its end may go unsaid. Where somebody may come with another weight: after a turn.
  static constexpr Nanos kLook = std::chrono::milliseconds(2);

  struct Client {
    ProcessId process;
    uint32_t tenant = 0;
    uint32_t gpu = 0;
    uint32_t set = 0;  // of SMs: the same number for those that run on the same ones
    uint32_t weight = 100;
    Priority priority = Priority::kNormal;
    bool is_at_work = false;  // it runs something, or stands at its gate
    bool is_busy = false;     // the same, or it was a moment ago: it has its turns
    bool has_target = false;
    Nanos runs_on{};  // how long it goes on, on average, after its gate has closed
    Nanos rests{};    // how long it is usually not at work, between two pieces of work; 0: unknown
    Nanos rested{};   // how long it has not been by now
  };

  // `clients`: all there are, once for each GPU. Returns when to call again; Time::max(): when
  // something changes.
  Time step(Time now, std::span<const Client> clients);

  bool is_shut(const ProcessId& process) const { return shut_.contains(process); }
  // Whether its wake-ups at the begin and the end of its work are of use to others.
  bool is_heard(const ProcessId& process) const { return heard_.contains(process); }

 private:
  // It has been at rest for twice as long as usual: nobody waits for it any more.
  static bool comes_back_soon(const Client& client, Nanos longest_launch) {
    return !client.is_at_work && client.rests < longest_launch && client.rested < 2 * client.rests;
  }

  using Key = std::pair<uint32_t, uint32_t>;  // GPU, set
  struct Turns {
    std::map<uint32_t, double> had;  // ns for each weight, by tenant; only differences count
    uint32_t holder = 0;
    bool is_held = false;
    Time charged{}, ends{};
  };

  Time divide(Time now, const Key& key, std::span<const Client* const> contenders);

  std::map<Key, Turns> turns_;
  std::set<ProcessId> shut_, heard_;
};

}  // namespace gpushare
