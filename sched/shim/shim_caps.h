// SPDX-License-Identifier: Apache-2.0
// ShimCaps: a tenant's `max` for its clients of an MPS server. They share the server's context, so
// the hardware's switch log tells nobody's GPU time, and a freeze would stop them all. What is
// known of each is its launches, and what can be closed is its gate. Pure but for the buckets,
// which are the tenants' own in the control plane: what a tenant's other processes use is charged
// there, too.
//
// Charged is wall time, once for a tenant and GPU however many of its clients are at work: from
// when a launch is made (known to kBusyLook, or kLinger after a rest) until kLinger after it, while
// the tenant's gates are open. So who launches without a pause is charged all of that time, and who
// launches a kernel now and then kLinger for each: a kernel that runs longer, alone and waited for,
// is charged too little. The size of a tenant's part makes no difference. What was queued before a
// gate closed runs on, uncharged: a program that queues far ahead is held to its cap only as far as
// its queue is empty before its gate opens.
//   Example: max = "30%", period 100 ms. The bucket holds 30 ms. A busy client runs 43 ms (30 and
//   what comes back meanwhile), waits until there are 10.5 ms (sched/policy/cap_gate.h), runs 15,
//   rests 35.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "intercept/event.h"
#include "sched/policy/cap_gate.h"
#include "shmctl/plane/token_bucket.h"

namespace gpushare {

class ShimCaps {
 public:
  static constexpr Nanos kLinger{20'000'000};
  // When step() wants to be called again: while somebody is charged or waits, and otherwise.
  static constexpr Nanos kBusyLook{5'000'000}, kCalmLook{100'000'000};

  struct Client {
    ProcessId process;
    uint32_t tenant = 0;
    std::vector<uint32_t> gpus;  // that it is on
    uint64_t launches = 0;       // only rises
  };
  struct Budget {
    CapView cap;  // tokens: not looked at
    TokenBucket* bucket = nullptr;
  };
  // nullopt: no cap.
  using FindBudget = std::function<std::optional<Budget>(uint32_t tenant, uint32_t gpu)>;

  // `clients`: all there are. Returns when to call again.
  Time step(Time now, std::span<const Client> clients, const FindBudget& find);

  // Must it wait at its gate?
  bool is_shut(const ProcessId& process) const { return shut_.contains(process); }

 private:
  struct Known {
    uint64_t launches = 0;
    Time busy_from{}, busy_until{};  // it is at work, as far as is known
  };
  using Key = std::pair<uint32_t, uint32_t>;  // tenant, GPU

  void watch(Time now, std::span<const Client> clients);

  Time last_{};
  std::map<ProcessId, Known> known_;
  std::map<uint32_t, CapGate> gates_;  // by GPU
  std::set<ProcessId> shut_;
};

}  // namespace gpushare
