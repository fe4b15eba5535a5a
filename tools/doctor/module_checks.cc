// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/module_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "shmctl/base/version.h"
#include "tools/agent/agent_service.h"

namespace gpushare {
namespace {

constexpr const char* kCheck = "kernel module";
constexpr const char* kNotFiltering =
    "memory_max is not enforced, and a program may change its own slice";
// kmod/install/dkms.conf.in builds for these.
constexpr const char* kBuiltFor = "6.1 to 6.17 and 7.0";
bool is_built_for(const std::pair<int, int>& version) {
  return (version >= std::pair(6, 1) && version <= std::pair(6, 17)) || version == std::pair(7, 0);
}

Finding warning(const std::string& detail, std::string fix) {
  return {kCheck, Finding::Severity::kWarning, detail, std::move(fix)};
}
Finding ok(std::string detail) { return {kCheck, Finding::Severity::kOk, std::move(detail), ""}; }

Finding not_loaded(const std::string& why, std::string fix) {
  return warning(fmt::format("gpushare.ko is not loaded: {}. Without it {}", why, kNotFiltering),
                 std::move(fix));
}

// "blacklist gpushare", "install gpushare /bin/false": words of a line of modprobe's configuration.
bool forbids(const std::string& line) {
  std::istringstream words(line);
  std::string command, module;
  words >> command >> module;
  return module == "gpushare" && (command == "blacklist" || command == "install");
}

// Returns where loading the module is forbidden; empty if it is not.
std::string forbidden_by(const MachineFiles& files) {
  for (const char* folder : {"/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d",
                             "/lib/modprobe.d", "/usr/lib/modprobe.d"})
    for (const std::string& name : files.names_in(folder)) {
      const std::string path = fmt::format("{}/{}", folder, name);
      for (const char* words : {"blacklist gpushare", "install gpushare"})
        if (const auto line = files.line_with(path, words); line && forbids(*line)) return path;
    }
  std::istringstream options(files.text("/proc/cmdline").value_or(""));
  for (std::string option; options >> option;) {
    const bool is_list =
        option.starts_with("module_blacklist=") || option.starts_with("modprobe.blacklist=");
    std::replace(option.begin(), option.end(), '=', ',');
    if (is_list && (option + ",").find(",gpushare,") != std::string::npos)
      return "the kernel's command line";
  }
  return "";
}

// Returns the path of the module that modprobe would load into this kernel; empty if there is none.
std::string installed_module(const MachineFiles& files, const std::string& release) {
  const std::string folder = "/lib/modules/" + release;
  const auto line = files.line_with(folder + "/modules.dep", "/gpushare.ko");
  return line ? fmt::format("{}/{}", folder, line->substr(0, line->find(':'))) : "";
}

Finding not_installed(const MachineFiles& files, const std::string& release) {
  const auto version = leading_version(release);
  if (version && !is_built_for(*version))
    return not_loaded(
        fmt::format("none is installed for Linux {}, and it was built for Linux {} only", release,
                    kBuiltFor),
        fmt::format("boot one of those, or try: make kmod KDIR=/lib/modules/{}/build", release));
  if (files.has("/var/lib/dkms/gpushare"))
    return not_loaded(fmt::format("DKMS has built none for Linux {}", release),
                      fmt::format("apt-get install linux-headers-{0}; dkms install -k {0} "
                                  "gpushare/{1}",
                                  release, kVersion));
  return not_loaded(fmt::format("none is installed for Linux {}", release),
                    "if you need that: install gpushare-dkms, or 'make dkms-install'");
}

// Returns whether the kernel refuses a module that is not signed by a key that it knows.
bool wants_signatures(const MachineFiles& files) {
  const auto lockdown = files.text("/sys/kernel/security/lockdown");
  return files.text("/sys/module/module/parameters/sig_enforce") == "Y" ||
         (lockdown && lockdown->find("[none]") == std::string::npos);
}

Finding look_why_not_loaded(const MachineFiles& files) {
  if (const std::string where = forbidden_by(files); !where.empty())
    return not_loaded(where + " forbids it",
                      "take gpushare out there, then 'modprobe gpushare', if you need that");
  const std::string release = files.text("/proc/sys/kernel/osrelease").value_or("unknown");
  const std::string module = installed_module(files, release);
  if (module.empty()) return not_installed(files, release);
  if (!wants_signatures(files))
    return not_loaded("nobody has loaded it",
                      "modprobe gpushare; if that fails, 'dmesg | tail' says why");
  if (module.ends_with(".ko") && !files.ends_with(module, "~Module signature appended~\n"))
    return not_loaded("this kernel wants signed modules (secure boot), and it is not signed",
                      fmt::format("dkms install --force -k {} gpushare/{}, which signs it; then "
                                  "see 'Secure boot' in kmod/README.md",
                                  release, kVersion));
  return not_loaded(
      "this kernel wants signed modules (secure boot), and the key is perhaps not enrolled",
      "mokutil --import /var/lib/dkms/mok.pub, and boot; until then 'modprobe gpushare' says 'Key "
      "was "
      "rejected' or 'Operation not permitted'");
}

// Returns what can be done about "observing only: REASON (ERRNO)".
std::string fix_of(const std::string& state) {
  if (state.find("another module") != std::string::npos)
    return "'grep nvidia /sys/kernel/tracing/enabled_functions' shows who has it; without that "
           "one: "
           "echo 1 > /sys/kernel/gpushare/drain; echo 0 > /sys/kernel/gpushare/drain";
  constexpr const char* kAgain =
      "; echo 1 > /sys/kernel/gpushare/drain; echo 0 > /sys/kernel/gpushare/drain";
  if (state.find("ftrace_enabled") != std::string::npos)
    return std::string("sysctl kernel.ftrace_enabled=1") + kAgain;
  if (state.find("kprobes were disarmed") != std::string::npos)
    return std::string("echo 1 > /sys/kernel/debug/kprobes/enabled") + kAgain;
  if (state.find("was not found") != std::string::npos)
    return "the driver is none that this module knows: install one of 535 to 595";
  return "see what 'dmesg | grep gpushare' says of it";
}

Finding look_at_driver_and_agent(const MachineFiles& files, const DoctorInput& input,
                                 const std::string& what, const std::string& state) {
  const auto not_filtering = [&what](std::string fix) {
    return warning(what + ": " + kNotFiltering, std::move(fix));
  };
  if (state == "drained") return not_filtering("echo 0 > /sys/kernel/gpushare/drain");
  const bool is_hooked = state.starts_with("hooked");
  if (!is_hooked && (state != "waiting for driver" || files.has("/proc/driver/nvidia/version")))
    return not_filtering(fix_of(state));
  if (is_simulated(input)) return ok(what + "; the agent drives a simulated GPU");
  if (!files.has("/dev/gpushare"))
    return warning(what + ", but /dev/gpushare is missing: gpushared cannot use it",
                   "udevadm trigger --subsystem-match=misc; without udev: mount /dev as devtmpfs");
  const std::string agent = files.text("/sys/kernel/gpushare/agent").value_or("none");
  if (agent == "none")
    return warning(what + (input.agent ? ": gpushared runs, but is not registered with it"
                                       : ": no agent is registered"),
                   input.agent ? how_to_restart(input.root) : how_to_start(input.root));
  if (input.agent && agent != std::to_string(input.agent->pid))
    return warning(fmt::format("{}: process {} is registered with it, not gpushared, {}", what,
                               agent, input.agent->pid),
                   "end that one; then: " + how_to_restart(input.root));
  return ok(fmt::format("{}, agent {}", what, agent));
}

}  // namespace

std::string module_state(const MachineFiles& files) {
  if (!files.has("/sys/kernel/gpushare")) return "";
  return files.text("/sys/kernel/gpushare/driver").value_or("unreadable");
}

Finding check_module(const MachineFiles& files, const DoctorInput& input) {
  const std::string state = module_state(files);
  if (state.empty()) return look_why_not_loaded(files);
  const std::string version = files.text("/sys/kernel/gpushare/version").value_or("unknown");
  if (version != kVersion)
    return warning(fmt::format("gpushare.ko {} is not of this gpushare, {}", version, kVersion),
                   "install the module of this version; then: /usr/libexec/gpushare-module reload");
  return look_at_driver_and_agent(files, input, fmt::format("gpushare.ko {}, {}", version, state),
                                  state);
}

}  // namespace gpushare
