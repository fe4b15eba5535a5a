// SPDX-License-Identifier: Apache-2.0
// gpushared: the program of the agent and of its supervisor: takes the command line, and runs what
// it asks for. Exit codes: 0 all is well, 1 failed, 2 wrong usage or configuration.
// sched/man/gpushared.8 is its manual.
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kmod/uapi/gpushare.h"
#include "sched/daemon/agent.h"
#include "sched/daemon/backend.h"
#include "sched/daemon/instance_lock.h"
#include "sched/daemon/lifeline.h"
#include "sched/daemon/supervisor.h"
#include "sched/module/kernel_module.h"
#include "sched/policies/policies.h"
#include "sched/step/recovery.h"
#include "sched/tenants/config.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/base/log.h"
#include "shmctl/base/version.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr int kOk = 0, kFailed = 1, kUsage = 2;
constexpr const char* kDefaultSimulation = "/run/gpushare/sim.sock";
// How long --recover waits for an agent that is just stopping.
constexpr Nanos kForAStoppingAgent = 3s;

// Where the kernel module is; tests set these variables.
constexpr const char* kDeviceVariable = "GPUSHARE_DEVICE";
constexpr const char* kSysfsVariable = "GPUSHARE_SYSFS";

struct CommandLine {
  int lifeline_fd = -1;  // of the supervisor's lifeline; -1: none
  AgentOptions agent;
  bool is_foreground = false, must_recover = false, must_check = false, must_list = false;
};

int fail(const Error& error) {
  log_error("{}", error.message());
  return error.code == std::errc::invalid_argument ? kUsage : kFailed;
}

int check_config(const std::string& path) {
  const std::vector<PolicyEntry> policies = all_policies();
  const auto loaded = load_config(path, policies);
  if (loaded) {
    fmt::print("{}: correct, {} tenants\n", path, loaded->tenants.size());
    return kOk;
  }
  for (const ConfigError& error : loaded.error()) fmt::print(stderr, "{}\n", error.message());
  return kUsage;
}

int recover_all(const AgentOptions& options) {
  auto plane = ControlPlane::open_existing(options.region);
  if (!plane && plane.error().code == std::errc::no_such_file_or_directory) {
    fmt::print("nothing to recover: there is no control plane {}\n", options.region);
    return kOk;
  }
  if (!plane) return fail(plane.error());
  const auto lock = lock_instance(options.region, kForAStoppingAgent);
  if (!lock) return fail(lock.error());

  bool is_empty = true;
  for_each_entry(plane->region(), [&](uint32_t, const LedgerRecord&) { is_empty = false; });
  if (is_empty) {
    fmt::print("nothing to recover\n");
    return kOk;
  }
  // Only a process that is registered with the kernel module may thaw, and it is registered for as
  // long as it holds the device.
  std::unique_ptr<kmod::Device> module;
  if (!options.module.device.empty()) {
    auto opened = open_module(options.module.device, kForAStoppingAgent);
    if (opened)
      module = std::move(*opened);
    else if (opened.error().code != std::errc::no_such_file_or_directory)
      log_warning("{}", opened.error().message());
  }
  auto gpu = open_gpu(options.simulation);
  if (!gpu) return fail(gpu.error());
  const SystemProcReader processes;
  const RecoveryReport report = recover(**gpu, plane->region(), processes);
  for (const ProcessId& process : report.thawed) fmt::print("thawed {}\n", process.pid);
  fmt::print("{} thawed, {} slices restored, {} had ended\n", report.thawed.size(),
             report.slices_restored, report.gone);
  for (const std::string& error : report.errors) fmt::print(stderr, "not undone: {}\n", error);
  return report.errors.empty() ? kOk : kFailed;
}

// Under systemd the folder is there (RuntimeDirectory=). A gpushared started by hand makes it.
void make_folder_of(const std::string& path) {
  const std::size_t end = path.rfind('/');
  if (end != std::string::npos && end > 0) ::mkdir(path.substr(0, end).c_str(), 0755);
}

int serve(const CommandLine& line, const std::vector<std::string>& arguments) {
  make_folder_of(line.agent.socket);
  if (line.agent.supervisor_pid != 0) {  // the supervisor holds the lock
    if (line.lifeline_fd >= 0)
      if (const auto held = Lifeline::hold(line.lifeline_fd); !held) return fail(held.error());
    const auto ran = run_agent(line.agent);
    return ran ? kOk : fail(ran.error());
  }
  const auto lock = lock_instance(line.agent.region);
  if (!lock) return fail(lock.error());
  if (line.is_foreground) {
    const auto ran = run_agent(line.agent);
    return ran ? kOk : fail(ran.error());
  }
  return run_supervisor(line.agent, arguments);
}

