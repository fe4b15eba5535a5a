// SPDX-License-Identifier: Apache-2.0
// DemoSetup is what the demo and `gpushare sim` run in: a private gpushared with a region, a socket
// and a configuration of its own and, where there is no GPU, a simulated one. Everything that it
// starts or makes is gone when it is closed or destroyed. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shmctl/plane/snapshot.h"
#include "shmctl/program/child.h"
#include "shmctl/program/temp_folder.h"
#include "shmctl/program/wait.h"

namespace gpushare {

// Succeeds when there is an NVIDIA GPU with a driver that answers. `dev` is /dev. The error says
// what is missing.
Result<> find_nvidia_gpu(const std::string& dev);

class DemoSetup {
 public:
  // Blocks until the agent answers. The error names what did not start and the end of its output.
  // On a GPU it also fails when another agent runs, or without root's rights.
  struct Options {
    bool is_simulated = false;
    std::string config{};  // the text of the agent's configuration
    uint32_t gpus = 1;     // simulated ones
  };
  static Result<std::unique_ptr<DemoSetup>> open(Options options, Wait& wait);
  ~DemoSetup();
  DemoSetup(const DemoSetup&) = delete;
  DemoSetup& operator=(const DemoSetup&) = delete;

  // NAME=VALUE, or a NAME that must not be set: with these the tools find this agent, and CUDA
  // programs the simulated GPUs.
  std::vector<std::string> environment() const;

  // Starts `gpushare run --tenant TENANT -- WORKLOAD ARGUMENTS`
  Result<Child> start_workload(std::string_view tenant, std::string_view workload,
                               std::vector<std::string> arguments);
  // Starts `gpushare trace` for `length` into `path`.
  Result<Child> start_trace(Nanos length, const std::string& path);

  // Fails when the agent or the simulated GPU has ended.
  Result<> check();
  // Returns what the agent publishes next. The agent writes its own record more often than the
  // others, so only just after a publication are they as old as `published_ns` says. Blocks for 1 s
  // at most.
  Result<PlaneSnapshot> look() const;

  // Stops the agent, undoes what it may have left (gpushared --recover), stops the simulated GPU,
  // removes the region and the files. The error is the first of these that failed; the rest is done
  // all the same. Requires: the workloads have ended.
  Result<> close();

  // Returns the folder in which `bin/` lies.
  static std::string build_folder();

 private:
  explicit DemoSetup(Options options);
  Result<> start(Wait& wait);
  Result<> start_simulation(Wait& wait);
  Result<> start_agent(Wait& wait);
  Result<Child> launch(const std::string& name, std::vector<std::string> command);
  std::string in_folder(const char* name) const { return folder_->at(name); }

  const Options options_;
  const std::string bin_;
  const std::string region_;
  std::optional<TempFolder> folder_;  // until close()
  std::optional<Child> simulation_, agent_;
  std::optional<ControlPlane> plane_;
};

}  // namespace gpushare
