// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/mps_traps.h"

#include <fmt/format.h>

#include <array>

#include "tools/base/format.h"

namespace gpushare {
namespace {

constexpr const char* kPipes = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kUsualPipes = "/tmp/nvidia-mps";
// What a program may ask of MPS, and what does nothing without it.
constexpr std::array kLimits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_CLIENT_PRIORITY"};

// As the program sees its folders, which in a container are others than this one's. Who may read
// its environment may look there, too.
bool finds_daemon(const MachineFiles& files, int pid, const std::string& folder) {
  const std::string root = fmt::format("/proc/{}/root", pid), control = folder + "/control";
  return files.has(((files.has(root.c_str()) ? root : "") + control).c_str());
}

}  // namespace

std::optional<Finding> find_mps_trap(const MachineFiles& files, const PlaneSnapshot& snapshot) {
  for (const auto& [slot, process] : snapshot.processes) {
    const auto pipes = files.variable(process.pid, kPipes);
    const char* limit = nullptr;
    for (const char* name : kLimits)
      if (limit == nullptr && files.variable(process.pid, name)) limit = name;
    // Without either it does not ask for MPS; an empty folder is how a program says that it wants
    // none.
    if (limit == nullptr && (!pipes || pipes->empty())) continue;
    const std::string folder = pipes && !pipes->empty() ? *pipes : kUsualPipes;
    if (finds_daemon(files, process.pid, folder)) continue;
    return Finding{
        "MPS", Finding::Severity::kWarning,
        fmt::format(
            "{} (pid {}) looks for the control daemon in {}, where none is: it runs "
            "without MPS, and {}",
            printable({process.command, sizeof process.command}), process.pid, printable(folder),
            limit != nullptr ? fmt::format("its {} holds nothing", limit) : "says nothing of it"),
        fmt::format("start it with {} as the daemon has it, or start the daemon", kPipes)};
  }
  if (snapshot.agent.mps_clients >= kMostMpsClients)
    return Finding{"MPS", Finding::Severity::kWarning,
                   fmt::format("{} programs are clients, and a server takes {}: CUDA tells "
                               "the next one that the device is busy",
                               snapshot.agent.mps_clients, kMostMpsClients),
                   "start fewer at once, or let some take turns"};
  return std::nullopt;
}

}  // namespace gpushare
