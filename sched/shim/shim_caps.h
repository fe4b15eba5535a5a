// SPDX-License-Identifier: Apache-2.0
// ShimCaps: a tenant's `max` for its clients of an MPS server. They share the server's context, so
// the switch log tells nobody's GPU time, and a freeze would stop them all. What is known of each
// is its launches, and what can be closed is its gate. Pure but for the buckets, which are the
// tenants' own in the control plane.
//
// Charged is wall time, once for a tenant and GPU: from a launch until kLinger after it, while the
// gates are open. So a kernel that runs longer, alone and waited for, is charged too little, and
// what was queued before a gate closed runs on uncharged.
//
// With credit (shmctl/shim/credit.h) a closed gate holds what is queued, too, and the GPU says how
// far it is. Then charged is, while the gates are open, the time in which it gets on or a thread
// waits for it, until kLingerOnGpu and a launch's length after; and at each closing half of what is
// let through at once, because that much runs on, on average.
//
// A client may say that it launches nothing, and launch. What the server used is known from the
// switch log: where it is far more in a window than the clients' launches explain, the rest is
// charged to the tenants with a cap whose clients say so, in equal parts. One that lies beside
// others who keep the server busy is not found out.
//   max = "30%", period 100 ms: a busy client runs 43 ms, waits for 10.5 ms of tokens, runs 15 ms,
//   rests 35 ms.
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
  static constexpr Nanos kLinger = std::chrono::milliseconds(20);
  static constexpr Nanos kLingerOnGpu = std::chrono::milliseconds(3);
  static constexpr Nanos kLongestLaunch = std::chrono::seconds(1);  // that is believed
  // When step() wants to be called again: while somebody is charged or waits, and otherwise.
  static constexpr Nanos kBusyLook = std::chrono::milliseconds(5);
  static constexpr Nanos kCalmLook = std::chrono::milliseconds(100);
  // Steps that are farther apart than this had a standstill of the agent between them.
  static constexpr Nanos kStandstill = std::chrono::milliseconds(500);

  // Of a client whose launches wait on the GPU; all by its own word.
  struct OnGpu {
    uint32_t reached = 0;  // changes while the GPU gets on with its work
    bool waits = false;    // a thread waits for the GPU
    Nanos launch{};        // mean length; 0: unknown
  };
  struct Client {
    ProcessId process;
    uint32_t tenant = 0;
    std::vector<uint32_t> gpus;  // that it is on
    uint64_t launches = 0;       // only rises
    std::optional<OnGpu> on_gpu{};
  };
  struct Budget {
    CapView cap;  // tokens: not looked at
    TokenBucket* bucket = nullptr;
  };
  // nullopt: the tenant has no cap.
  using FindBudget = std::function<std::optional<Budget>(uint32_t tenant, uint32_t gpu)>;

  // How long is looked at before the clients' word is held against their server's use, which may be
  // known up to 3 s late (sched/account/lone_context.h).
  static constexpr Nanos kWindow = std::chrono::seconds(10), kLate = std::chrono::seconds(3);

  // `clients`: all there are. `server_use`: by GPU, what their servers used since the last call.
  // Returns when to call again.
  Time step(Time now, std::span<const Client> clients, const FindBudget& find,
            std::span<const Nanos> server_use = {});

  // Whether it must wait at its gate.
  bool is_shut(const ProcessId& process) const { return shut_.contains(process); }
  // Whether it said in the last window that it launches nothing, while its server worked.
  bool is_doubted(const ProcessId& process) const { return doubted_.contains(process); }

 private:
  struct Known {
    uint64_t launches = 0;
    uint32_t reached = 0;
    Time busy_from{}, busy_until{};  // it is at work, as far as is known
  };
  using Key = std::pair<uint32_t, uint32_t>;  // tenant, GPU

  struct Window {
    Time end{};
    Nanos used{}, explained{};
    std::set<ProcessId> spoke;    // that said they launched
    std::set<ProcessId> doubted;  // at its end
  };

  void watch(Time now, std::span<const Client> clients);
  void compare(Time now, std::span<const Client> clients, const std::map<Key, Budget>& budgets,
               std::span<const Nanos> server_use);

  Time last_{};
  std::map<ProcessId, Known> known_;
  std::map<uint32_t, CapGate> gates_;  // by GPU
  std::set<ProcessId> shut_, doubted_;
  std::map<uint32_t, Window> windows_;  // by GPU
};

}  // namespace gpushare
