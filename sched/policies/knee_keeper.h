// SPDX-License-Identifier: Apache-2.0
// KneeKeeper: the file of what the policy `slo` finds of programs. Policies do no I/O: they use the
// store, and the agent calls save() after each step. One thread, the agent's; the file is written
// on another, because a disk may take seconds.
#pragma once

#include <functional>
#include <future>
#include <string>

#include "sched/slo/knees/store.h"
#include "shmctl/base/clock.h"

namespace gpushare {

class KneeKeeper {
 public:
  // How long the end waits for the disk.
  static constexpr Nanos kLastPatience = std::chrono::seconds(2);
  using Write = std::function<Result<>(const std::string& path, const std::string& text)>;

  // `write`: called on any thread, one call at a time.
  explicit KneeKeeper(Write write = KneeStore::write) : write_(std::move(write)) {}
  KneeKeeper(const KneeKeeper&) = delete;
  KneeKeeper& operator=(const KneeKeeper&) = delete;
  // Writes what save() has not, within kLastPatience.
  ~KneeKeeper();

  // Empty: nowhere. A file that cannot be read is logged, and nothing is kept: without knees every
  // program is learnt anew, which is no reason to do less.
  void open(const std::string& path);
  // If anything was found since. What is found while the file is being written is written by a
  // later call. The first failure of a row is logged. Never blocks.
  void save();

  // Stays where it is, also over open().
  KneeStore* store() { return &store_; }

 private:
  void take_answer();

  const Write write_;
  std::string path_;
  KneeStore store_;
  std::future<Result<>> writing_;  // invalid: the file is not being written
  bool is_due_ = false, has_failed_ = false;
};

}  // namespace gpushare
