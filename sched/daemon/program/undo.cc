// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/program/undo.h"

#include <fmt/core.h>

#include <climits>
#include <csignal>
#include <optional>
#include <string>

#include "intercept/process_stop.h"
#include "sched/daemon/gpus/backend.h"
#include "sched/daemon/gpus/predecessors.h"
#include "sched/daemon/instance_lock.h"
#include "sched/daemon/program/commands.h"
#include "sched/daemon/program/former_region.h"
#include "sched/daemon/program/module_hold.h"
#include "sched/daemon/undoing.h"
#include "sched/enforce/recovery.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/base/log.h"
#include "shmctl/base/proc_stat.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

// Undoes what the region's ledger says, as far as the driver answers. Whoever has written it has
// died.
RecoveryReport undo(Region& region, const AgentOptions& options) {
  const Predecessors left(options.left);
  const auto module = hold_module(options);
  const SystemProcReader processes;
  const MonotonicClock clock;
  Undoing undoing(region, processes, clock,
                  {.open = [simulation = options.simulation] { return list_gpus(simulation); },
                   .resume = resume_process,
                   .is_free = [&left](uint32_t gpu) { return left.have_left(gpu); }});
  undoing.begin(Undoing::Writer::kHasEnded);
  undoing.wait();
  return undoing.take_report();
}

// An agent that was stopped (SIGSTOP, a debugger) holds its locks, and the signals that would end
// it wait: after the watchdog has ended its supervisor nobody else undoes what it froze. Returns
// true if there was one.
bool end_stopped_agent(Region& region) {
  const std::optional<AgentRecord> agent = read_record(region.agent);
  if (!agent || agent->agent_pid == 0 || agent->agent_pid > INT_MAX) return false;
  const auto pid = static_cast<pid_t>(agent->agent_pid);
  const auto stat = read_proc_stat(pid);
  const bool is_stopped = stat && (stat->state == 'T' || stat->state == 't');
  if (!is_stopped || !stat->command.starts_with("gpushared")) return false;
  log_warning("the agent, process {}, is stopped and holds the control plane: it is ended", pid);
  return ::kill(pid, SIGKILL) == 0;
}

}  // namespace

void recover_former(const std::string& former, const AgentOptions& options) {
  auto plane = ControlPlane::open_existing(former);
  if (!plane) {
    if (plane.error().code != std::errc::no_such_file_or_directory)
      log_warning("what an earlier version may have left is not undone: {}",
                  plane.error().message());
    return;
  }
  if (!is_ledger_empty(plane->region())) {
    const RecoveryReport report = undo(plane->region(), options);
    for (const std::string& error : report.errors) log_error("{}: {}", former, error);
    log_info("{} thawed that an earlier version had left in {}", report.thawed.size(), former);
    if (!is_ledger_empty(plane->region())) return log_warning("{} is not undone", former);
  }
  for (const std::string& name : {former, former + ".lock"}) (void)ControlPlane::remove(name);
}

ExitCode recover_all(AgentOptions options) {
  auto plane = ControlPlane::open_existing(options.region);
  std::optional<Result<InstanceLock>> lock;
  if (is_unreadable(plane)) {
    lock = lock_instance(options.region, kForAStoppingAgent);
    if (!*lock) return fail(lock->error());
    if (const auto begun = begin_anew(plane.error(), options); !begun) return fail(begun.error());
    plane = ControlPlane::open_existing(options.region);
  }
  if (!plane && plane.error().code == std::errc::no_such_file_or_directory) {
    fmt::print("nothing to recover: there is no control plane {}\n", options.region);
    return kExitOk;
  }
  if (!plane) return fail(plane.error());
  if (!lock) lock = lock_instance(options.region, kForAStoppingAgent);
  if (!*lock && end_stopped_agent(plane->region()))
    lock = lock_instance(options.region, kForAStoppingAgent);
  if (!*lock) return fail(lock->error());
  options.left = (*lock)->left;

  if (is_ledger_empty(plane->region())) {
    fmt::print("nothing to recover\n");
    return kExitOk;
  }
  const RecoveryReport report = undo(plane->region(), options);
  for (const ProcessId& process : report.thawed) fmt::print("thawed {}\n", process.pid);
  fmt::print("{} thawed, {} slices restored, {} had ended\n", report.thawed.size(),
             report.slices_restored, report.gone);
  for (const std::string& error : report.errors) fmt::print(stderr, "not undone: {}\n", error);
  return is_ledger_empty(plane->region()) ? kExitOk : kExitFailure;
}

}  // namespace gpushare
