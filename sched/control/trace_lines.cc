// SPDX-License-Identifier: Apache-2.0
#include "sched/control/trace_lines.h"

#include <fmt/core.h>

namespace gpushare {
std::string trace_line(const SwitchRecord& record) {
  return fmt::format(R"({{"switch":{{"t":{},"gpu":{},"pid":{},"start":{}}}}})",
                     record.time.time_since_epoch().count(), record.gpu, record.pid,
                     record.is_start);
}

std::string trace_line(const Enforcer::Change& change, FreezeReason reason) {
  const auto line = [&](const char* kind, const std::string& more) {
    return fmt::format(R"({{"event":{{"t":{},"kind":"{}","pid":{},"gpu":{}{}}}}})",
                       change.at.time_since_epoch().count(), kind, change.process.pid, change.gpu,
                       more);
  };
  switch (change.kind) {
    case Enforcer::Change::Kind::kFreeze:
      return line("freeze", fmt::format(R"(,"reason":"{}")", freeze_reason_name(reason)));
    case Enforcer::Change::Kind::kSlice:
      return line("slice", fmt::format(R"(,"value":{})", change.slice.count()));
    case Enforcer::Change::Kind::kThaw:
      break;
  }
  return line("thaw", "");
}

// Names of jobs are of letters, digits and '-'.
std::string trace_line(const TurnChange& turn) {
  return fmt::format(R"({{"turn":{{"t":{},"gpu":{},"job":"{}","pid":{},"start":{}}}}})",
                     turn.at.time_since_epoch().count(), turn.gpu, turn.job, turn.pid, turn.begins);
}

std::string trace_end_line(uint64_t lost) {
  return fmt::format(R"({{"end":true,"lost":{}}})", lost);
}

}  // namespace gpushare
