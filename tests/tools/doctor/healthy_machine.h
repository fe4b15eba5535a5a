// SPDX-License-Identifier: Apache-2.0
// A machine on which everything is as it should be, and what the checks say of it.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

#include "shmctl/base/fd.h"
#include "shmctl/base/version.h"
#include "tests/tools/support/fake_plane.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/limits.h"

namespace gpushare {

using Severity = Finding::Severity;

inline constexpr const char* kDriverVersion =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
    "GCC version:  gcc version 12.2.0\n";

inline Status live_status() {
  return {.snapshot = fake_snapshot({}, Time{}),
          .health = {AgentHealth::State::kLive, {}},
          .taken = Time{}};
}

// On this machine everything is as it should be; each test spoils one thing.
struct Machine {
  Machine() {
    const std::pair<const char*, std::string> files[] = {
        {"proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"},
        {"sys/kernel/btf/vmlinux", ""},
        {"sys/kernel/tracing/events/syscalls/sys_enter_ioctl/id", "1"},
        {"sys/kernel/security/lockdown", "[none] integrity confidentiality\n"},
        {"proc/sys/kernel/yama/ptrace_scope", "1\n"},
        {"proc/driver/nvidia/version", kDriverVersion},
        {"dev/nvidiactl", ""},
        {"dev/nvidia0", ""},
        {"proc/1/comm", "systemd\n"},
        {"sys/fs/cgroup/cgroup.controllers", "cpu\n"},
        {"sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"},
        {"sys/kernel/gpushare/version", std::string(kVersion) + "\n"},
        {"sys/kernel/gpushare/driver", "hooked nvidia:nvidia_unlocked_ioctl\n"},
        {"sys/kernel/gpushare/agent", "9\n"},
        {"dev/gpushare", ""},
        {"usr/lib/systemd/system/gpushared.service", ""},
        {"run/systemd/system/x", ""},
        {"run/gpushare/x", ""}};
    for (const auto& [name, text] : files) tree.write(name, text);
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

inline Finding finding(const DoctorInput& input, const std::string& check) {
  for (const Finding& found : check_machine(input))
    if (found.check == check) return found;
  ADD_FAILURE() << "no check " << check;
  return {};
}

inline LimitFinding limit(const DoctorInput& input, const std::string& name) {
  for (const LimitFinding& found : check_limits(input))
    if (found.limit == name) return found;
  ADD_FAILURE() << "no limit " << name;
  return {};
}

}  // namespace gpushare
