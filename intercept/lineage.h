// SPDX-License-Identifier: Apache-2.0
// Lineage: which processes descend from one that the agent follows, however they were started. A
// chain of parents in /proc breaks when a process in it ends or gives its children away (setsid, a
// double fork, CLONE_PARENT); this one is kept at the fork itself. One thread, the agent's.
#pragma once

#include <optional>
#include <set>

#include "shmctl/base/error.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

class Lineage {
 public:
  virtual ~Lineage() = default;
  // From now on all that `founder` starts, and what that starts, is its own; so is what it has
  // started before and is still below it. Error no_such_process when it has ended;
  // argument_list_too_long when too many processes are followed.
  virtual Result<> follow(const ProcessId& founder) = 0;
  // The nearest process in its line that was followed, which may have ended, or be the process
  // itself. nullopt: there is none, or `pid` has ended.
  virtual std::optional<ProcessId> founder_of(pid_t pid) const = 0;
  // The founders of all processes that live; nullopt when that cannot be read.
  virtual std::optional<std::set<ProcessId>> founders() const = 0;
};

}  // namespace gpushare
