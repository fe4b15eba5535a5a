// SPDX-License-Identifier: Apache-2.0
// JobTurn: how one job is stopped and let go, as a state machine over looks at its processes. Pure;
// time is given. One thread.
//
// A job that is to stop goes down a ladder, each process by itself:
//   boundary  Its next iteration waits. All processes stop at the same iteration, as far as their
//             counts tell, so that none waits in a collective for one that is held.
//   gate      After `grace` its next launch waits. A process whose iterations are not trusted
//             begins here, and one that is held and goes on launching comes here after kGoesOn.
//   freeze    After another grace; at once where there is no shim, and where nothing was launched
//             since it had to be frozen last time. But not more than kBlindFreezes times in a row:
//             then the next job is let in beside it, and the log says whether it still works.
// A process that has launched nothing for its patience, or says that its work is done, and was not
// seen at work since, stands as soon as its gate is closed: so a turn is lent, and the first launch
// that comes ends the loan. One
// that was seen at work in spite of that (a kernel that runs for long) has its patience doubled, up
// to kLongestPatience.
// A process that can be neither gated nor frozen (an MPS client without the shim) counts as
// standing, because nobody would ever run otherwise.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sched/jobs/hold.h"
#include "sched/jobs/lockstep.h"

namespace gpushare {

class JobTurn {
 public:
  // Without a launch for so long, a job that has the turn does not want the GPU.
  static constexpr Nanos kPatience = std::chrono::milliseconds(20),
                         kLongestPatience = std::chrono::seconds(1),
                         kGoesOn = std::chrono::milliseconds(20);
  static constexpr int kBlindFreezes = 8;
  // The next job may be let in so long before this one is expected to stand, so that its first
  // launch is in line when the GPU has done this one's last work. On an H200 it takes about as long
  // until a thread that waits here has been woken and has launched (docs/driver-facts.md). A launch
  // that comes too soon costs two switches where a slice of the hardware ends just then.
  static constexpr Nanos kLead = std::chrono::microseconds(300);
  // By how much at most it was wrong when it stood last.
  static constexpr Nanos kMostMiss = std::chrono::microseconds(200);

  // Looks at the processes: call it before the functions below, with a time that never falls.
  // `looks` are ascending by process; those that are missing have ended.
  void look(Time now, std::span<const ProcessLook> looks);
  // What is to be: it runs, or it stops. Then holds() say how.
  void run(Time now);
  void stop(Time now, Nanos grace);
  // Nobody asks anything of it any more.
  void release(Time now);

  TurnState state() const { return state_; }
  Time since() const { return since_; }  // in the state, kStopping counting as running
  bool wants_gpu() const { return wants_; }
  // It has the turn, or has not given it back yet.
  bool occupies() const { return state_ == TurnState::kRunning || state_ == TurnState::kStopping; }
  // It stands, and others have the turn.
  bool waits() const { return state_ == TurnState::kHeld || state_ == TurnState::kStopped; }
  // As of the last call of run(), stop() or release(), ascending by process.
  std::vector<ProcessHold> holds() const;
  // The lowest rung on which a process of it is.
  Rung rung() const;
  // When a look is due even if nothing happens; Time::max(): none is.
  Time next(Time now) const;

  // When it will stand at its boundary, by how long the last iterations of its turns took before;
  // none: it does not stop, the last iteration of a process has not begun, or that is not known.
  std::optional<Time> expected_stand() const;
  // It is so near that instant that the next job may be let in: that was right when it stood last,
  // and all that is still to come of it is launched, as far as can be told, because its threads
  // wait for it.
  bool is_about_to_stand(Time now) const;

  // Since when it stands: when the last of its threads came to its boundary, if that is known.
  Time stood() const { return stood_; }
  // When it began its first iteration since it was let in; zero: not yet, or not known.
  Time began() const { return began_; }
  // That have begun since the last call. One that it was called back from before it stood goes on
  // as the same.
  uint64_t take_turns() { return std::exchange(turns_, 0); }

 private:
  struct Held {
    ProcessLook look{};
    Rung rung = Rung::kNone;
    Time rung_since{};
    uint64_t run_until = 0;
    std::optional<uint64_t> launches_when_frozen;  // the last time
    int blind_freezes = 0;                         // since it last launched, or was seen at work
    Time went_on{};        // the last launch that was seen while it was held
    Time first_on{};       // and the first one
    bool is_idle = false;  // it stood without having come to its gate: it had nothing to do
    Nanos patience = kPatience;
    bool was_seen_at_work = false;  // although it launched nothing
    uint64_t begun_when_let_in = 0;
    Time let_in{};  // the last time that it was let in and wanted the GPU
    bool stands = false;
    Time stands_since{};
    // How long the last iteration of a turn takes until it stands, by the turns before; 0: it is
    // not known. And how wrong that was last.
    Nanos length{};
    std::optional<Nanos> miss;
  };

  void meet(Held& held, const ProcessLook& look, Time now);
  void learn_from_stand(Held& held) const;
  static bool is_quiet(const Held& held, Time now);
  static bool wants(const Held& held, Time now);
  void hold(Held& held, Time now);
  void climb(Held& held, Rung rung, Time now);
  void advance(Held& held, Time now, Nanos grace);
  static bool stands(const Held& held, Time now);
  void enter(TurnState state, Time now);

  TurnState state_ = TurnState::kFree;
  uint64_t turns_ = 0;
  bool has_turn_ = false;  // let in, and it has not stood since
  Time since_{};
  bool wants_ = false;
  Time stood_{}, began_{};
  Nanos grace_{};
  std::map<ProcessId, Held> processes_;
  Lockstep lockstep_;
};

}  // namespace gpushare
