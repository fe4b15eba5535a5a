// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/doctor/healthy_machine.h"
#include "tools/doctor/mps_traps.h"

namespace gpushare {
namespace {

TEST(Doctor, AHealthyMachineHasNothingToFix) {
  const Machine machine;
  for (const Finding& found : check_machine(machine.input())) {
    EXPECT_EQ(found.severity, Severity::kOk) << found.check << ": " << found.detail;
    EXPECT_EQ(found.fix, "") << found.check;
    EXPECT_NE(found.detail, "") << found.check;
  }
}

TEST(Doctor, NamesJobsThatAreStoppedInMidKernel) {
  const Machine machine;
  DoctorInput input = machine.input();
  auto& processes = input.status->snapshot.processes;
  ASSERT_FALSE(processes.empty());
  for (auto& entry : processes) entry.record.turn = TurnState::kFree;
  EXPECT_EQ(finding(input, "jobs").detail, "none takes turns");
  ProcessRecord& job = processes.front().record;
  job.turn = TurnState::kRunning;
  struct Row {
    uint64_t service_s, iterations;
    const char* says;  // nullptr: nothing is wrong
  };
  for (const Row& row : {Row{5, 0, nullptr}, Row{60, 0, "no iterations of it are known"},
                         Row{60, 100, nullptr}, Row{60, 30, "takes 2.0 s"}}) {
    job.job_service_ns = row.service_s * 1'000'000'000;
    job.job_iterations = row.iterations;
    const Finding found = finding(input, "jobs");
    EXPECT_EQ(found.severity, row.says == nullptr ? Severity::kOk : Severity::kWarning);
    if (row.says == nullptr) continue;
    EXPECT_NE(found.detail.find(row.says), std::string::npos) << found.detail;
    EXPECT_NE(found.fix, "");
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
       "observing only: another module or BPF program diverts the driver's functions (-16)\n",
       Severity::kWarning, "another module or BPF program diverts"},
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
       "it was built for Linux 6.1 to 6.17 and 7.0 only",
       "make kmod KDIR=/lib/modules/5.10.0-30-amd64/build"},
      {"a new kernel",
       {{"proc/sys/kernel/osrelease", "6.18.2-amd64\n"}},
       "it was built for Linux 6.1 to 6.17 and 7.0 only",
       "make kmod KDIR=/lib/modules/6.18.2-amd64/build"},
      {"a kernel after the gap",
       {{"proc/sys/kernel/osrelease", "7.0.0-44-generic\n"}},
       "none is installed for Linux 7.0.0-44-generic",
       "gpushare-dkms"},
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
  machine.tree.write(
      "sys/kernel/gpushare/driver",
      "observing only: another module or BPF program diverts the driver's functions (-16)\n");
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

struct Replaced {
  const char* description;
  const char* removed;
  const char* written;
  const char* text;
  const char* check;
  Severity severity;
};

TEST(Doctor, WhatIsThereInPlaceOfSomethingElseIsJudged) {
  for (const Replaced& row :
       {Replaced{"the module may wait for a driver that is not there", "proc/driver",
                 "sys/kernel/gpushare/driver", "waiting for driver\n", "kernel module",
                 Severity::kOk},
        Replaced{"a file in place of the socket is found", "run/gpushare/agent.sock",
                 "run/gpushare/agent.sock", "", "control socket", Severity::kFail}}) {
    const Machine machine;
    machine.remove(row.removed);
    machine.tree.write(row.written, row.text);
    EXPECT_EQ(finding(machine.input(), row.check).severity, row.severity) << row.description;
  }
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

// As a socket in a folder that is another user's alone.
TEST(Doctor, ASocketThatThisUserMayNotSeeIsNoFailureOfTheMachine) {
  const Machine machine;
  DoctorInput input = machine.input();
  input.agent = make_error(std::errc::permission_denied, "connect to the agent", "for root");
  input.socket = "/run/gpushare/" + std::string(300, 'x');  // it cannot be looked at
  EXPECT_EQ(finding(input, "control socket").severity, Severity::kWarning);
  input.agent = machine.input().agent;
  EXPECT_EQ(finding(input, "control socket").severity, Severity::kFail);
}

TEST(Doctor, WithoutAnAgentNobodyIsToldToEndOne) {
  const Machine machine;
  machine.remove("run/systemd");
  machine.remove("run/gpushare/agent.sock");
  DoctorInput input = machine.input();
  input.region = make_error(std::errc::no_such_file_or_directory, "open control plane");
  input.agent = make_error(std::errc::connection_refused, "connect to the agent", "none runs");
  EXPECT_EQ(finding(input, "control plane").fix, "run gpushared as root");
  input.agent = machine.input().agent;
  EXPECT_EQ(finding(input, "control plane").fix, "end gpushared, and run it again as root");
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

TEST(Doctor, MpsIsInOrderWhereGpusAreSharedSpatially) {
  const Machine machine;
  machine.tree.write("proc/77/comm", "nvidia-cuda-mps\n");
  DoctorInput input = machine.input();
  EXPECT_EQ(finding(input, "MPS").severity, Severity::kWarning);
  input.status->snapshot.gpus.emplace_back().sharing = GpuSharing::kSpatial;
  EXPECT_EQ(finding(input, "MPS").severity, Severity::kOk);
  EXPECT_NE(finding(input, "MPS").detail.find("pid 77"), std::string::npos);
}

// Without MPS a program that asks for it runs on, and says nothing.
TEST(Doctor, TrapsOfMpsAreNamed) {
  const Machine machine;
  DoctorInput input = machine.input();
  auto& snapshot = input.status->snapshot;
  snapshot.processes.resize(1);
  snapshot.processes[0].record.pid = 4711;
  std::strncpy(snapshot.processes[0].record.command, "train",
               sizeof(snapshot.processes[0].record.command) - 1);
  const auto with = [&](const std::string& environment) {
    machine.tree.write("proc/4711/environ", environment);
    return finding(input, "MPS");
  };
  using namespace std::string_literals;
  EXPECT_EQ(with("HOME=/root\0XCUDA_MPS_PIPE_DIRECTORY=/x\0"s).severity, Severity::kOk);
  EXPECT_EQ(with("CUDA_MPS_PIPE_DIRECTORY=\0"s).severity, Severity::kOk) << "it wants none";
  const Finding lost =
      with("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\0CUDA_MPS_PIPE_DIRECTORY=/mps\0"s);
  EXPECT_EQ(lost.severity, Severity::kWarning);
  EXPECT_TRUE(lost.detail.contains("train (pid 4711) looks for the control daemon in /mps"))
      << lost.detail;
  EXPECT_TRUE(lost.detail.contains("its CUDA_MPS_ACTIVE_THREAD_PERCENTAGE holds nothing"));
  EXPECT_TRUE(with("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\0"s).detail.contains("/tmp/nvidia-mps"));
  machine.tree.write("mps/control", "");
  EXPECT_EQ(with("CUDA_MPS_PIPE_DIRECTORY=/mps\0"s).severity, Severity::kOk);
  snapshot.agent.mps_clients = kMostMpsClients - 1;
  EXPECT_EQ(finding(input, "MPS").severity, Severity::kOk);
  snapshot.agent.mps_clients = kMostMpsClients;
  EXPECT_TRUE(finding(input, "MPS").detail.contains("a server takes 48"));
}

// What a program calls itself, and what it has in its environment, goes to an administrator's
// terminal.
TEST(Doctor, TrapsOfMpsShowNoControlCharactersOfPrograms) {
  const Machine machine;
  DoctorInput input = machine.input();
  auto& processes = input.status->snapshot.processes;
  processes.resize(1);
  processes[0].record.pid = 4711;
  std::memcpy(processes[0].record.command, "a\033[2Jb\x9b\xff-programs", 16);  // no 0 at its end
  machine.tree.write("proc/4711/environ", "CUDA_MPS_PIPE_DIRECTORY=/x\033]0;y\007\n\x80/z\n");
  const Finding trap = finding(input, "MPS");
  ASSERT_EQ(trap.severity, Severity::kWarning);
  for (const char c : trap.detail) EXPECT_TRUE(c >= ' ' && c <= '~') << trap.detail;
  EXPECT_TRUE(trap.detail.contains("(pid 4711) looks for the control daemon in /x")) << trap.detail;
}

// A container has folders of its own: what counts is whether the program finds the daemon.
TEST(Doctor, AProgramInAContainerLooksForMpsInItsOwnFolders) {
  const Machine machine;
  DoctorInput input = machine.input();
  input.status->snapshot.processes.resize(1);
  input.status->snapshot.processes[0].record.pid = 4711;
  using namespace std::string_literals;
  machine.tree.write("proc/4711/environ", "CUDA_MPS_PIPE_DIRECTORY=/mps\0"s);
  machine.tree.write("proc/4711/root/mps/control", "");
  EXPECT_EQ(finding(input, "MPS").severity, Severity::kOk) << finding(input, "MPS").detail;
  machine.tree.write("proc/4711/environ", "CUDA_MPS_PIPE_DIRECTORY=/pipes\0"s);
  machine.tree.write("pipes/control", "");
  EXPECT_EQ(finding(input, "MPS").severity, Severity::kWarning) << "that is not its own";
}

}  // namespace
}  // namespace gpushare