// With a simulated GPU the kernel module is used only when an option names it.
void use_module(const CLI::App& app, ModulePaths& paths, bool is_simulated) {
  const auto choose = [&](const char* option, const char* fallback, std::string& path) {
    if (app.count(option) == 0) path = is_simulated ? "" : fallback;
  };
  choose("--device-node", GPUSHARE_DEVICE_PATH, paths.device);
  choose("--sysfs", GPUSHARE_SYSFS_PATH, paths.sysfs);
}

void describe(CLI::App& app, CommandLine& line, std::string& simulation, bool& is_simulated) {
  app.description("Shares NVIDIA GPUs among unmodified programs.");
  app.set_version_flag("--version", fmt::format("gpushared {} ({})", kVersion, kCommit));
  app.add_option("--config", line.agent.config, "configuration file")->capture_default_str();
  app.add_option("--socket", line.agent.socket, "control socket")
      ->envname("GPUSHARE_SOCKET")
      ->capture_default_str();
  app.add_option("--shim-socket", line.agent.shim_socket,
                 "where programs with the shim ask for their slot (default: beside the control "
                 "socket)")
      ->envname("GPUSHARE_SHIM_SOCKET");
  app.add_option("--region", line.agent.region, "name of the control plane in shared memory")
      ->envname("GPUSHARE_REGION")
      ->capture_default_str();
  const auto take_simulation = [&](const CLI::results_t& values) {
    is_simulated = true;
    if (!values.empty() && !values.front().empty()) simulation = values.front();
    return true;
  };
  app.add_option("--sim", take_simulation,
                 fmt::format("drive the simulated GPUs behind this socket of gpushare-sim "
                             "(default {}, environment GPUSHARE_SIM)",
                             kDefaultSimulation))
      ->expected(0, 1)
      ->type_name("[SOCKET]");
  app.add_option("--device-node", line.agent.module.device,
                 fmt::format("device of the kernel module (default {}; none with --sim)",
                             GPUSHARE_DEVICE_PATH))
      ->envname(kDeviceVariable);
  app.add_option("--sysfs", line.agent.module.sysfs,
                 fmt::format("the kernel module's files (default {}; none with --sim)",
                             GPUSHARE_SYSFS_PATH))
      ->envname(kSysfsVariable);
  app.add_flag("--foreground,--no-supervisor", line.is_foreground,
               "run the agent alone: nothing thaws when it is killed");
  app.add_flag("--recover", line.must_recover,
               "undo what an agent that was killed has left, and end");
  app.add_flag("--check-config", line.must_check, "read the configuration, and end");
  app.add_flag("--policies", line.must_list,
               "list the policies that [gpu.N] policy can name, with their options, and end");
  app.add_option("--supervisor-pid", line.agent.supervisor_pid)->group("");
  app.add_option("--restarts", line.agent.restarts)->group("");
  app.add_option("--lifeline-fd", line.lifeline_fd)->group("");
  app.add_option("--module-fd", line.agent.module_fd)->group("");
}

int run(int argc, char** argv) {
  ::prctl(PR_SET_NAME, "gpushared");  // the supervisor starts the agent by another name
  CommandLine line;
  std::string simulation = kDefaultSimulation;
  bool is_simulated = false;
  if (const char* socket = std::getenv("GPUSHARE_SIM"); socket != nullptr && *socket != '\0') {
    is_simulated = true;
    simulation = socket;
  }
  CLI::App app;
  describe(app, line, simulation, is_simulated);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  if (is_simulated) line.agent.simulation = simulation;
  if (line.agent.shim_socket.empty())
    line.agent.shim_socket =
        (std::filesystem::path(line.agent.socket).parent_path() / "shim.sock").string();
  use_module(app, line.agent.module, is_simulated);
  if (line.must_list) {
    fmt::print("{}", describe_policies(all_policies()));
    return kOk;
  }
  if (line.must_check) return check_config(line.agent.config);
  if (line.must_recover) return recover_all(line.agent);
  return serve(line, {argv, argv + argc});
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  try {
    return gpushare::run(argc, argv);
  } catch (const std::exception& error) {  // no memory
    std::fprintf(stderr, "gpushared: %s\n", error.what());
    return 1;
  }
}
