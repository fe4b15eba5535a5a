// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "shmctl/base/version.h"
#include "tools/agent/agent_service.h"
#include "tools/doctor/job_checks.h"
#include "tools/doctor/limits.h"
#include "tools/doctor/machine_files.h"
#include "tools/doctor/module_checks.h"
#include "tools/doctor/mps_traps.h"

namespace gpushare {
namespace {

using Severity = Finding::Severity;
using Presence = MachineFiles::Presence;

// Everything below was measured with this branch of the driver; others are observed first.
constexpr int kTestedDriver = 580;
// pidfd_getfd is 5.6, the BPF ring buffer 5.8.
constexpr std::pair kOldestKernel{5, 8};

Finding ok(std::string check, std::string detail) {
  return {std::move(check), Severity::kOk, std::move(detail), ""};
}
Finding warning(std::string check, std::string detail, std::string fix) {
  return {std::move(check), Severity::kWarning, std::move(detail), std::move(fix)};
}
Finding fail(std::string check, std::string detail, std::string fix) {
  return {std::move(check), Severity::kFail, std::move(detail), std::move(fix)};
}

Finding check_kernel(const MachineFiles& files) {
  const auto release = files.text("/proc/sys/kernel/osrelease");
  const auto version = release ? leading_version(*release) : std::nullopt;
  if (!version) return warning("kernel", "its release cannot be read", "mount /proc");
  if (*version < kOldestKernel)
    return fail("kernel", "Linux " + *release + " is older than 5.8",
                "boot a newer kernel; Debian 12 has 6.1");
  return ok("kernel", "Linux " + *release);
}

Finding check_btf(const MachineFiles& files) {
  if (files.has("/sys/kernel/btf/vmlinux")) return ok("kernel BTF", "/sys/kernel/btf/vmlinux");
  return fail("kernel BTF", "/sys/kernel/btf/vmlinux is missing: the probe cannot be loaded",
              "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (the distributions' are)");
}

Finding check_tracepoints(const MachineFiles& files) {
  const Presence event = files.presence("/sys/kernel/tracing/events/syscalls/sys_enter_ioctl");
  if (event == Presence::kPresent) return ok("tracepoints", "sys_enter_ioctl in tracefs");
  if (event == Presence::kHidden)
    return warning("tracepoints", "tracefs may not be read by this user", "run doctor as root");
  if (files.has("/sys/kernel/debug/tracing/events/syscalls/sys_enter_ioctl"))
    return ok("tracepoints", "sys_enter_ioctl in debugfs");
  if (files.has("/sys/kernel/tracing/events"))
    return fail("tracepoints", "tracefs has no system call events",
                "boot a kernel built with CONFIG_FTRACE_SYSCALLS=y");
  return ok("tracepoints", "tracefs is not mounted; the agent mounts one that nobody else sees");
}

Finding check_lockdown(const MachineFiles& files) {
  const auto lockdown = files.text("/sys/kernel/security/lockdown");
  if (lockdown && lockdown->find("[confidentiality]") != std::string::npos)
    return fail("lockdown", "the kernel is locked down: BPF may not read other programs' memory",
                "boot with lockdown=integrity or without lockdown");
  return ok("lockdown", lockdown ? *lockdown : "not in this kernel");
}

Finding check_ptrace(const MachineFiles& files) {
  const auto scope = files.text("/proc/sys/kernel/yama/ptrace_scope");
  if (scope && *scope == "3")
    return fail("ptrace", "ptrace_scope is 3: slices cannot be set through a program's own file",
                "set kernel.yama.ptrace_scope to 2 or less in /etc/sysctl.d and reboot");
  return ok("ptrace", scope ? "kernel.yama.ptrace_scope is " + *scope : "not restricted");
}

// 580 of "580.159.04"
std::optional<int> major_of(std::string_view version) {
  const auto parts = leading_version(version);
  if (!parts) return std::nullopt;
  return parts->first;
}

// "580.159.04" of "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release
// ..."
std::optional<std::string> driver_version(const std::string& text) {
  std::istringstream words(text.substr(0, text.find('\n')));
  for (std::string word; words >> word;)
    if (leading_version(word)) return word;
  return std::nullopt;
}

Finding check_driver(const MachineFiles& files, const DoctorInput& input) {
  const auto text = files.text("/proc/driver/nvidia/version");
  if (!text) {
    if (is_simulated(input)) return ok("NVIDIA driver", "none; the agent drives a simulated GPU");
    return fail("NVIDIA driver", "it is not loaded",
                "install the NVIDIA driver and 'modprobe nvidia', or run 'gpushared --sim'");
  }
  const auto version = driver_version(*text);
  if (!version) return warning("NVIDIA driver", "its version is not understood: " + *text, "");
  if (major_of(*version) != kTestedDriver)
    return warning("NVIDIA driver",
                   fmt::format("{} is loaded, {} is what was tested", *version, kTestedDriver),
                   "see 'observe only' in 'gpushare status', or install driver 580");
  return ok("NVIDIA driver", *version);
}

Finding check_devices(const MachineFiles& files, const DoctorInput& input) {
  if (files.has("/dev/nvidiactl") && files.has("/dev/nvidia0"))
    return ok("device files", "/dev/nvidiactl, /dev/nvidia0");
  if (is_simulated(input)) return ok("device files", "none; the agent drives a simulated GPU");
  return fail("device files", "/dev/nvidiactl or /dev/nvidia0 is missing",
              "nvidia-modprobe -c 0, or run nvidia-smi once as root");
}

// Looks for an MPS that is not the agent's; the agent itself reports on its own.
Finding check_mps(const MachineFiles& files, const DoctorInput& input) {
  if (input.status)
    if (const auto trap = find_mps_trap(files, input.status->snapshot)) return *trap;
  const auto pid = files.process_named("nvidia-cuda-mps");
  if (!pid) return ok("MPS", "not running: programs take turns");
  if (has_spatial_gpu(input))
    return ok("MPS", "running (pid " + *pid + "), as GPUs are shared spatially");
  return warning("MPS",
                 "running (pid " + *pid +
                     "): its clients share one context, so the shares of single clients are not "
                     "measured",
                 "echo quit | nvidia-cuda-mps-control, unless that is wanted");
}

Finding check_cgroup(const MachineFiles& files) {
  if (files.has("/sys/fs/cgroup/cgroup.controllers")) return ok("cgroup v2", "/sys/fs/cgroup");
  // Where both versions are mounted, systemd gives its units the same paths in both.
  for (const char* folder : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"})
    if (files.has(folder))
      return ok("cgroup v2", fmt::format("rules by cgroup match paths below {}", folder));
  return warning("cgroup v2", "/sys/fs/cgroup is not cgroup v2: rules by cgroup match nothing",
                 "boot with systemd.unified_cgroup_hierarchy=1");
}

Finding check_clock(const MachineFiles& files) {
  const auto source =
      files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (!source) return warning("clock", "the clock source cannot be read", "mount /sys");
  if (*source == "tsc" || *source == "kvm-clock" || *source == "arch_sys_counter")
    return ok("clock", *source);
  return warning("clock", *source + ": reading the time is slow and coarse",
                 "boot with clocksource=tsc, if the machine's is stable");
}

Finding check_unit(const MachineFiles& files) {
  for (const char* path :
       {"/etc/systemd/system/gpushared.service", "/usr/local/lib/systemd/system/gpushared.service",
        "/usr/lib/systemd/system/gpushared.service", "/lib/systemd/system/gpushared.service"})
    if (files.has(path)) return ok("systemd unit", path);
  if (!files.has("/run/systemd/system")) return ok("systemd unit", "not needed: no systemd here");
  return warning("systemd unit", "gpushared.service is not installed",
                 "install the package, or 'make install'; then 'systemctl enable --now gpushared'");
}

Finding check_socket(const MachineFiles& files, const DoctorInput& input) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (input.socket.empty())
    return warning("control socket", "--region was given and no --socket", "give both");
  const fs::file_status status = fs::status(files.at(input.socket), code);
  if (status.type() == fs::file_type::not_found)
    return fail("control socket", input.socket + " is missing", how_to_start(input.root));
  if (!fs::exists(status)) {
    // What this user may not see is no failure of the machine.
    const auto found = may_not_ask(input) ? warning : fail;
    return found("control socket", input.socket + ": " + code.message(), "run doctor as root");
  }
  if (!fs::is_socket(status))
    return fail("control socket", input.socket + " is not a socket",
                "rm " + input.socket + "; " + how_to_restart(input.root));
  const auto mode = static_cast<unsigned>(status.permissions() & fs::perms::mask);
  return ok("control socket", fmt::format("{}, mode {:04o}", input.socket, mode));
}

Finding check_region(const DoctorInput& input) {
  if (input.region) return ok("control plane", "mapped read-only");
  const bool may_run = input.agent.has_value() || may_not_ask(input);
  return fail("control plane", input.region.error().message(),
              may_run ? how_to_restart(input.root) : how_to_start(input.root));
}

Finding check_agent(const DoctorInput& input) {
  if (may_not_ask(input)) {
    if (input.status && input.status->health.is_live())
      return ok("agent", fmt::format("pid {}, by the control plane; it answers root and the group "
                                     "gpushare only",
                                     input.status->snapshot.agent.agent_pid));
    return warning("agent", "it answers root and the group gpushare only", "run doctor as root");
  }
  if (!input.agent) return fail("agent", input.agent.error().message(), how_to_start(input.root));
  const Hello& agent = *input.agent;
  if (input.status && !input.status->health.is_live())
    return fail("agent",
                health_text(input.status->snapshot.agent, input.status->health, input.status->taken,
                            input.status->snapshot.ending),
                how_to_restart(input.root));
  const std::string text = fmt::format("gpushared {}, pid {}", agent.version, agent.pid);
  if (agent.version != kVersion || agent.commit != kCommit)
    return warning("agent",
                   fmt::format("{} ({}) is not the build of this gpushare: {} ({})", text,
                               agent.commit, kVersion, kCommit),
                   how_to_restart(input.root));
  return ok("agent", text);
}

Finding check_privilege(const DoctorInput& input) {
  if (input.uid == 0) return ok("privilege", "root");
  if (input.agent && input.agent->is_admin)
    return ok("privilege", fmt::format("user {} may change tenants", input.uid));
  return warning("privilege",
                 fmt::format("user {} may look, and run in the default tenant", input.uid),
                 "usermod -aG gpushare $USER, and log in again");
}

}  // namespace

bool may_not_ask(const DoctorInput& input) {
  return !input.agent && input.agent.error().code == std::errc::permission_denied;
}

bool is_simulated(const DoctorInput& input) {
  return input.status && input.status->health.is_live() &&
         input.status->snapshot.agent.is_simulated != 0;
}

Finding check_jobs(const DoctorInput& input) {
  if (!input.status) return ok("jobs", "not known");
  const PlaneSnapshot& snapshot = input.status->snapshot;
  if (auto rough = find_rough_stop(snapshot)) return *std::move(rough);
  const bool has_jobs = std::ranges::any_of(snapshot.processes, [](const auto& process) {
    return process.record.turn != TurnState::kFree;
  });
  return ok("jobs", has_jobs ? "those that take turns stop between two iterations, as far as they "
                               "have shown any"
                             : "none takes turns");
}

std::vector<Finding> check_machine(const DoctorInput& input) {
  const MachineFiles files(input.root);
  return {check_kernel(files),         check_btf(files),           check_tracepoints(files),
          check_lockdown(files),       check_ptrace(files),        check_driver(files, input),
          check_devices(files, input), check_mps(files, input),    check_cgroup(files),
          check_clock(files),          check_module(files, input), check_unit(files),
          check_socket(files, input),  check_agent(input),         check_region(input),
          check_privilege(input),      check_jobs(input)};
}

}  // namespace gpushare
