// SPDX-License-Identifier: Apache-2.0
// LateAttach: finds what processes have on the GPUs where no event told of it, and enters it into
// the registry: processes that were there before the agent, all of them after events were lost, and
// those that use the driver and were not seen to make a channel group (an MPS server gives its
// clients theirs without an event). It looks at one process after the other: a search may take
// 0.2 s. What fails is tried again, with pauses that grow to 30 s. All functions are called on one
// thread, the scheduler's.
//
// Searches run in pieces on that thread, or (the agent) on threads of their own: at first, when all
// that were there before the agent are to be found, kAtOnce at a time. Later one at a time: who
// makes many processes, or many events, must not have the agent use many processors.
#pragma once

#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "sched/enforce/driver_line.h"
#include "sched/registry/registry.h"
#include "shmctl/base/clock.h"

namespace gpushare {

class LateAttach {
 public:
  // `observer` may be nullptr: then every process is looked for. All outlive it.
  LateAttach(Gpu& gpu, Observer* observer, Registry& registry, const Clock& clock,
             DriverCalls calls = DriverCalls::kInStep)
      : gpu_(gpu), observer_(observer), registry_(registry), clock_(clock), calls_(calls) {}
  // Waits for searches that are under way.
  ~LateAttach();

  static constexpr std::size_t kAtOnce = 32;

  // While all are to be looked at again and again, it is done less and less often.
  static constexpr Nanos kShortestBetweenAll = std::chrono::milliseconds(100),
                         kLongestBetweenAll = std::chrono::seconds(10);

  // At every process that has the driver open, as soon as there is time.
  void look_at_all();
  // At this one, of which events were lost, in the next look_around(); if that comes again and
  // again, less and less often.
  void look_at(pid_t pid) { asked_.insert(pid); }
  // At this one, which runs on a GPU where nothing of it is known, in the next look_around(),
  // unless it is known there by then: its events may only be late. Nothing else of it is doubted.
  void look_for(pid_t pid, uint32_t gpu) { unknown_.insert({pid, gpu}); }
  // At this one, which runs although all that is known of it is frozen, as soon as there is time.
  // To be called for as long as that is so: the pauses between two looks grow to a second only,
  // because it has the GPU meanwhile.
  void look_despite_freeze(pid_t pid);
  // At those of which no event told, now and then: a process that had nothing is looked at less and
  // less often, once in 30 s in the end; also at those of which a look failed, and at those that
  // held a client of another process that has it no more. While something has ended and remains, or
  // is remembered and was not found, at all that have the driver open, as one of them holds it. To
  // be called about once a second.
  void look_around();
  // An event was applied to the registry: what is being found of its process may be older.
  void note(const DriverEvent& event);
  // Waits until no search is under way on another thread, but not longer. Returns false when one
  // is.
  bool rest(Nanos patience) const;
  // Goes on for about `budget`. Returns false when nothing is left to look at.
  bool advance(Nanos budget);

 private:
  struct Answer {
    Result<ObjectSearch::Found> found;
    bool is_complete = true;
  };
  struct Current {
    pid_t pid = 0;
    std::vector<ObjectRef> known;          // when the search began
    std::unique_ptr<ObjectSearch> search;  // in pieces, or
    std::future<Answer> answer;            // on another thread
    bool is_outdated = false;
    int repeats = 0;
  };
  struct Look {
    Time next{};
    Nanos pause{};
  };

  // What is done with the processes that have the driver open.
  enum class UsersFor : uint8_t { kAll, kHeirs, kAround };

  void advance_users(Nanos budget);
  void find_users(UsersFor what);
  void look_for_heirs();
  void look_at(const std::vector<pid_t>& unseen);
  void look_again();
  void add(pid_t pid);
  bool is_current(pid_t pid) const;
  Current begin(pid_t pid, int repeats);
  static std::optional<Answer> advance(Current& current, Nanos budget);
  bool end(Current& current, const Answer& answer);
  void take(const Current& current, const ObjectSearch::Found& found, bool is_whole);
  void watch(const ProcessId& process);
  void put_off(Look& look) const;

  Gpu& gpu_;
  Observer* const observer_;
  Registry& registry_;
  const Clock& clock_;
  const DriverCalls calls_;
  std::unique_ptr<UserSearch> users_;  // nullptr: none is under way
  UsersFor users_for_ = UsersFor::kAround;
  bool wants_all_ = false;         // look_at_all() has been called and not begun
  bool wants_heirs_ = false;       // there is something new to look for, at the next look
  bool has_missed_heirs_ = false;  // the last look for them has failed
  std::set<pid_t> remaining_;      // of whom the heirs were looked for
  Look heirs_look_{};              // when they are again
  Time next_all_{};
  Nanos between_all_{};
  std::deque<pid_t> line_;
  std::vector<Current> current_;                  // under way
  bool is_first_ = true;                          // all that were there before are being looked for
  std::set<pid_t> asked_;                         // to look at, whatever is known of them
  std::set<std::pair<pid_t, uint32_t>> unknown_;  // seen to run there, and GPU
  std::set<pid_t> unseen_;                        // of those in line, who was in unknown_
  std::map<pid_t, Look> looks_;                   // when to look at each again
  std::map<pid_t, Look> escapes_;                 // the same for look_despite_freeze()
  std::map<pid_t, Look> failed_;   // the same for those of which a look did not tell all
  bool cannot_list_ = false;       // which processes there are
  std::set<ProcessId> unwatched_;  // whose end the observer does not tell yet
  // The processes that hold a client of another one.
  std::map<Registry::Owned, std::set<pid_t>> heirs_;
};

}  // namespace gpushare
