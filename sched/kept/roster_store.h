// SPDX-License-Identifier: Apache-2.0
// RosterStore: the file of what was set at run time (roster_text.h), for an agent that finds a
// control plane of another layout. Otherwise the control plane is what counts, and the file only
// follows it. FileKeeper (sched/policies/file_keeper.h) writes it, for root alone, beside the
// agent's loop. One thread, the agent's, but for write(); the functions below belong to the program
// itself, before an agent runs.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "shmctl/base/error.h"
#include "shmctl/plane/roster.h"

namespace gpushare {

class RosterStore {
 public:
  static constexpr const char* kContents = "settings made at run time";
  // What was set within it before agent and supervisor were killed may be missing in the file.
  static constexpr std::chrono::milliseconds kLeastPause{500};

  // What the file holds does not matter here.
  static Result<RosterStore> open(const std::string&) { return RosterStore(); }
  // From now on the file is to follow this roster, which outlives the store.
  void follow(const Roster& roster) { roster_ = &roster; }

  // As those of KneeStore. The text is made by write(), since there may be much of it.
  bool take_save_request() const { return roster_ != nullptr && saved_ != roster_->generation(); }
  std::optional<Roster::Copy> take_text();
  void note_failure() { saved_ = 0; }
  static Result<> write(const std::string& path, const Roster::Copy& roster);

 private:
  const Roster* roster_ = nullptr;  // nullptr: nothing is kept
  uint64_t saved_ = 0;              // the generation that the file has, as far as this knows
};

// Puts what the file says into `roster`, which is empty. Returns false if there is no such file.
// What is not understood is logged, each thing once, and the file then kept as PATH.bad. Errors,
// with the roster still empty and the file kept in the same way: it is no such file;
// operation_not_permitted: somebody else may have written it.
Result<bool> take_kept_roster(const std::string& path, Roster& roster);
// Removes the file. It is no error when there is none.
Result<> forget_kept_roster(const std::string& path);

}  // namespace gpushare
