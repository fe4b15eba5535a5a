// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/checks.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

#include "shmctl/base/fd.h"
#include "shmctl/base/version.h"
#include "tests/tools/support/fake_plane.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/doctor/limits.h"

namespace gpushare {
namespace {

using Severity = Finding::Severity;

constexpr const char* kDriverVersion =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
    "GCC version:  gcc version 12.2.0\n";

Status live_status() {
  return {.snapshot = fake_snapshot({}, Time{}),
          .health = {AgentHealth::State::kLive, {}},
          .taken = Time{}};
}

// On this machine everything is as it should be; each test spoils one thing.
struct Machine {
  Machine() {
    tree.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    tree.write("sys/kernel/btf/vmlinux", "");
    tree.write("sys/kernel/tracing/events/syscalls/sys_enter_ioctl/id", "1");
    tree.write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    tree.write("proc/sys/kernel/yama/ptrace_scope", "1\n");
    tree.write("proc/driver/nvidia/version", kDriverVersion);
    tree.write("dev/nvidiactl", "");
    tree.write("dev/nvidia0", "");
    tree.write("proc/1/comm", "systemd\n");
    tree.write("sys/fs/cgroup/cgroup.controllers", "cpu\n");
    tree.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    tree.write("sys/kernel/gpushare/version", std::string(kVersion) + "\n");
    tree.write("sys/kernel/gpushare/driver", "hooked nvidia:nvidia_unlocked_ioctl\n");
    tree.write("sys/kernel/gpushare/agent", "9\n");
    tree.write("dev/gpushare", "");
    tree.write("usr/lib/systemd/system/gpushared.service", "");
    tree.write("run/systemd/system/x", "");
    tree.write("run/gpushare/x", "");
    listener.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, tree.at("run/gpushare/agent.sock").c_str(),
                 sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  DoctorInput input() const {
    return {.root = tree.path(),
            .uid = 0,
            .socket = "/run/gpushare/agent.sock",
            .agent = Hello{.version = kVersion, .commit = kCommit, .pid = 9},
            .status = live_status(),
            .region = {}};
  }
  void remove(const char* name) const { std::filesystem::remove_all(tree.path() / name); }

  TempDir tree;
  Fd listener;
};

Finding finding(const DoctorInput& input, const std::string& check) {
  for (const Finding& found : check_machine(input))
    if (found.check == check) return found;
  ADD_FAILURE() << "no check " << check;
  return {};
}

LimitFinding limit(const DoctorInput& input, const std::string& name) {
  for (const LimitFinding& found : check_limits(input))
    if (found.limit == name) return found;
  ADD_FAILURE() << "no limit " << name;
  return {};
}

TEST(Doctor, AHealthyMachineHasNothingToFix) {
  const Machine machine;
  for (const Finding& found : check_machine(machine.input())) {
    EXPECT_EQ(found.severity, Severity::kOk) << found.check << ": " << found.detail;
    EXPECT_EQ(found.fix, "") << found.check;
    EXPECT_NE(found.detail, "") << found.check;
  }
}

struct Spoilt {
  const char* check;
  const char* removed;  // or nullptr
  const char* written;  // file, or nullptr
  const char* text;
  Severity severity;
  const char* says;
};

TEST(Doctor, EachThingThatIsMissingIsFoundAndHasAFix) {
  const Spoilt table[] = {
      {"kernel", nullptr, "proc/sys/kernel/osrelease", "5.4.0-1\n", Severity::kFail,
       "older than 5.8"},
      {"kernel", "proc/sys/kernel/osrelease", nullptr, nullptr, Severity::kWarning,
       "cannot be read"},
      {"kernel BTF", "sys/kernel/btf", nullptr, nullptr, Severity::kFail, "vmlinux is missing"},
      {"tracepoints", "sys/kernel/tracing/events/syscalls", nullptr, nullptr, Severity::kFail,
       "no system call events"},
      {"lockdown", nullptr, "sys/kernel/security/lockdown", "none integrity [confidentiality]\n",
       Severity::kFail, "locked down"},
      {"ptrace", nullptr, "proc/sys/kernel/yama/ptrace_scope", "3\n", Severity::kFail, "is 3"},
      {"NVIDIA driver", "proc/driver", nullptr, nullptr, Severity::kFail, "not loaded"},
      {"NVIDIA driver", nullptr, "proc/driver/nvidia/version",
       "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  x\n", Severity::kWarning,
       "570.86.10 is loaded"},
      {"device files", "dev/nvidia0", nullptr, nullptr, Severity::kFail, "missing"},
      {"MPS", nullptr, "proc/77/comm", "nvidia-cuda-mps\n", Severity::kWarning, "pid 77"},
      {"cgroup v2", "sys/fs/cgroup/cgroup.controllers", nullptr, nullptr, Severity::kWarning,
       "not cgroup v2"},
      {"clock", nullptr, "sys/devices/system/clocksource/clocksource0/current_clocksource",
       "hpet\n", Severity::kWarning, "hpet"},
      {"kernel module", "sys/kernel/gpushare", nullptr, nullptr, Severity::kWarning, "not loaded"},
      {"kernel module", nullptr, "sys/kernel/gpushare/version", "9.9\n", Severity::kWarning,
       "gpushare.ko 9.9 is not of this gpushare"},
      {"kernel module", nullptr, "sys/kernel/gpushare/driver",
       "observing only: the driver's ioctl was not found (-2)\n", Severity::kWarning,
       "the driver's ioctl was not found"},
      {"kernel module", nullptr, "sys/kernel/gpushare/driver",
       "observing only: another module diverts the driver's ioctl (-16)\n", Severity::kWarning,
       "another module diverts"},
      {"kernel module", nullptr, "sys/kernel/gpushare/driver",
       "observing only: kernel.ftrace_enabled is 0 (-95)\n", Severity::kWarning,
       "memory_max is not enforced"},
      {"kernel module", nullptr, "sys/kernel/gpushare/driver",
       "observing only: calls enter RM unseen, so kprobes were disarmed (-1)\n", Severity::kWarning,
       "memory_max is not enforced"},
      {"kernel module", "dev/gpushare", nullptr, nullptr, Severity::kWarning,
       "/dev/gpushare is missing"},
      {"kernel module", nullptr, "sys/kernel/gpushare/agent", "77\n", Severity::kWarning,
       "process 77 is registered with it, not gpushared, 9"},
      {"kernel module", nullptr, "sys/kernel/gpushare/driver", "waiting for driver\n",
       Severity::kWarning, "waiting for driver"},
      {"kernel module", nullptr, "sys/kernel/gpushare/driver", "drained\n", Severity::kWarning,
       "memory_max is not enforced"},
      {"kernel module", nullptr, "sys/kernel/gpushare/agent", "none\n", Severity::kWarning,
       "runs, but is not registered"},
      {"systemd unit", "usr/lib/systemd", nullptr, nullptr, Severity::kWarning, "not installed"},
      {"control socket", "run/gpushare/agent.sock", nullptr, nullptr, Severity::kFail,
       "is missing"},
  };
  for (const Spoilt& row : table) {
    const Machine machine;
    if (row.removed != nullptr) machine.remove(row.removed);
    if (row.written != nullptr) machine.tree.write(row.written, row.text);
    const Finding found = finding(machine.input(), row.check);
    EXPECT_EQ(found.severity, row.severity) << row.check << ": " << found.detail;
    EXPECT_NE(found.detail.find(row.says), std::string::npos) << found.detail;
    EXPECT_NE(found.fix, "") << row.check;
  }
}

// The module is installed but not loaded, and each row says why.
struct Unloaded {
  const char* description;
  std::vector<std::pair<const char*, const char*>> written;  // file and text
  const char* says;
  const char* fix;
};

TEST(Doctor, AModuleThatIsNotLoadedIsSaidWithItsReason) {
  constexpr const char* kDep = "lib/modules/6.1.0-18-amd64/modules.dep";
  constexpr const char* kModule = "lib/modules/6.1.0-18-amd64/updates/dkms/gpushare.ko";
  constexpr const char* kInstalled =
      "kernel/fs/fuse/fuse.ko:\nupdates/dkms/gpushare.ko:\nupdates/dkms/nvidia.ko:\n";
  constexpr const char* kSigned = "ELF...~Module signature appended~\n";
  constexpr const char* kLockdown = "sys/kernel/security/lockdown";
  constexpr const char* kLocked = "none [integrity] confidentiality\n";
  const Unloaded table[] = {
      {"nobody did", {{kDep, kInstalled}}, "nobody has loaded it", "modprobe gpushare"},
      {"by modprobe.d",
       {{kDep, kInstalled}, {"etc/modprobe.d/local.conf", "# mine\nblacklist gpushare\n"}},
       "/etc/modprobe.d/local.conf forbids it",
       "take gpushare out there"},
      {"by an install line",
       {{kDep, kInstalled},
        {"usr/lib/modprobe.d/x.conf", "install  gpushare /bin/false\n"},
        {"run/modprobe.d/y.conf", "install gpushare /bin/false\n"}},
       "/run/modprobe.d/y.conf forbids it",
       "take gpushare out there"},
      {"by the kernel's command line",
       {{kDep, kInstalled}, {"proc/cmdline", "quiet module_blacklist=nouveau,gpushare ro\n"}},
       "the kernel's command line forbids it",
       "take gpushare out there"},
      {"a softdep is no prohibition",
       {{kDep, kInstalled}, {"etc/modprobe.d/gpushare.conf", "softdep nvidia pre: gpushare\n"}},
       "nobody has loaded it",
       "modprobe gpushare"},
      {"never built",
       {{kDep, "updates/dkms/nvidia.ko:\n"}},
       "none is installed for Linux 6.1.0-18-amd64",
       "gpushare-dkms"},
      {"DKMS did not build it",
       {{kDep, "updates/dkms/nvidia.ko:\n"}, {"var/lib/dkms/gpushare/0.1.0/source", ""}},
       "DKMS has built none for Linux 6.1.0-18-amd64",
       "apt-get install linux-headers-6.1.0-18-amd64; dkms install -k 6.1.0-18-amd64 gpushare/"},
      {"an old kernel",
       {{"proc/sys/kernel/osrelease", "5.10.0-30-amd64\n"}},
       "it was built for Linux 6.1 to 6.17 only",
       "make kmod KDIR=/lib/modules/5.10.0-30-amd64/build"},
      {"a new kernel",
       {{"proc/sys/kernel/osrelease", "6.18.2-amd64\n"}},
       "it was built for Linux 6.1 to 6.17 only",
       "make kmod KDIR=/lib/modules/6.18.2-amd64/build"},
      {"not signed",
       {{kDep, kInstalled}, {kModule, "ELF"}, {kLockdown, kLocked}},
       "wants signed modules (secure boot), and it is not signed",
       "dkms install --force -k 6.1.0-18-amd64"},
      {"signed by a key that is not enrolled",
       {{kDep, kInstalled}, {kModule, kSigned}, {kLockdown, kLocked}},
       "the key is perhaps not enrolled",
       "mokutil --import"},
      {"the same, by the kernel's own option",
       {{kDep, kInstalled},
        {kModule, kSigned},
        {"sys/module/module/parameters/sig_enforce", "Y\n"}},
       "the key is perhaps not enrolled",
       "mokutil --import"},
      {"compressed, so that a signature cannot be seen",
       {{kDep, "updates/dkms/gpushare.ko.xz:\n"}, {kLockdown, kLocked}},
       "the key is perhaps not enrolled",
       "mokutil --import"},
  };
  for (const Unloaded& row : table) {
    const Machine machine;
    machine.remove("sys/kernel/gpushare");
    for (const auto& [file, text] : row.written) machine.tree.write(file, text);
    const Finding found = finding(machine.input(), "kernel module");
    EXPECT_EQ(found.severity, Severity::kWarning) << row.description;
    EXPECT_NE(found.detail.find(row.says), std::string::npos)
        << row.description << ": " << found.detail;
    EXPECT_NE(found.fix.find(row.fix), std::string::npos) << row.description << ": " << found.fix;
  }
}

TEST(Doctor, AHookThatAnotherModuleHasIsNamedInTheFix) {
  const Machine machine;
  machine.tree.write("sys/kernel/gpushare/driver",
                     "observing only: another module diverts the driver's ioctl (-16)\n");
  EXPECT_NE(finding(machine.input(), "kernel module").fix.find("enabled_functions"),
            std::string::npos);
}

TEST(Doctor, NeedsNoMountedTracefs) {
  const Machine machine;
  machine.remove("sys/kernel/tracing");
  const Finding found = finding(machine.input(), "tracepoints");
  EXPECT_EQ(found.severity, Severity::kOk) << found.detail;
  EXPECT_NE(found.detail.find("not mounted"), std::string::npos) << found.detail;
}

TEST(Doctor, AnEmptyMachineIsNoProblemToLookAt) {
  const TempDir empty;
  DoctorInput input = Machine().input();
  input.root = empty.path();
  for (const Finding& found : check_machine(input))
    EXPECT_TRUE(found.severity == Severity::kOk || !found.fix.empty()) << found.check;
}

TEST(Doctor, ASimulatedGpuNeedsNoDriver) {
  const Machine machine;
  machine.remove("proc/driver");
  machine.remove("dev");
  DoctorInput input = machine.input();
  input.status->snapshot.agent.is_simulated = 1;
  EXPECT_EQ(finding(input, "NVIDIA driver").severity, Severity::kOk);
  EXPECT_EQ(finding(input, "device files").severity, Severity::kOk);
}

TEST(Doctor, TheModuleMayWaitForADriverThatIsNotThere) {
  const Machine machine;
  machine.remove("proc/driver");
  machine.tree.write("sys/kernel/gpushare/driver", "waiting for driver\n");
  EXPECT_EQ(finding(machine.input(), "kernel module").severity, Severity::kOk);
}

TEST(Doctor, AModuleWithoutAnAgentIsFound) {
  const Machine machine;
  machine.tree.write("sys/kernel/gpushare/agent", "none\n");
  DoctorInput input = machine.input();
  input.agent = make_error(std::errc::connection_refused, "connect to the agent", "none runs");
  const Finding found = finding(input, "kernel module");
  EXPECT_EQ(found.severity, Severity::kWarning);
  EXPECT_EQ(found.fix, "systemctl start gpushared");
}

TEST(DoctorLimits, MemoryIsNotBoundByAModuleThatIsNotHooked) {
  const Machine machine;
  EXPECT_TRUE(limit(machine.input(), "memory_max").is_binding);
  machine.tree.write("sys/kernel/gpushare/driver", "drained\n");
  EXPECT_FALSE(limit(machine.input(), "memory_max").is_binding);
  EXPECT_EQ(limit(machine.input(), "memory_max").why, "gpushare.ko is drained");
}

TEST(Doctor, AFileInPlaceOfTheSocketIsFound) {
  const Machine machine;
  machine.remove("run/gpushare/agent.sock");
  machine.tree.write("run/gpushare/agent.sock", "");
  EXPECT_EQ(finding(machine.input(), "control socket").severity, Severity::kFail);
}

TEST(Doctor, TheAgentMustAnswerBeFreshAndBeOfTheSameBuild) {
  const Machine machine;
  DoctorInput input = machine.input();
  input.agent->commit = "another";
  EXPECT_EQ(finding(input, "agent").severity, Severity::kWarning);
  input = machine.input();
  input.status->health = {AgentHealth::State::kStale, std::chrono::seconds(9)};
  EXPECT_EQ(finding(input, "agent").severity, Severity::kFail);
  input.agent = make_error(std::errc::connection_refused, "connect to the agent", "none runs");
  EXPECT_NE(finding(input, "agent").detail.find("none runs"), std::string::npos);
  input.region = make_error(std::errc::permission_denied, "open control plane");
  EXPECT_EQ(finding(input, "control plane").severity, Severity::kFail);
}

TEST(Doctor, WhomTheAgentDoesNotAnswerSeesThatItRuns) {
  const Machine machine;
  DoctorInput input = machine.input();
  input.uid = 1000;
  input.agent = make_error(std::errc::permission_denied, "connect to the agent", "for root");
  const Finding running = finding(input, "agent");
  EXPECT_EQ(running.severity, Severity::kOk) << running.detail;
  EXPECT_NE(running.detail.find("pid 1, by the control plane"), std::string::npos);
  input.status = make_error(std::errc::permission_denied, "open control plane");
  EXPECT_EQ(finding(input, "agent").severity, Severity::kWarning);
  EXPECT_EQ(finding(input, "agent").fix, "run doctor as root");
}

TEST(Doctor, NamesNoSystemctlWhereThereIsNoSystemd) {
  const Machine machine;
  machine.remove("run/systemd");
  machine.remove("run/gpushare/agent.sock");
  machine.tree.write("sys/kernel/gpushare/agent", "none\n");
  DoctorInput input = machine.input();
  input.region = make_error(std::errc::permission_denied, "open control plane");
  input.agent = make_error(std::errc::connection_refused, "connect to the agent", "none runs");
  for (const Finding& found : check_machine(input))
    EXPECT_EQ(found.fix.find("systemctl"), std::string::npos) << found.check << ": " << found.fix;
}

TEST(Doctor, OnHybridCgroupsRulesMatch) {
  const Machine machine;
  machine.remove("sys/fs/cgroup");
  machine.tree.write("sys/fs/cgroup/systemd/tasks", "");
  EXPECT_EQ(finding(machine.input(), "cgroup v2").severity, Severity::kOk);
  machine.tree.write("sys/fs/cgroup/unified/cgroup.procs", "");
  EXPECT_EQ(finding(machine.input(), "cgroup v2").detail,
            "rules by cgroup match paths below /sys/fs/cgroup/unified");
}

TEST(Doctor, AnOrdinaryUserIsToldWhatHeMayDo) {
  const Machine machine;
  DoctorInput input = machine.input();
  input.uid = 1000;
  EXPECT_EQ(finding(input, "privilege").severity, Severity::kWarning);
  input.agent->is_admin = true;
  EXPECT_EQ(finding(input, "privilege").severity, Severity::kOk);
}

TEST(DoctorLimits, BindWhereTheAgentCanEnforceThem) {
  const Machine machine;
  const DoctorInput input = machine.input();
  for (const char* name : {"weight", "max", "priority", "memory_max"})
    EXPECT_TRUE(limit(input, name).is_binding) << name;
  EXPECT_EQ(limit(input, "weight").used_by, std::vector<std::string>{"research"});
  EXPECT_EQ(limit(input, "max").used_by, std::vector<std::string>{"capped"});
  EXPECT_EQ(limit(input, "priority").used_by, std::vector<std::string>{"batch"});
}

TEST(DoctorLimits, SayHonestlyWhatDoesNotBind) {
  const Machine machine;
  machine.remove("sys/kernel/gpushare");
  DoctorInput input = machine.input();
  input.status->snapshot.tenants[0].record.memory_max_bytes = 1 << 30;
  input.status->snapshot.tenants[1].record.sm_percent = 50;
  EXPECT_FALSE(limit(input, "memory_max").is_binding);
  EXPECT_NE(limit(input, "memory_max").why.find("not loaded"), std::string::npos);
  EXPECT_EQ(limit(input, "memory_max").used_by, std::vector<std::string>{"default"});
  EXPECT_FALSE(limit(input, "sm_percent").is_binding);
  EXPECT_EQ(limit(input, "sm_percent").used_by, std::vector<std::string>{"research"});
}

TEST(DoctorLimits, WhatAUserSetsWithoutEffectIsNamed) {
  const Machine machine;
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"memory_max", "100M"}, {"sm_percent", "50"}, {"weight", "300"}, {"slo_us", "0"}};
  const auto lines = [&](const DoctorInput& input, bool has_shim) {
    return without_effect(settings, check_limits(input), has_shim);
  };
  DoctorInput input = machine.input();
  EXPECT_EQ(lines(input, true).size(), 1u) << "the GPU is shared by time";
  EXPECT_NE(lines(input, true).front().find("sm_percent=50 does not bind: no GPU is shared so"),
            std::string::npos);
  input.status->snapshot.gpus.emplace_back().sharing = GpuSharing::kSpatial;
  EXPECT_EQ(lines(input, true), std::vector<std::string>());
  EXPECT_EQ(lines(input, false),
            std::vector<std::string>{"sm_percent=50 does not bind: the program is started without "
                                     "the shim (gpushare run --shim)"});
  machine.remove("sys/kernel/gpushare");
  EXPECT_EQ(lines(input, true),
            std::vector<std::string>{"memory_max=100M does not bind: gpushare.ko is not loaded"});
}

TEST(DoctorLimits, TargetsSayHowManyShareTheirSms) {
  const Machine machine;
  DoctorInput input = machine.input();
  EXPECT_FALSE(limit(input, "slo_us").is_binding);
  input.status->snapshot.gpus.emplace_back().sharing = GpuSharing::kSpatial;
  TenantGpuUse& use = input.status->snapshot.tenants[0].record.gpu[0];
  use.slo_state = SloState::kMeets;
  use.sms_sharers = 1;
  EXPECT_TRUE(limit(input, "slo_us").is_binding);
  EXPECT_EQ(limit(input, "slo_us").why.find("tenants share"), std::string::npos);
  use.sms_sharers = 3;
  input.status->snapshot.tenants[1].record.gpu[0] = use;
  EXPECT_NE(limit(input, "slo_us").why.find("2 tenants share"), std::string::npos)
      << limit(input, "slo_us").why;
}

TEST(Doctor, MpsIsInOrderWhereGpusAreSharedSpatially) {
  const Machine machine;
  machine.tree.write("proc/77/comm", "nvidia-cuda-mps\n");
  DoctorInput input = machine.input();
  EXPECT_EQ(finding(input, "MPS").severity, Severity::kWarning);
  input.status->snapshot.gpus.emplace_back().sharing = GpuSharing::kSpatial;
  EXPECT_EQ(finding(input, "MPS").severity, Severity::kOk);
  EXPECT_NE(finding(input, "MPS").detail.find("pid 77"), std::string::npos);
}

TEST(DoctorLimits, ObserveOnlyAndNoAgentBindNothing) {
  const Machine machine;
  DoctorInput input = machine.input();
  AgentRecord& agent = input.status->snapshot.agent;
  agent.can_freeze = agent.can_set_slice = 0;
  std::strcpy(agent.observe_only_reason, "driver 999 is unknown");
  EXPECT_EQ(limit(input, "max").why, "driver 999 is unknown");
  input.status->health.state = AgentHealth::State::kGone;
  EXPECT_EQ(limit(input, "weight").why, "no agent runs");
  input.status = make_error(std::errc::connection_refused, "connect");
  for (const char* name : {"weight", "max", "priority"})
    EXPECT_FALSE(limit(input, name).is_binding) << name;
}

}  // namespace
}  // namespace gpushare
