// SPDX-License-Identifier: Apache-2.0
// What the keys of gpushare-top do to processes and tenants: requests to the agent and signals, in
// words before they are done. Pure; whoever has the terminal does them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/base/process_id.h"
#include "tools/agent/protocol.h"
#include "tools/top/model/rows.h"

namespace gpushare {

struct ProcessSignal {
  ProcessId process{};
  int number = 0;
};

struct Deed {
  std::string about{};  // "freeze process 4711 train of tenant research"
  std::vector<Request> requests{};
  std::vector<ProcessSignal> signals{};
  bool is_empty() const { return requests.empty() && signals.empty(); }
};

// Whom a line is about: one process, or all that a tenant or a job has.
struct Target {
  std::string words{};                 // "process 4711 train of tenant research"
  std::string tenant{};                // set where the whole tenant is meant
  std::vector<ProcessId> processes{};  // each once
};
Target target_of(const TopLine& line);

// `op` is "freeze" or "thaw".
Deed freeze_deed(const Target& target, const char* op);

// The settings that a tenant has in the snapshot, in the form in which they are typed ("30%").
std::string setting_text(const TenantRecord& tenant, std::string_view key);
// Sets `key` to what was typed. The error says what is allowed.
Result<Deed> setting_deed(const TenantRecord& tenant, std::string_view key, std::string_view typed);
// A tenth more or less, within the range of a weight.
Deed weight_deed(const TenantRecord& tenant, bool is_up);

// `typed` is a name ("TERM", "sigterm") or a number. The error says what is allowed.
Result<Deed> signal_deed(const Target& target, std::string_view typed);

}  // namespace gpushare
