// SPDX-License-Identifier: Apache-2.0
// What the control socket answers: one line of a request in, one line of an answer out. There are
// no sockets in here, so that it can be fuzzed; sched/control/server.h moves the lines. The
// messages are documented in sched/README.md. It takes any bytes. Called on the agent's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sched/control/diagnosis.h"
#include "sched/control/peer.h"
#include "sched/control/placements.h"
#include "sched/control/waiting_line.h"
#include "sched/orders/length_history.h"
#include "sched/step/scheduler.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenant_control.h"
#include "sched/tenants/tenants.h"
#include "shmctl/plane/region.h"

namespace gpushare {

// The longest request, in bytes with its newline.
inline constexpr std::size_t kLongestRequest = 65'536;

// What requests act on. The references are valid during a call.
struct ControlScope {
  Tenants& tenants;
  TenantControl& control;  // through which the tenants are changed
  Scheduler* scheduler;    // nullptr: there is no GPU now
  const ControlPlane& plane;
  const ProcReader& processes;
  const Clock& clock;
  bool follows_forks = false;                      // daemons stay in their tenant
  std::function<Result<>()> reload;                // reads the configuration again
  std::function<Result<>()> forget;                // drops what was set at run time
  std::function<std::vector<Finding>()> diagnose;  // for `gpushare doctor`
  // Of jobs that have ended, for `place`; nullptr: nothing was learnt.
  const LengthHistory* lengths = nullptr;
  // Who was placed; nullptr: that is not remembered.
  Placements* placements = nullptr;
  // Who waits for a GPU; nullptr: nobody has a place in a line.
  WaitingLine* waiting = nullptr;
};

struct Answer {
  std::string line{};  // without its newline
  // Set: the line is what this returns, which takes long. It may be called on any thread, while the
  // scope's plane exists.
  std::function<std::string()> later{};
  // True if settings or states were changed: the scheduler should step at once.
  bool has_changed = false;
  // For how long this peer gets trace lines after the answer; nullopt: it gets none.
  std::optional<Nanos> trace{};
};

// Never fails: a request that cannot be met is answered with a refusal.
Answer handle_request(std::string_view request, const Peer& peer, const ControlScope& scope);

// The answer to what is refused before it is a request: {"ok":false,...}. `code`: "usage",
// "denied", "busy" or "failed".
std::string refusal_line(std::string_view error, const char* code);

}  // namespace gpushare
