// SPDX-License-Identifier: Apache-2.0
// Sharing: which processes' channel groups are one group in hardware. Clients of one MPS server
// are: they have one slice, and a freeze of one stops them all (measured on an H200). The driver
// says the hardware's number of each group; a number is used again as soon as its group is freed,
// so whoever is thought to share one is asked for it at that moment. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "sched/enforce/controlled.h"

namespace gpushare {

class Sharing {
 public:
  // All outlive it.
  Sharing(Gpu& gpu, const Clock& clock, AllControlled& all) : gpu_(gpu), clock_(clock), all_(all) {}

  // The time that the driver may be asked for numbers between two calls of begin_step().
  static constexpr Nanos kStepTime = std::chrono::microseconds(500);
  void begin_step() { left_ = kStepTime; }
  // Whether all numbers of the process were asked for; false: for want of time. It must not be
  // touched before.
  static bool is_asked(const Controlled& process);

  // Asks for the number of a group that has none yet, if it is time and there is time. Returns the
  // processes that turn out to share it, and were not known to share any.
  std::vector<ControlKey> join(ControlledGroup& group, const ControlKey& key);
  // The group is not followed any more.
  void leave(const ControlledGroup& group, const ControlKey& key);
  // Whether a process that shared a group has long done so no more; it is not while it is stopped.
  bool is_over(const ControlKey& key, Controlled& process) const;

 private:
  std::optional<uint32_t> ask_number(ControlledGroup& group);
  void check_sharers(const ControlKey& key, uint32_t number);

  Gpu& gpu_;
  const Clock& clock_;
  AllControlled& all_;
  Nanos left_ = kStepTime;
  std::map<std::pair<uint32_t, uint32_t>, std::set<ControlKey>> sharers_;  // by GPU and number
};

}  // namespace gpushare
