// SPDX-License-Identifier: Apache-2.0
// What the control socket answers: one request line in, one answer line out. No sockets in here, so
// that it can be fuzzed; sched/control/server.h moves the lines. The messages are documented in
// sched/README.md. Total on any bytes. One thread, the agent's.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sched/control/diagnosis.h"
#include "sched/step/scheduler.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenant_control.h"
#include "sched/tenants/tenants.h"
#include "shmctl/plane/region.h"

namespace gpushare {

inline constexpr std::size_t kLongestRequest = 65'536;

// Who asks, as the kernel says.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  bool is_admin = false;  // root, the agent's own user, or a member of the group gpushare
};

// What requests act on. The references are valid during a call.
struct ControlScope {
  Tenants& tenants;
  TenantControl& control;  // through which they are changed
  Scheduler* scheduler;    // nullptr: no GPU now
  const ControlPlane& plane;
  const ProcReader& processes;
  const Clock& clock;
  std::function<Result<>()> reload;
  std::function<std::vector<Finding>()> diagnose;
};

struct Answer {
  std::string line;  // without its newline
  // Settings or states were changed: the scheduler should step at once.
  bool has_changed = false;
  // After the line, events go to this peer for so long.
  std::optional<Nanos> trace;
};

Answer handle_request(std::string_view request, const Peer& peer, const ControlScope& scope);

// For what is refused before it is a request: {"ok":false,...}.
std::string refusal_line(std::string_view error, std::string_view code);

// Lines of a trace.
std::string trace_line(const SwitchRecord& record);
std::string trace_line(const Enforcer::Change& change, FreezeReason reason);
std::string trace_end_line(uint64_t lost);

}  // namespace gpushare
