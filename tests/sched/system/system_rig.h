// SPDX-License-Identifier: Apache-2.0
// Real processes on the simulated GPU: gpushare-sim, gpushared and CUDA programs, each test in its
// own folder with its own sockets and control plane. Everything ends with the test.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "shmctl/plane/region.h"
#include "shmctl/plane/snapshot.h"
#include "shmctl/program/temp_folder.h"
#include "tests/support/started.h"

namespace gpushare::test {

class SystemRig {
 public:
  explicit SystemRig(const std::string& config, unsigned gpus = 1);
  ~SystemRig();

  void start_simulation();                               // again, after it was ended
  void start_agent(std::vector<std::string> more = {});  // returns when it answers
  std::unique_ptr<Child> start(const std::string& workload, std::vector<std::string> arguments);
  // The same with the shim preloaded.
  std::unique_ptr<Child> start_with_shim(const std::string& workload,
                                         std::vector<std::string> arguments);
  // gpushared with these arguments beside the usual ones, to its end.
  int run_gpushared(std::vector<std::string> arguments);
  void write_config(const std::string& text);
  // One request, one answer; empty when there is no agent.
  std::string ask(const std::string& request) const;

  PlaneSnapshot snapshot() const;
  pid_t agent_pid() const { return static_cast<pid_t>(snapshot().agent.agent_pid); }
  // Its record on a GPU; pid 0 when there is none.
  ProcessRecord record(pid_t pid, uint32_t gpu = 0) const;
  std::size_t frozen_groups() const;  // in the ledger
  std::string output(const std::string& of) const;

  std::unique_ptr<Child> simulation, gpushared;

 private:
  const TempFolder temporary_;

 public:
  const std::string folder, socket, region;

 private:
  std::unique_ptr<Child> start_in(std::vector<std::string> environment, const std::string& workload,
                                  std::vector<std::string> arguments);
  std::vector<std::string> usual(std::vector<std::string> more) const;
  std::string simulation_socket() const { return folder + "/sim.sock"; }

  const unsigned gpus_;
};

}  // namespace gpushare::test
