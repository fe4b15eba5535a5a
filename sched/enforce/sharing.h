// SPDX-License-Identifier: Apache-2.0
// Sharing: which processes' channel groups are one group in hardware. Clients of one MPS server
// are: they have one slice, and a freeze of one stops them all (measured on an H200). The driver
// says the hardware's number of each group, by the GPU's line (driver_line.h); a number is used
// again as soon as its group is freed, so where two are said to have the same, both are asked for
// it once more, one after the other. One thread, which does not wait for the driver.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sched/enforce/controlled.h"
#include "sched/enforce/driver_line.h"

namespace gpushare {

class Sharing {
 public:
  // `share` is told of each process that turns out to share its group, and was not known to share
  // any. All outlive it.
  Sharing(Gpu& gpu, const Clock& clock, AllControlled& all,
          std::function<void(const ControlKey&)> share)
      : gpu_(gpu), clock_(clock), all_(all), share_(std::move(share)) {}

  // Whether all numbers of the process are known, or cannot be. It must not be touched before.
  static bool is_asked(const Controlled& process);

  // Asks for the number of a group that has none yet, if it is time.
  void ask(ControlledGroup& group, const ControlKey& key, DriverLine& line);
  // The group is not followed any more.
  void leave(const ControlledGroup& group, const ControlKey& key);
  // Whether a process that shared a group has long done so no more; it is not while it is stopped.
  bool is_over(const ControlKey& key, Controlled& process) const;

 private:
  // A group, and what the driver says.
  struct Asked {
    ControlKey key;
    GroupRef ref;
    uint64_t serial = 0;
    Result<uint32_t> number = 0;
  };
  using Place = std::pair<uint32_t, uint32_t>;  // GPU and number

  void ask(std::vector<Asked> groups, DriverLine& line);
  void enter(const std::vector<Asked>& groups, DriverLine& line);
  ControlledGroup* find(const Asked& asked);
  std::vector<Asked> others_at(const Place& place, const std::vector<Asked>& groups);

  Gpu& gpu_;
  const Clock& clock_;
  AllControlled& all_;
  const std::function<void(const ControlKey&)> share_;
  std::map<Place, std::set<ControlKey>> sharers_;
};

}  // namespace gpushare
