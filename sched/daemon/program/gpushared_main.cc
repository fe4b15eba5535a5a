// SPDX-License-Identifier: Apache-2.0
// gpushared: the program of the agent and of its supervisor: takes the command line, and runs what
// it asks for. sched/man/gpushared.8 is its manual.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "kmod/uapi/gpushare.h"
#include "sched/daemon/agent.h"
#include "sched/daemon/gpus/predecessors.h"
#include "sched/daemon/instance_lock.h"
#include "sched/daemon/lifeline.h"
#include "sched/daemon/program/commands.h"
#include "sched/daemon/program/former_region.h"
#include "sched/daemon/program/undo.h"
#include "sched/daemon/supervisor.h"
#include "sched/policies/policies.h"
#include "shmctl/base/log.h"
#include "shmctl/program/command_line.h"
#include "shmctl/shim/slot_keeper.h"

namespace gpushare {
namespace {

constexpr const char* kDefaultSimulation = "/run/gpushare/sim.sock";

// A descriptor of every program is needed now and then, and one is kept of some. What cannot be
// raised is no reason not to start.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    log_warning("{}", errno_error("raise the limit of descriptors").error().message());
}

// Under systemd the folder is there (RuntimeDirectory=). A gpushared started by hand makes it.
void make_folder_of(const std::string& path) {
  const std::size_t end = path.rfind('/');
  if (end != std::string::npos && end > 0) ::mkdir(path.substr(0, end).c_str(), 0755);
}

// Says what an ordinary user lacks besides the file that could not be opened.
ExitCode fail_to_start(const Error& error, const AgentOptions& options) {
  const ExitCode code = fail(error);
  const bool is_denied = error.code == std::errc::permission_denied ||
                         error.code == std::errc::no_such_file_or_directory;
  if (::geteuid() == 0 || !is_denied) return code;
  if (options.simulation)
    log_error("an ordinary user names files of his own: --socket, --region and --sim");
  else
    log_error("gpushared needs root to control GPUs; any user may drive simulated ones (--sim)");
  return code;
}

// Who has a lock by now that others had, and those who are left of them.
void take(Result<InstanceLock> lock, std::vector<Fd>& locks, AgentOptions& options) {
  locks.push_back(std::move(lock->file));
  for (const ProcessId& process : lock->left)
    if (std::ranges::find(options.left, process) == options.left.end())
      options.left.push_back(process);
}

ExitCode serve(AgentOptions options, const std::string& former, bool is_foreground, int lifeline_fd,
               const std::vector<std::string>& arguments) {
  raise_descriptor_limit();
  make_folder_of(options.socket);
  const bool is_supervised = options.supervisor_pid != 0;  // the supervisor then holds the locks
  const auto not_started = [&](const Error& error) {
    const ExitCode code = fail(error);
    return is_supervised ? static_cast<ExitCode>(code + kCouldNotStart) : code;
  };
  if (is_supervised && lifeline_fd >= 0)
    if (const auto held = Lifeline::hold(lifeline_fd); !held) return not_started(held.error());
  std::vector<Fd> locks;
  if (!is_supervised) {
    auto plane = lock_instance(options.region);
    if (!plane) return fail_to_start(plane.error(), options);
    auto driver = lock_driver(options.simulation);
    if (!driver) return fail_to_start(driver.error(), options);
    take(std::move(plane), locks, options);
    take(std::move(driver), locks, options);
    for (const ProcessId& process : options.left)
      log_warning("process {} has died, but a thread of it is still in a call of the driver",
                  process.pid);
    if (!former.empty()) recover_former(former, options);
    if (const auto usable = begin_anew_if_unreadable(options); !usable) return fail(usable.error());
    if (!is_foreground) return static_cast<ExitCode>(run_supervisor(options, arguments));
  }
  bool started = false;
  const auto ran = run_agent(options, started);
  if (ran) return kExitOk;
  return started ? fail(ran.error()) : not_started(ran.error());
}

// With a simulated GPU the kernel module is used only when an option names it.
std::string module_path(const Invocation& in, const char* option, bool is_simulated) {
  return in.has(option) || !is_simulated ? in.text(option) : "";
}

// A file descriptor from the supervisor; -1: none.
int fd_of(const Invocation& in, const char* option) {
  return in.has(option) ? static_cast<int>(in.whole(option)) : -1;
}

// Of `--sim` without a socket.
std::string usual_simulation() {
  const char* const named = std::getenv("GPUSHARE_SIM");
  return named == nullptr || *named == '\0' ? kDefaultSimulation : named;
}

ExitCode run(const Invocation& in, const std::vector<std::string>& arguments) {
  ::signal(SIGPIPE, SIG_IGN);         // who reads the log may end at any time
  ::prctl(PR_SET_NAME, "gpushared");  // the supervisor starts the agent by another name
  const bool is_simulated = in.has("sim");
  const std::string simulation = in.text("sim");
  AgentOptions options;
  options.config = in.text("config");
  options.kept_config = in.has("kept-config") || !is_simulated ? in.text("kept-config") : "";
  options.kept_roster = in.has("kept-roster") || !is_simulated ? in.text("kept-roster") : "";
  options.socket = in.text("socket");
  options.shim_socket =
      in.value("shim-socket")
          .value_or(std::filesystem::path(options.socket).parent_path() / "shim.sock");
  options.region = in.text("region");
  if (is_simulated) options.simulation = simulation.empty() ? usual_simulation() : simulation;
  options.module.device = module_path(in, "device-node", is_simulated);
  options.module.sysfs = module_path(in, "sysfs", is_simulated);
  options.supervisor_pid = static_cast<uint32_t>(in.whole("supervisor-pid"));
  options.restarts = in.whole("restarts");
  options.module_fd = fd_of(in, "module-fd");
  if (const int slots = fd_of(in, "slots-fd"); slots >= 0) {
    ::fcntl(slots, F_SETFD, FD_CLOEXEC);
    SlotKeeper::report_to(slots);
  }
  auto left = Predecessors::parse(in.text("left"));
  if (!left) return fail(make_error(std::errc::invalid_argument, "read --left").error());
  options.left = std::move(*left);
  if (in.has("policies")) {
    fmt::print("{}", describe_policies(all_policies()));
    return kExitOk;
  }
  if (in.has("check-config")) return check_config(options.config, in.has("config"));
  if (in.has("recover")) return recover_all(options);
  if (in.has("forget")) return forget_all(options);
  const std::string usual = options.region == kDefaultRegionName ? kFormerRegionName : "";
  const std::string former = in.has("former-region") ? in.text("former-region") : usual;
  return serve(options, former, in.has("foreground") || in.has("no-supervisor"),
               fd_of(in, "lifeline-fd"), arguments);
}

// What the supervisor tells the agent, and tests, is hidden.
Command program(const std::vector<std::string>& arguments) {
  const Range number{.least = 0, .most = INT_MAX, .is_whole = true};
  const AgentOptions usual;
  return {
      .name = "gpushared",
      .summary = "shares NVIDIA GPUs among unmodified programs.",
      .details =
          "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. Without --foreground "
          "a supervisor runs it, and thaws what was frozen should it be killed.",
      .options = {{"config", 0, "FILE", "The configuration", usual.config},
                  {"kept-config", 0, "FILE",
                   "Where the last correct configuration is kept, for a start while the other has "
                   "a mistake; with --sim nowhere",
                   "/var/lib/gpushare/gpushare.toml.kept"},
                  {"kept-roster", 0, "FILE",
                   "Where what was set at run time is kept beside the control plane, for a version "
                   "with another layout of that; with --sim nowhere",
                   "/var/lib/gpushare/roster.json"},
                  {"socket", 0, "PATH", "The control socket", usual.socket, "GPUSHARE_SOCKET"},
                  {"shim-socket", 0, "PATH", "Where programs with the shim ask for their slot",
                   "shim.sock beside the control socket", "GPUSHARE_SHIM_SOCKET"},
                  {"region", 0, "PATH",
                   "The control plane, a file in memory; /NAME stands for /dev/shm/NAME",
                   usual.region, "GPUSHARE_REGION"},
                  {"sim", 0, "[=SOCKET]",
                   fmt::format("Drive the simulated GPUs behind this socket of gpushare-sim, or "
                               "behind {}",
                               kDefaultSimulation),
                   "", "GPUSHARE_SIM"},
                  {"device-node", 0, "PATH",
                   "The device of the kernel module; with --sim there is none",
                   GPUSHARE_DEVICE_PATH, "GPUSHARE_DEVICE"},
                  {"sysfs", 0, "PATH", "The kernel module's files; with --sim there are none",
                   GPUSHARE_SYSFS_PATH, "GPUSHARE_SYSFS"},
                  {"foreground", 0, "", "Run the agent alone: nothing thaws when it is killed"},
                  {"no-supervisor", 0, "", "The same as --foreground"},
                  {"recover", 0, "", "Undo what an agent that was killed has left, and end"},
                  {"forget", 0, "", "Drop what was set at run time while no agent runs, and end"},
                  {"check-config", 0, "", "Read the configuration, and end"},
                  {"policies", 0, "",
                   "List the policies that [gpu.N] policy can name, with their options, and end"},
                  {.name = "supervisor-pid", .value = "PID", .otherwise = "0", .range = number},
                  {.name = "restarts", .value = "N", .otherwise = "0", .range = number},
                  {.name = "former-region", .value = "PATH"},
                  {.name = "left", .value = "PID:START,..."},
                  {.name = "lifeline-fd", .value = "FD", .range = number},
                  {.name = "slots-fd", .value = "FD", .range = number},
                  {.name = "module-fd", .value = "FD", .range = number}},
      .examples = {"gpushared --check-config", "gpushared --sim --socket /tmp/agent.sock"},
      .run = [&arguments](const Invocation& in) { return run(in, arguments); },
  };
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  return gpushare::run_program(gpushare::program(arguments), argc, argv);
}
