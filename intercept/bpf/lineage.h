// SPDX-License-Identifier: Apache-2.0
// BpfLineage: keeps lines of descent in the kernel, by eBPF programs at fork and exit
// (lineage.bpf.c). It holds for every process that this pid namespace can see, wants no driver and
// no GPU, and is gone with the object. One thread.
#pragma once

#include <memory>

#include "intercept/lineage.h"

struct lineage_skel;

namespace gpushare {

class BpfLineage final : public Lineage {
 public:
  // Up to so many processes are followed at once; children beyond them are not.
  static constexpr uint32_t kMostProcesses = 1 << 16;

  // Loads the programs and attaches them. Errors as those of Probe::load().
  static Result<std::unique_ptr<BpfLineage>> start();

  Result<> follow(const ProcessId& founder) override;
  std::optional<ProcessId> founder_of(pid_t pid) const override;
  std::optional<std::set<ProcessId>> founders() const override;

 private:
  struct Destroy {
    void operator()(lineage_skel* skeleton) const;
  };
  explicit BpfLineage(lineage_skel* skeleton) : skeleton_(skeleton) {}
  int map() const;
  Result<> enter(pid_t pid, const ProcessId& founder);
  Result<> enter_children(pid_t pid, const ProcessId& founder,
                          const std::optional<ProcessId>& before);

  std::unique_ptr<lineage_skel, Destroy> skeleton_;
};

}  // namespace gpushare
