// SPDX-License-Identifier: Apache-2.0
// Standstill: which processes of a GPU are to be thawed because somebody may have frozen them
// without being seen: behind the probe's back, before the agent came, or where there is no probe.
// The driver does not say whether a channel is frozen, so a process that has shown no work for two
// seconds is thawed as a trial, which harms nobody (a surplus thaw does nothing, and takes 0.26 ms
// on an H200): then less and less often, once a minute in the end. That is also what an idle
// process costs.
//
// One that begins to run as soon as it is thawed had been frozen, or wakes at that moment by
// chance. Nobody is to be accused by chance: the trial's instant cannot be foretold, the process
// must have been at work before, and one that has been seen to wake by itself is thawed, but not
// found, unless that is long ago and it happens twice in a row.
//   Example: at work for an hour, still for 2.4 s, thawed, at work 0.3 ms later: it was frozen.
//   Example: at work for 50 ms every 2.5 s: it wakes by itself and is never reported.
// Pure: asks nothing of the driver. One thread.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

class Standstill {
 public:
  // Without a sign of work for so long, and up to kJitter more, it stands still.
  static constexpr Nanos kStill = std::chrono::seconds(2), kJitter = std::chrono::seconds(1);
  static constexpr Nanos kLongestPause = std::chrono::minutes(1);  // between two trials
  // One that was found is thawed at the first look at which it stands still, for so long: whoever
  // has frozen it may go on.
  static constexpr Nanos kVictim = std::chrono::minutes(1);
  // For so long a process that has woken by itself is not believed to have been frozen.
  static constexpr Nanos kWakeful = std::chrono::minutes(10);
  // A look is due so often, and thaws two processes at most: 8 a second.
  static constexpr Nanos kBetweenLooks = std::chrono::milliseconds(250);
  // The driver counts freezes. A trial thaws four times, the next one twice as often.
  static constexpr int kFirstRounds = 4, kMostRounds = 32;

  // A process at a look.
  struct Standing {
    ProcessId process;
    Time came{};             // it is known since then
    Time shown{};            // it last showed work; zero: never
    Time woke{};             // it last began a turn after a long time without; zero: never
    bool is_held = false;    // by us: it has no reason to run
    bool waits = false;      // by its own word a thread waits for what it launched
    bool was_there = false;  // before the agent
  };
  struct Trial {
    ProcessId process;
    int rounds = 0;  // how often to thaw it
    bool operator==(const Trial&) const = default;
  };
  struct Verdict {
    std::vector<Trial> trials;     // to be thawed now
    std::vector<ProcessId> found;  // had been frozen, and run again
  };
  // `all` that are on the GPU now: others are forgotten.
  Verdict look(Time now, std::span<const Standing> all);
  // The trial was begun and ended at these instants.
  void thawed(const ProcessId& process, Time begun, Time ended);

 private:
  struct Watch {
    Time since{};         // it stands still, if it does
    Time steady_since{};  // it works without a long pause
    Time woke{};          // as told last
    Nanos pause{};        // zero: it has had no trial since then
    Time next{};          // trial
    int rounds = kFirstRounds;
    Time begun{}, ended{};  // of the last trial; zero: none
    bool has_waited = false;
    Time woke_itself{};      // zero: never
    Time found{};            // the last time; zero: never
    bool was_woken = false;  // by a trial, the last time that it woke
  };

  static bool judge(Watch& watch, const Standing& one);
  static Nanos jitter(const Watch& watch, const ProcessId& process);
  static bool is_victim(const Watch& watch, Time now) {
    return watch.found != Time{} && now - watch.found < kVictim;
  }

  std::map<ProcessId, Watch> watches_;
};

}  // namespace gpushare
