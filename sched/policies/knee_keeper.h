// SPDX-License-Identifier: Apache-2.0
// KneeKeeper: the file of what the policy `slo` finds of programs. Policies do no I/O: they use the
// store, and the agent calls save() after each step. One thread, the agent's; save() blocks for as
// long as the disk does, once for each knee that is found.
#pragma once

#include <string>

#include "sched/slo/knees/store.h"

namespace gpushare {

class KneeKeeper {
 public:
  // Empty: nowhere. A file that cannot be read is logged, and nothing is kept: without knees every
  // program is learnt anew, which is no reason to do less.
  void open(const std::string& path);
  // If anything was found since. The first failure of a row is logged.
  void save();

  // Stays where it is, also over open().
  KneeStore* store() { return &store_; }

 private:
  std::string path_;
  KneeStore store_;
  bool has_failed_ = false;
};

}  // namespace gpushare
