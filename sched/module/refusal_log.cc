// SPDX-License-Identifier: Apache-2.0
#include "sched/module/refusal_log.h"

#include <fmt/format.h>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostRemembered = 1024;  // processes; then all are forgotten
constexpr Nanos kInterval = 1s;

}  // namespace

void RefusalLog::note(Time now, const ControlRefused& refused) {
  warn(now, refused.process, fmt::format("was refused scheduling control {:#x}", refused.command));
}

void RefusalLog::note(Time now, const MemoryRefused& refused) {
  warn(now, refused.process,
       fmt::format("was refused {} bytes: its tenant has {} of {} on GPU {}", refused.bytes,
                   refused.current_bytes, refused.max_bytes, refused.instance));
}

void RefusalLog::warn(Time now, const ProcessId& process, const std::string& text) {
  if (now < next_ || warned_of_.contains(process)) return;
  if (warned_of_.size() >= kMostRemembered) warned_of_.clear();
  warned_of_.insert(process);
  next_ = now + kInterval;
  log_warning("process {} {}", process.pid, text);
}

}  // namespace gpushare
