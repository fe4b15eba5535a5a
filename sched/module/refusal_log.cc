// SPDX-License-Identifier: Apache-2.0
#include "sched/module/refusal_log.h"

#include <fmt/format.h>

#include "shmctl/base/log.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr std::size_t kMostRemembered = 1024;  // processes; then all are forgotten
constexpr uid_t kNobodyKnown = static_cast<uid_t>(-1);

}  // namespace

RefusalLog::RefusalLog()
    : RefusalLog([](pid_t pid) { return real_uid_of(pid).value_or(kNobodyKnown); }) {}

bool RefusalLog::note(Time now, const ControlRefused& refused) {
  return warn(now, refused.process,
              fmt::format("was refused scheduling control {:#x}", refused.command));
}

bool RefusalLog::note(Time now, const MemoryRefused& refused) {
  return warn(now, refused.process,
              fmt::format("was refused {} bytes: its tenant has {} of {} on GPU {}", refused.bytes,
                          refused.current_bytes, refused.max_bytes, refused.instance));
}

bool RefusalLog::warn(Time now, const ProcessId& process, const std::string& text) {
  if (seen_.size() >= kMostRemembered) seen_.clear();
  const auto [seen, is_first] = seen_.try_emplace(process);
  if (is_first) seen->second = user_of_(process.pid);
  if (!seen->second || !budget_.take(*seen->second, now)) return false;
  seen->second.reset();
  log_about(process.pid, LogLevel::kWarning, "process {} {}", process.pid, text);
  return true;
}

}  // namespace gpushare
