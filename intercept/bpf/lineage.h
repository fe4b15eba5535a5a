// SPDX-License-Identifier: Apache-2.0
// BpfLineage: keeps lines of descent in the kernel, by eBPF programs at fork and exit
// (lineage.bpf.c). It holds for every process that this pid namespace can see, and wants no driver
// and no GPU. Where it can be pinned in the BPF file system it goes on without the object, so that
// an agent that was killed and the next one know the same lines. One thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "intercept/lineage.h"

struct lineage_skel;

namespace gpushare {

class BpfLineage final : public Lineage {
 public:
  // Up to so many processes are followed at once; children beyond them are not.
  static constexpr uint32_t kMostProcesses = 1 << 16;

  // Loads the programs and attaches them. `folder`: where they are pinned, in the BPF file system;
  // takes over what an earlier object has left there. Where it cannot be made, or is not this
  // user's alone, and when it is empty, nothing is pinned. Errors as those of Probe::load().
  static Result<std::unique_ptr<BpfLineage>> start(const std::string& folder = "");
  // The folder for the agent whose control plane is `region`: "/run/gpushare/region" gives
  // "/sys/fs/bpf/run-gpushare-region". Names there may hold no dots.
  static std::string folder_of(std::string region);
  // Leaves what is pinned while a process of a line lives.
  ~BpfLineage() override;

  Result<> follow(const ProcessId& founder) override;
  std::optional<ProcessId> founder_of(pid_t pid) const override;
  std::optional<std::set<ProcessId>> founders() const override;

 private:
  struct Destroy {
    void operator()(lineage_skel* skeleton) const;
  };
  explicit BpfLineage(std::string folder) : folder_(std::move(folder)) {}
  Result<> load();
  Result<> attach();
  int map() const;
  Result<> enter(pid_t pid, const ProcessId& founder);
  Result<> enter_children(pid_t pid, const ProcessId& founder,
                          const std::optional<ProcessId>& before);

  const std::string folder_;  // empty: nothing is pinned
  std::unique_ptr<lineage_skel, Destroy> skeleton_;
};

}  // namespace gpushare
