// SPDX-License-Identifier: Apache-2.0
// RefusalLog: warns of what the kernel module refused to processes, in few lines: at most one for
// each process, and one a second. A process that is refused something tends to try again, and must
// not fill the log; sysfs counts every refusal. Called on the agent's thread.
#pragma once

#include <set>

#include "intercept/kmod/notice.h"

namespace gpushare {

class RefusalLog {
 public:
  void note(Time now, const ControlRefused& refused);
  void note(Time now, const MemoryRefused& refused);

 private:
  void warn(Time now, const ProcessId& process, const std::string& text);

  Time next_{};
  std::set<ProcessId> warned_of_;
};

}  // namespace gpushare
