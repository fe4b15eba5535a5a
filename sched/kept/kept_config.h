// SPDX-License-Identifier: Apache-2.0
// The last configuration that was correct, kept as a copy of its file: an agent that starts while
// the file has a mistake goes on with what held before, instead of leaving everybody without
// limits.
#pragma once

#include <functional>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "sched/policy/entry.h"
#include "shmctl/base/clock.h"

namespace gpushare {

// Makes `kept` a copy of `path`, whole or not at all, or takes it away where there is no such file.
// A file that has been changed since and is not correct is not kept. Where it cannot be written,
// for example because its folder is missing, the one before stays; that is logged unless it is as
// usual. An empty `kept` does nothing. Blocks for as long as the disk does; any thread may call,
// for one file one at a time.
void keep_config(const std::string& path, const std::string& kept,
                 std::span<const PolicyEntry> policies);

// Does it beside the agent's loop, because a disk may take seconds, or hang. One thread, the
// agent's.
class ConfigKeeper {
 public:
  // How long the end waits for the disk.
  static constexpr Nanos kLastPatience = std::chrono::seconds(2);
  using Keep = std::function<void()>;

  // `keep`: called on any thread, one call at a time, also after the end of this object; it owns
  // all that it uses.
  explicit ConfigKeeper(Keep keep) : keep_(std::move(keep)) {}
  ConfigKeeper(const ConfigKeeper&) = delete;
  ConfigKeeper& operator=(const ConfigKeeper&) = delete;
  ~ConfigKeeper();

  // The file was read, and is correct. If it is being kept already, that is done once more.
  void ask() {
    is_due_ = true;
    advance();
  }
  // Call it now and then. Never blocks.
  void advance();

 private:
  const Keep keep_;
  std::future<bool> keeping_;  // invalid: the file is not being kept
  bool is_due_ = false;
};

}  // namespace gpushare
