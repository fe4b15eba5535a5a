// SPDX-License-Identifier: Apache-2.0
// RefusalLog: warns of what the kernel module refused to processes, in few lines: at most one for
// each process, and one a second for the processes of a user. A process that is refused something
// tends to try again, and must not fill the log; sysfs counts every refusal. Called on the agent's
// thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "intercept/kmod/notice.h"
#include "shmctl/base/user_budget.h"

namespace gpushare {

class RefusalLog {
 public:
  // Any number for a process that has ended.
  using UserOf = std::function<uid_t(pid_t)>;

  RefusalLog();
  explicit RefusalLog(UserOf user_of) : user_of_(std::move(user_of)) {}
  // Return whether it was given to the log.
  bool note(Time now, const ControlRefused& refused);
  bool note(Time now, const MemoryRefused& refused);

 private:
  bool warn(Time now, const ProcessId& process, const std::string& text);

  const UserOf user_of_;
  UserBudget budget_{std::chrono::seconds(1), 1};
  // Who was refused something lately, with its user until it is warned of.
  std::map<ProcessId, std::optional<uid_t>> seen_;
};

}  // namespace gpushare
