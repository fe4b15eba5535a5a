// SPDX-License-Identifier: Apache-2.0
// LengthStore: the file of the jobs that have finished here (`jobs` in gpushare.toml(5)), from
// which their lengths are learnt. It is a trace (sched/orders/trace.h) of the newest
// LengthHistory::kMost jobs, replaced whole, for root alone; the agent owns it and is its only
// writer. Of commands it holds signatures and no words. One thread, but for write().
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "sched/orders/length_history.h"
#include "shmctl/base/error.h"

namespace gpushare {

// The history as a trace, and back. Of a trace that is longer the jobs that came last are taken.
// An error names `file`, the line, and what is allowed.
std::string history_text(const LengthHistory& history);
Result<LengthHistory> parse_history(std::string_view text, std::string_view file);

class LengthStore {
 public:
  static constexpr const char* kContents = "lengths of jobs";
  // What was learnt in that time is lost when the machine stops.
  static constexpr std::chrono::seconds kLeastPause{10};

  // Keeps nothing on disk.
  LengthStore() = default;

  // A file that is missing is an empty store. One that is no such file is logged and set aside, as
  // PATH.bad, and an empty one begins. Error: it can neither be read nor set aside.
  static Result<LengthStore> open(const std::string& path);

  // Stays where it is while the store does.
  LengthHistory& history() { return history_; }

  // As those of KneeStore.
  bool take_save_request() const { return is_changed(); }
  std::optional<std::string> take_text();
  void note_failure() { saved_ = 0; }
  static Result<> write(const std::string& path, const std::string& text);

 private:
  bool is_changed() const { return is_kept_ && saved_ != history_.generation(); }

  LengthHistory history_;
  bool is_kept_ = false;
  uint64_t saved_ = 0;  // the generation that the file has, as far as this object knows
};

}  // namespace gpushare
