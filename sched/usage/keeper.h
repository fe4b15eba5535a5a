// SPDX-License-Identifier: Apache-2.0
// UsageKeeper: the thread that writes the usage history beside the agent's loop. It reads the
// published control plane every kUsageLook, as any tool could, and writes a sample every ten
// seconds. Neither the disk nor the size of the history can keep the loop waiting. What cannot be
// written is logged once, and tried again; GPU time of that while is lost from the history alone.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "shmctl/usage/store.h"

namespace gpushare {

class UsageKeeper {
 public:
  // How long the destructor waits for the disk.
  static constexpr Nanos kLastPatience = 2s;
  static constexpr Nanos kTryAgain = 60s;

  explicit UsageKeeper(std::string region) : region_(std::move(region)) {}
  UsageKeeper(const UsageKeeper&) = delete;
  UsageKeeper& operator=(const UsageKeeper&) = delete;
  ~UsageKeeper() { stop(); }

  // Begins, or goes on with other options; an empty path: nothing is kept. On the agent's thread.
  void open(const UsageFileOptions& options);

  struct Status {
    bool is_on = false;
    std::string path, problem;  // problem: empty if all is well
  };
  Status status() const;

 private:
  struct Shared;
  void stop();

  const std::string region_;
  UsageFileOptions options_;
  std::shared_ptr<Shared> shared_;  // with the thread; nullptr: there is none
};

}  // namespace gpushare
