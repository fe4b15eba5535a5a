// SPDX-License-Identifier: Apache-2.0
// Widening: programs whose kernels need more SMs at once than their partition has, by what their
// slots say (ShimNeeds). There are two kinds:
//   refused  the driver has refused a cooperative launch there, and the shim has made it in the
//            whole GPU. The program may have SMs for the next one that nobody else is entitled to.
//   stuck    a kernel does not end: the process has launched nothing and a thread has waited for
//            its work for kPatience, nothing holds it, and what it may have running does not fit
//            into its partition at once. That may be a kernel whose blocks wait for each other,
//            which never ends then. Nothing can widen a partition under it; but from now on the
//            program has one that is wide enough. A kernel that only takes that long is mistaken
//            for one of these.
// The same holds for those that are started by the same command of the same user, for as long as
// the agent lives. least_partition.h says what others give up for it.
//
// Pure; the agent's one thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

class Widening {
 public:
  static constexpr Nanos kPatience = std::chrono::seconds(10);
  // What counts of the time between two looks, the longest tick of the agent: in a pause of the
  // agent, or of the whole machine, the GPU may have stood still as well.
  static constexpr Nanos kLongestLook = std::chrono::seconds(1);
  // Commands of which something is remembered; of more nothing is, beyond their own life.
  static constexpr std::size_t kMostPrograms = 1024;

  struct Seen {
    ProcessId process;
    std::string_view program{};  // the name of its command; empty: unknown
    uint64_t launches = 0;       // only rises
    bool waits = false;          // a thread waits for its work, and nothing holds that
    uint32_t refused_sms = 0, at_once_sms = 0;
    uint32_t has_sms = 0;  // in the partition where it is, or is to go
  };
  struct Found {
    ProcessId process;
    bool is_stuck = false;  // otherwise the driver has refused a launch
    uint32_t sms = 0;       // that it needs at once
    uint32_t has_sms = 0;   // that it had
  };

  // `seen`: all processes with a slot that is believed. Returns what is new.
  std::vector<Found> step(Time now, std::span<const Seen> seen);
  struct Needs {
    uint32_t refused_sms = 0, stuck_sms = 0;  // 0: no kernel is known that needs any at once

    bool operator==(const Needs&) const = default;
  };
  Needs needs(const ProcessId& process) const;
  // For people; empty: there is nothing to say.
  std::string note(const ProcessId& process) const;

 private:
  struct Known {
    uint64_t launches = 0;
    Nanos waited{};  // so long, as it was looked at, nothing was launched, and it waits
    Needs needs;
    bool is_stuck = false;  // a kernel of it did not end
  };

  Time last_look_{};
  std::map<ProcessId, Known> known_;
  std::map<std::string, Needs, std::less<>> programs_;  // by command
};

}  // namespace gpushare
