// SPDX-License-Identifier: Apache-2.0
// Predecessors: who drove the GPUs before, and may still have a call of a driver under way: agents
// and supervisors that have died and whose last thread is in a call that does not come back, and
// the living supervisor, whose threads undo what an agent has left. A freeze of theirs that takes
// effect after we have thawed would be listed nowhere, and a thaw after we have frozen would be
// missing: so nothing is asked of that GPU, and nothing of it cleared from the ledger, before they
// are done. Of all other GPUs nothing of theirs is left to come. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

class Predecessors {
 public:
  explicit Predecessors(std::vector<ProcessId> all) : all_(std::move(all)) {}
  // Forgets those of which nothing is left.
  void add(const ProcessId& process);

  // Error device_or_resource_busy: one of them may have a call under way on this GPU.
  Result<> have_left(uint32_t gpu) const;

  // "4711:123456,4712:123460" for the command line of the next agent; empty: there are none.
  std::string text() const;
  // nullopt for any other text.
  static std::optional<std::vector<ProcessId>> parse(std::string_view text);

 private:
  std::vector<ProcessId> all_;
};

}  // namespace gpushare
